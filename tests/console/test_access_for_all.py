"""Every page, in both themes and on a telephone: axe-core finds nothing, and nothing is cut off."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from prismline_contracts import timestamp
from tests.console.stage import Scene
from tests.console.watching import violations

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: Widths in pixels of a laptop and of a telephone.
WIDTHS = (1280, 390)


def pages(scene: Scene) -> list[str]:
    """The address of every page, with something to show."""
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
