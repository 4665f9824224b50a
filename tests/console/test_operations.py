"""Dead letters, alerts and the system in a browser: the actions of a person on call."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from prismline_contracts.base import timestamp
from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_contracts.items import ChunkStatus
from prismline_runtime import Bucket
from tests.console import stage
from tests.console.conftest import Console
from tests.console.stage import HOSTILE, Scene
from tests.system import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_alerts_are_muted_for_a_while_and_unmuted(page: Page, console: Console) -> None:
    page.goto("/console/alerts")
    expect(page.get_by_text("Alerts are posted")).to_be_visible()
    page.get_by_label("Duration").select_option("30m")
    page.get_by_role("button", name="Mute", exact=True).click()
    expect(page.locator("#mute")).to_contain_text("Muted until")
    expect(page.locator("#mute time")).to_have_attribute("title", re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
    assert "Alerts muted until" in console.system.cli("alerts", "status")
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_text("Alerts are posted")).to_be_visible()
    assert "Alerts active" in console.system.cli("alerts", "status")


def test_an_active_alarm_is_shown_first_with_its_history(page: Page, console: Console, scene: Scene) -> None:
    page.goto("/console/alerts")
    name = stage.raise_alarm(console.system).split("-", 2)[2]
    first = page.locator("#alarms tbody tr").first
    expect(first).to_contain_text("alarm")
    expect(first).to_contain_text(name)
    expect(first).to_contain_text(HOSTILE)
    expect(page.locator("#changes tbody tr").first).to_contain_text(name)


def test_chosen_dead_letters_are_recovered_after_a_preview_and_the_chunks_turn(
    page: Page, console: Console, tmp_path: Path
) -> None:
    system = console.system
    run_id = stage.broken_run(system, tmp_path, "chosen", "chosen")
    page.goto(f"/console/dead-letters?run_id={run_id}")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(len(stage.FAILED_CHUNKS))
    chosen, left = stage.FAILED_CHUNKS
    rows.filter(has_text=chosen).get_by_role("checkbox").check()
    page.get_by_role("button", name="Recover chosen").click()
    preview = page.get_by_role("dialog")
    expect(preview).to_contain_text("1 will be sent back")
    assert system.connection.ledger.chunk(run_id, chosen).state is ChunkStatus.FAILED, "a preview does nothing"
    preview.get_by_role("button", name="Recover", exact=True).click()
    recovery = page.locator("#recoveries tbody tr")
    expect(recovery).to_contain_text("completed")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(left)
    states = {chunk.chunk_id: chunk.state for chunk in system.chunks(run_id)}
    assert (states[chosen], states[left]) == (ChunkStatus.COMPLETED, ChunkStatus.FAILED)
    page.reload()
    expect(recovery).to_contain_text("completed")


def test_the_filters_are_in_the_address_and_an_error_that_looks_like_html_stays_text(page: Page, scene: Scene) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto("/console/dead-letters")
    page.locator("select[name=queue]").select_option("split")
    page.locator("input[name=error]").fill("ONERROR")
    expect(page).to_have_url(re.compile(r"\?queue=split&error=ONERROR$"))
    page.reload()
    row = page.locator("#list tbody tr").filter(has_text=HOSTILE)
    expect(row).to_have_count(1)
    row.get_by_role("button").click()
    letter = page.get_by_role("dialog")
    expect(letter).to_contain_text(HOSTILE)
    expect(letter.get_by_role("region", name="Message")).to_contain_text(HOSTILE.split("&", maxsplit=1)[0].strip())
    expect(page).to_have_url(re.compile(f"letter=.*{scene.letter}"))
    assert page.locator("main img").count() == 0
    page.reload()
    expect(letter).to_contain_text(HOSTILE)
    page.keyboard.press("Escape")
    expect(letter).to_have_count(0)


def test_a_dead_letter_that_no_run_owns_cannot_be_chosen_and_the_page_says_why(page: Page, console: Console) -> None:
    connection = console.system.connection
    moment = timestamp()
    record = DeadLetterRecord(body="no message", error="It cannot be read.", archived_at=moment)
    key = dead_letter_key(moment[:10], "7d1e0e0e-2f5e-4d0c-8c39-9a1f3c1f7a11")
    Bucket(connection.s3, connection.bucket).write(key, record.model_dump_json().encode())
    page.goto("/console/dead-letters")
    expect(page.locator("#unreadable")).to_contain_text("name no run cannot be chosen")
    box = page.get_by_role("checkbox", name="Choose 7d1e0e0e-2f5e-4d0c-8c39-9a1f3c1f7a11")
    expect(box).to_be_disabled()
    expect(box).to_have_attribute("title", "It names no run, so it cannot be recovered.")


def test_queues_are_drawn_over_time_and_one_can_be_chosen(page: Page, console: Console) -> None:
    page.goto("/console/system")
    row = page.locator("#queues tbody tr").filter(has=page.get_by_text("tasks", exact=True))
    expect(row).to_be_visible()
    page.locator("#queue").select_option("tasks")
    expect(page.locator("#depth canvas")).to_be_visible()
    expect(page.locator("#depth-now")).to_contain_text("0 waiting")


def test_the_earlier_code_of_a_function_is_shown_with_the_runs_that_need_it(
    page: Page, console: Console, tmp_path: Path
) -> None:
    earlier, latest = "1" * 64, "2" * 64
    limits = {"timeout": 60, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024}
    function: dict[str, object] = {"name": "seeing:measure", "item": {}, "parameters": {}, "limits": limits}
    # No code is there, so that the run waits for it.
    function["local"] = {"python": sys.executable, "paths": [str(tmp_path)]}
    source = {"kind": "inline", "items": [{"path": "a.fits"}]}
    with console.api() as api:
        api.post("/workloads", json={**function, "code": earlier}).raise_for_status()
        job = api.post("/jobs", json={"workload": "seeing:measure", "name": "night", "source": source})
        run_id = job.raise_for_status().json()["run"]["run_id"]
        wait_for(lambda: api.get(f"/runs/{run_id}").json().get("counts"), "the run to be opened")
        api.post("/workloads", json={**function, "code": latest}).raise_for_status()
    page.goto("/console/system")
    row = page.locator("#functions tbody tr").filter(has_text="seeing:measure")
    expect(row).to_contain_text(latest[:12])
    expect(row).to_contain_text(earlier[:12])
    row.get_by_role("link", name=run_id).click()
    expect(page.get_by_text("Keep the earlier code until the run has ended")).to_be_visible()
    with console.api() as api:
        api.post(f"/runs/{run_id}/cancel").raise_for_status()


def test_a_page_reports_that_the_system_is_gone_and_updates_again_when_it_is_back(
    page: Page, console: Console, scene: Scene
) -> None:
    """The emulator is killed while a page is open. The page is not reloaded."""
    page.goto("/console/runs")
    row = page.locator("#list tbody tr").filter(has_text=scene.good_run[:8])
    expect(row).to_contain_text("completed")
    page.evaluate("window.sameDocument = true")
    console.kill_emulator()
    expect(page.locator("#live")).to_contain_text("Not current")
    expect(row).to_contain_text("completed")
    console.start_again()
    expect(page.locator("#live")).not_to_contain_text("Not current")
    again = console.system.submit(f"s3://{console.system.connection.bucket}/none.fits", "after-the-kill")
    expect(page.locator("#list tbody tr").filter(has_text="after-the-kill")).to_be_visible()
    assert page.evaluate("window.sameDocument")
    wait_for(lambda: (view := console.system.view(again)) is not None and view.ended, "the run without a cube to end")
