"""States of what a run consists of and of what is done for it, as the API, the command and the console show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from prismline_localstack.standins.site import Site
from prismline_localstack.testing import serving
from tests.console.conftest import Console
from tests.console.states import api_view, console_knows, paused, rules, shown, submit_cube, submit_urls
from tests.cubes import write_cube
from tests.system import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def by_status(console: Console, run_id: str, unit: str) -> dict[str, set[str]]:
    """The ids of chunks, or the paths of tasks, of each status."""
    name = {"chunk": "chunk_id", "task": "url"}[unit]
    found: dict[str, set[str]] = {}
    for item in api_view(console, f"/runs/{run_id}/{unit}s?limit=100")["items"]:
        found.setdefault(item["status"], set()).add(item[name])
    return found


def listed(
    console: Console, page: Page, run_id: str, unit: str, expected: dict[str, int], *, retried: bool = False
) -> None:
    """The API has so many chunks or tasks of each status, and the command and the console list as many.

    retried: whether the pending ones have been tried.
    """

    def reached() -> bool:
        found = by_status(console, run_id, unit) if console_knows(console, run_id) else {}
        return {status: len(names) for status, names in found.items()} == expected

    wait_for(reached, f"{expected}")
    for status, number in expected.items():
        said = console.system.cli(f"{unit}s", run_id, "--status", status, "--json")
        assert [each["status"].lower() for each in json.loads(said)] == [status] * number
        printed = console.system.cli(f"{unit}s", run_id, "--status", status)
        assert printed.count(status) >= number
    page.goto(f"/console/runs/{run_id}")
    for status, number in expected.items():
        # A cell that waits for its next try has a state of its own.
        state = "deferred" if status == "pending" and retried else status
        page.locator("#table-state").select_option(state)
        rows = page.locator("#table tbody tr")
        expect(rows).to_have_count(number)
        expect(rows.first).to_contain_text(state.replace("_", " "))


def hang(run_id: str, **where: str) -> dict[str, Any]:
    return {"point": "chunk.started", "action": "hang", "where": {"run_id": run_id, **where}, "seconds": 300}


def fail(run_id: str, chunk_id: str) -> dict[str, Any]:
    return {"point": "chunk.started", "action": "permanent", "where": {"run_id": run_id, "chunk_id": chunk_id}}


def test_chunks_of_each_status_are_listed(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    run_id = system.run_id_for("chunks")
    slow = [hang(run_id, chunk_id=f"chunk-{number:07d}") for number in range(10, 20)]
    system.set_faults([fail(run_id, "chunk-0000000"), *slow])
    assert submit_cube(console, tmp_path, "chunks", chunk_size=1) == run_id
    listed(console, page, run_id, "chunk", {"failed": 1, "completed": 9, "in_progress": 2, "pending": 8})
    system.set_faults([])
    assert system.wait(run_id).status == "failed"


def test_tasks_of_each_status_are_listed(page: Page, console: Console, site: tuple[str, Site]) -> None:
    url, _ = site
    ended = ("page/1", "page/2", "status/404", "busy/9/600/1")
    for paths, expected in (
        (("slow/60/1",), {"in_progress": 1}),
        (ended, {"completed": 2, "failed": 1, "pending": 1}),
    ):
        run_id = submit_urls(console, "statuses", urls=[f"{url}/{path}" for path in paths])
        listed(console, page, run_id, "task", expected, retried=True)
        if "pending" in expected:
            assert "Being retried" in console.system.cli("tasks", run_id)
        with console.api() as api:
            api.post(f"/runs/{run_id}/cancel").raise_for_status()


def test_messages_that_wait_are_in_flight_or_are_dead_are_counted(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    run_id = system.run_id_for("messages")
    system.set_faults([fail(run_id, "chunk-0000000"), hang(run_id)])
    with paused(console, "dlq-consumer"):
        assert submit_cube(console, tmp_path, "messages", chunk_size=1) == run_id
        expected = {"visible": 17, "in_flight": 2, "dead_letters": 1}

        def queue(queues: list[dict[str, Any]]) -> dict[str, int]:
            (found,) = (each for each in queues if each["name"].removeprefix("prismline-local-") == "chunks")
            return {name: found[name] for name in expected}

        wait_for(lambda: queue(api_view(console, "/system")["queues"]) == expected, f"the messages {expected}")
        assert queue(json.loads(system.cli("status", "--json"))["queues"]) == expected
        page.goto("/console/system")
        page.locator("#queue").select_option("chunks")
        for text in ("17 waiting", "2 in flight", "1 dead letters"):
            expect(page.locator("#depth-now")).to_contain_text(text)
    system.set_faults([])
    assert system.wait(run_id).status == "failed"


def test_dead_letters_are_archived_recovered_or_fail_again_and_the_run_says_that_it_goes_on(
    page: Page, console: Console, tmp_path: Path
) -> None:
    system = console.system
    saved, lost = "chunk-0000000", "chunk-0000005"
    key = f"cubes/{write_cube(tmp_path / 'letters.fits').name}"
    system.connection.s3.upload_file(str(tmp_path / "letters.fits"), system.connection.bucket, key)
    system.set_faults([{"point": "chunk.started", "action": "permanent"}])
    with console.api() as api:
        body = {"workload": "spectra", "name": "letters", "cube_key": key, "chunk_size": 5}
        run_id = str(api.post("/jobs", json=body).raise_for_status().json()["run"]["run_id"])
    assert system.wait(run_id).status == "failed"
    chunks = [f"chunk-{number:07d}" for number in range(0, 20, 5)]
    letters_are(console, page, run_id, {(chunk, False) for chunk in chunks})
    system.set_faults([hang(run_id, chunk_id=saved), fail(run_id, lost)])
    with console.api() as api:
        accepted = api.post("/dead-letters/recover", json={"run_id": run_id}).raise_for_status().json()
    recovery = accepted["status_url"].rpartition("/")[2]
    recovery_is(console, page, run_id, recovery, "running", n_sent=4, n_recovered=2)
    shown(page, console, run_id, "continued", "The run had failed and is being retried: 1 of its chunks is not")
    system.set_faults([fail(run_id, lost)])
    recovery_is(console, page, run_id, recovery, "completed", n_sent=4, n_recovered=3, n_failed=1)
    system.set_faults([])
    letters_are(console, page, run_id, {(lost, True), (lost, False)})
    with console.api() as api:
        (event,) = (
            each
            for each in api.get(f"/runs/{run_id}/activity").raise_for_status().json()["events"]
            if each["name"] == "recover_requested"
        )
    page.goto(f"/console/runs/{run_id}")
    expect(page.locator("#activity-body")).to_contain_text(f"a recovery was requested by the key {event['by']}")
    said = json.loads(system.cli("jobs", "activity", run_id, "--json"))
    assert event in said["events"]


def letters_are(console: Console, page: Page, run_id: str, expected: set[tuple[str, bool]]) -> None:
    """The archive has letters of these chunks, and says of each whether a recovery of it failed."""

    def archived() -> bool:
        items = api_view(console, f"/dead-letters?run_id={run_id}")["items"]
        return {(item["chunk_id"], item["recovery_failed"]) for item in items} == expected

    wait_for(archived, f"the dead letters {expected}")
    printed = " ".join(console.system.cli("deadletters", "ls", "--run", run_id, "--json").split())
    assert {(row["chunk_id"], row["recovery_failed"]) for row in json.loads(printed)} == expected
    page.goto(f"/console/dead-letters?run_id={run_id}")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(len(expected))
    expect(rows.filter(has_text="A recovery of it failed.")).to_have_count(sum(failed for _, failed in expected))


def recovery_is(console: Console, page: Page, run_id: str, recovery: str, status: str, **counts: int) -> None:
    """The recovery has this status and these counts, in all three places."""

    def reached() -> bool:
        found = api_view(console, f"/recoveries/{recovery}")
        return found["status"] == status and {name: found[name] for name in counts} == counts

    wait_for(reached, f"a recovery that is {status} with {counts}")
    said = json.loads(console.system.cli("jobs", "recovery", recovery, "--json"))
    assert said["status"] == status
    assert {name: said[name] for name in counts} == counts
    page.goto(f"/console/runs/{run_id}")
    row = page.get_by_role("table", name="Recoveries, exports and webhooks").locator("tbody tr")
    expect(row).to_contain_text(status)
    expect(row).to_contain_text(f"{counts['n_sent']} sent")


def test_an_export_is_pending_running_and_completed_or_failed(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    runs = [submit_cube(console, tmp_path, key) for key in ("exported", "not-exported")]
    for run_id in runs:
        assert system.wait(run_id).status == "completed"
    exported, lost = runs
    hangs = {"point": "export.part_uploaded", "action": "hang", "where": {"run_id": exported}, "seconds": 300}
    system.set_faults([hangs, *rules("export.part_uploaded", lost, "permanent")])
    with paused(console, "exporter"):
        export = ask_for_export(console, exported)
        export_is(console, page, exported, export, "pending", "")
    export_is(console, page, exported, export, "running", "0 of 2 entries")
    system.set_faults(rules("export.part_uploaded", lost, "permanent"))
    export_is(console, page, exported, export, "completed", "download, ")
    export_is(console, page, lost, ask_for_export(console, lost), "failed", "Injected permanent fault")
    system.set_faults([])


def ask_for_export(console: Console, run_id: str) -> str:
    with console.api() as api:
        return str(api.post(f"/runs/{run_id}/export").raise_for_status().json()["export_id"])


def export_is(console: Console, page: Page, run_id: str, export: str, status: str, text: str) -> None:
    """The export has this status in all three places, and the console shows it with this text."""
    wait_for(lambda: api_view(console, f"/runs/{run_id}/exports/{export}")["status"] == status, f"a {status} export")
    assert json.loads(console.system.cli("jobs", "exported", run_id, export, "--json"))["status"] == status
    work_is(page, run_id, "Export", status, text)


def work_is(page: Page, run_id: str, what: str, status: str, text: str) -> None:
    """The console shows what is done for a run, with this status and text."""
    page.goto(f"/console/runs/{run_id}")
    row = page.get_by_role("table", name="Recoveries, exports and webhooks").locator("tbody tr").filter(has_text=what)
    expect(row).to_contain_text(status)
    expect(row).to_contain_text(text)


def test_a_webhook_is_pending_and_then_delivered_or_failed(page: Page, console: Console) -> None:
    for answer, status, text in (
        (200, "delivered", "the target answered 200"),
        (410, "failed", "The target answered 410"),
    ):
        answers = [503]

        async def target(_scope: Scope, _receive: Receive, send: Send, answers: list[int] = answers) -> None:
            await Response(status_code=answers[-1])(_scope, _receive, send)

        with serving(target) as url:
            with console.api() as api:
                job = {"workload": "urls", "name": status, "open": True, "webhook": {"url": url}}
                made = api.post("/jobs", json=job).raise_for_status().json()
                run_id = str(made["run"]["run_id"])
                api.post(f"/runs/{run_id}/cancel").raise_for_status()
            webhook_is(console, page, run_id, "pending", "The target answered 503")
            answers.append(answer)
            webhook_is(console, page, run_id, status, text)


def webhook_is(console: Console, page: Page, run_id: str, status: str, text: str) -> None:
    """The post of the end of a run has this status in all three places, and the console shows it with this text."""

    def reached() -> bool:
        return [each["status"] for each in api_view(console, f"/runs/{run_id}/activity")["webhooks"]] == [status]

    wait_for(reached, f"a {status} post")
    said = json.loads(console.system.cli("jobs", "activity", run_id, "--json"))
    assert [each["status"] for each in said["webhooks"]] == [status]
    work_is(page, run_id, "Webhook", status, text)
