"""Accessibility of every page, in both themes and on a phone: axe-core finds no violation, and nothing is cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from prismline_api.app import create_app
from prismline_contracts.base import timestamp
from prismline_localstack import harness
from prismline_localstack.testing import serving
from tests.console.conftest import Console
from tests.console.stage import Scene
from tests.console.watching import violations
from tests.cubes import write_cube

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: Widths in pixels of a laptop and of a phone.
WIDTHS = (1280, 390)


def pages(scene: Scene) -> list[str]:
    """The addresses of all pages, each with data to show."""
    return [
        "/console/runs",
        f"/console/runs/{scene.good_run}",
        f"/console/runs/{scene.bad_run}?cell=10",
        f"/console/runs/{scene.good_run}/cube?x=20&y=20",
        f"/console/compare?a={scene.good_run}&b={scene.other_run}",
        "/console/dead-letters",
        f"/console/dead-letters?letter={timestamp()[:10]}/{scene.letter}",
        "/console/alerts",
        "/console/system",
        "/console/contracts",
        "/console/not-there",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_no_page_is_wider_than_the_screen(page: Page, scene: Scene, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    found = {}
    for address in pages(scene):
        page.goto(address)
        expect(page.locator("main [aria-busy=true]")).to_have_count(0)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            found[address, width] = violations(page)
            if (needed := page.evaluate("document.documentElement.scrollWidth")) > width:
                found[address, width].append(f"it needs {needed} pixels")
    assert not any(found.values()), {where: what for where, what in found.items() if what}


def test_axe_finds_nothing_in_filled_dialogs_and_the_keyboard_opens_and_closes_them(page: Page, scene: Scene) -> None:
    dialog = page.get_by_role("dialog")
    found = {}
    for address, name, says in (
        (f"/console/runs/{scene.bad_run}", "Rerun failed", "chunks will be retried in this run"),
        (f"/console/runs/{scene.bad_run}", "Export", "completed chunks"),
        (f"/console/dead-letters?run_id={scene.bad_run}", "Recover chosen", "will be sent back to their queues"),
    ):
        page.goto(address)
        if "dead-letters" in address:
            page.get_by_role("checkbox", name="Choose all that are listed").check()
        button = page.get_by_role("button", name=name)
        button.focus()
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text(says)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            found[name, width] = violations(page)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name=name)).to_be_focused()
    assert not any(found.values()), {where: what for where, what in found.items() if what}


def by_keyboard(page: Page, dialog: Locator, controls: Sequence[str]) -> None:
    """The tab key reaches controls whose names begin so in this order, and none of the page behind the dialog."""
    reached = []
    for number in range(len(controls)):
        if number:
            page.keyboard.press("Tab")
        expect(dialog.locator(":focus")).to_have_count(1)
        reached.append(page.evaluate("document.activeElement.name || document.activeElement.textContent"))
    assert all(map(str.startswith, reached, controls)), reached


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_filled_dialog_of_a_submission_suits_axe_and_the_keyboard(
    page: Page, console: Console, tmp_path: Path, theme: str
) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    cube = write_cube(tmp_path / "keyed.fits", ny=4, nx=5)
    dialog, found = page.get_by_role("dialog", name="Submit"), {}
    page.goto("/console/runs")
    chooser = page.get_by_label("Submit a file")
    for last in (False, True):
        chooser.focus()
        expect(chooser).to_be_focused()
        chooser.set_input_files(cube)
        expect(dialog).to_contain_text(re.compile(r"Estimated cost on AWS: .* USD"))
        if not last:
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                found[width] = violations(page)
            by_keyboard(page, dialog, ("name", "Estimated cost", "Cancel", "Submit"))
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            expect(chooser).to_be_focused()
    page.keyboard.type("not a name")
    page.keyboard.press("Enter")
    expect(dialog.locator(":invalid")).to_have_count(2)
    assert page.evaluate("document.activeElement.name") == "name", "the form is not sent, and its field keeps the focus"
    found["invalid"] = violations(page)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(f"keyed-{theme}")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/console/runs/[0-9a-f-]+$"))
    assert not any(found.values()), found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_filled_dialog_of_a_cancellation_suits_axe_and_the_keyboard(page: Page, console: Console, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    name = f"keyed-{theme}"
    with console.api() as api:
        job = api.post("/jobs", json={"workload": "urls", "name": name, "open": True}).raise_for_status().json()
        urls = {"urls": ["https://prismline.invalid/"] * 3}
        api.post(f"/jobs/{job['job_id']}/tasks", json=urls, headers={"Idempotency-Key": name}).raise_for_status()
    dialog, found = page.get_by_role("dialog"), {}
    page.goto(f"/console/runs/{job['run']['run_id']}")
    button = page.get_by_role("button", name="Cancel")
    for last in (False, True):
        button.focus()
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The run ends as cancelled")
        if not last:
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                found[width] = violations(page)
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            expect(button).to_be_focused()
    by_keyboard(page, dialog, ("Close", "Cancel the run"))
    page.keyboard.press("Enter")
    expect(page.locator(".facts")).to_contain_text("cancelled")
    assert not any(found.values()), found


def test_a_printed_page_has_its_content_and_no_controls(page: Page, scene: Scene) -> None:
    page.goto(f"/console/runs/{scene.bad_run}")
    expect(page.get_by_role("table", name="Failures by error")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_role("table", name="Failures by error")).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    expect(page.get_by_role("button", name="Export")).to_be_hidden()
    assert len(page.pdf()) > 10_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_the_form_where_people_sign_in(
    browser: Browser, console: Console, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    for name, value in {**harness.load_state(console.home).env, "CONSOLE_SIGN_IN": "key"}.items():
        monkeypatch.setenv(name, value)
    with serving(create_app()) as url:
        context = browser.new_context(base_url=url, color_scheme="dark" if theme == "dark" else "light")
        page = context.new_page()
        page.goto("/console/system")
        for given, then in ("prismline_wrong", "Sign in"), (console.api_key, "System"):
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert violations(page) == []
                assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.get_by_label("API key").fill(given)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name=then, level=1)).to_be_visible()
        context.close()
