"""Each state of docs/reference/states.md in a running system, as the API, the command and the console show it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from prismline_localstack.api_keys import read_api_key
from prismline_localstack.standins.site import Site
from tests.console.conftest import Console
from tests.console.stage import BAD_CHUNKS, FAILED_CHUNKS, Scene
from tests.console.states import (
    api_view,
    condition,
    condition_names,
    console_knows,
    paused,
    rules,
    shown,
    submit_cube,
    submit_urls,
)
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_an_accepted_run_is_shown_while_the_status_service_is_paused(
    page: Page, console: Console, tmp_path: Path
) -> None:
    with paused(console, "status"):
        by_manifest = submit_cube(console, tmp_path, "accepted")
        by_api = submit_urls(console, "accepted-by-api")
        wait_for(lambda: console_knows(console, by_manifest), "the manifest to be read")
        created_at = api_view(console, f"/runs/{by_manifest}")["created_at"]
        for run_id in (by_manifest, by_api):
            shown(page, console, run_id, "accepted", "not announced yet: the status service has not recorded the run.")
        page.goto("/console/runs")
        expect(page.locator("#list tbody tr").filter(has_text=by_api[:8])).to_contain_text("pending")
    assert console.system.wait(by_manifest).status == "completed"
    ended = api_view(console, f"/runs/{by_manifest}")
    assert ended["conditions"] == []
    assert abs(seconds(ended["created_at"]) - seconds(created_at)) < 10, "the time of the submission, not of the pause"


@pytest.mark.parametrize("part", ["", "/cube"])
def test_a_page_that_was_opened_before_its_run_is_known_looks_again_and_opens_it(
    page: Page, console: Console, tmp_path: Path, part: str
) -> None:
    key = f"early{part}"
    address = f"/console/runs/{console.system.run_id_for(key)}{part}"
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="Not found", level=1)).to_be_visible()
    expect(page.locator("#looking")).to_contain_text("This page looks again every 2 s")
    submit_cube(console, tmp_path, key, survey="early")
    expect(page.locator("#name")).to_have_text("early")
    assert page.url.endswith(address)


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_a_run_that_is_being_split_says_so(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    run_id = system.run_id_for("splitting")
    system.set_faults(rules("split.run_opened", run_id))
    assert submit_cube(console, tmp_path, "splitting") == run_id
    shown(page, console, run_id, "splitting", "Its source is being divided into chunks. Their number is not final.")
    system.set_faults([])
    assert system.wait(run_id).status == "completed"


def test_a_chunk_that_is_retried_says_which_try_it_is_and_when_the_next_one_begins(
    page: Page, console: Console, tmp_path: Path
) -> None:
    system = console.system
    run_id = system.run_id_for("retried")
    system.set_faults(rules("chunk.started", run_id))
    assert submit_cube(console, tmp_path, "retried", chunk_size=20) == run_id
    expected = "Being retried after an error ("
    shown(page, console, run_id, "retried", expected)
    assert expected in system.cli("failures", run_id)
    assert expected in system.cli("stuck", run_id, stream="stderr")
    assert "Being retried" in system.cli("chunks", run_id)

    def retry() -> dict[str, Any] | None:
        found: dict[str, Any] = api_view(console, f"/runs/{run_id}/cells/0")
        return found.get("retry")

    found = wait_for(retry, "the chunk to wait for its next attempt")
    assert found["at_least"] == 5
    assert "Injected transient fault at chunk.started." in found["sentence"]
    page.goto(f"/console/runs/{run_id}?cell=0")
    expect(page.locator("#retrying")).to_contain_text("This is not final.")
    expect(page.locator("#legend")).to_contain_text("deferred 1")
    wait_for(lambda: api_view(console, f"/runs/{run_id}/cells/0")["attempts"] > 2, "more attempts")
    page.reload()
    panel = page.locator("#detail-body")
    expect(panel.get_by_role("img", name=re.compile(r"^\d+ attempts of [12] workers? from "))).to_be_visible()
    expect(panel.locator(".lanes rect.state-failed").nth(1)).to_be_attached()
    first = panel.get_by_role("table", name="Attempts").locator("tbody tr").first
    expect(first).to_contain_text(re.compile("worker-[12]"))
    system.set_faults([])
    assert system.wait(run_id).status == "completed"


def test_a_list_that_is_being_read_and_an_open_job_say_so(page: Page, console: Console) -> None:
    with console.api() as api:
        job = api.post("/jobs", json={"workload": "urls", "name": "opened", "open": True}).raise_for_status().json()
    open_run = job["run"]["run_id"]
    shown(page, console, open_run, "open", "Its job is open: it takes tasks until it is closed.")
    system = console.system
    run_id = system.run_id_for("ingested")
    system.set_faults(rules("ingest.tasks_written", run_id))
    manifest = {"workload": "urls", "survey": "ingested", "urls": ["https://prismline.invalid/"] * 3}
    system.put_manifest(as_json(manifest | {"idempotency_key": "ingested"}))
    wait_for(lambda: console_knows(console, run_id), "the manifest to be read")
    shown(page, console, run_id, "ingesting", "Its list is being read: at least ")
    system.set_faults([])
    wait_for(lambda: system.item(run_id).latched_at, "the list to be read")
    with console.api() as api:
        for each in (run_id, open_run):
            api.post(f"/runs/{each}/cancel").raise_for_status()


def as_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def test_a_run_whose_split_raises_again_and_again_says_so_until_the_split_succeeds(
    page: Page, console: Console, tmp_path: Path
) -> None:
    system = console.system
    run_id = system.run_id_for("raising")
    system.set_faults(rules("split.run_opened", run_id, "unexpected"))
    assert submit_cube(console, tmp_path, "raising") == run_id
    expected = (
        "Being retried after an unexpected error: RuntimeError: Injected unexpected fault at split.run_opened."
        " (splitter, run.split, "
    )
    shown(page, console, run_id, "repeated_error", expected)
    assert expected in system.cli("failures", run_id)
    expect(page.locator(".facts")).not_to_contain_text("failed")
    system.set_faults([])
    expect(page.locator(".facts")).to_contain_text("completed")
    expect(page.locator("#condition-repeated-error")).to_have_count(0)


def test_a_bug_in_a_worker_is_shown_with_its_traceback(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    run_id = system.run_id_for("bug")
    system.set_faults(rules("chunk.started", run_id, "unexpected"))
    assert submit_cube(console, tmp_path, "bug", chunk_size=20) == run_id
    error = "RuntimeError: Injected unexpected fault at chunk.started."
    shown(page, console, run_id, "repeated_error", f"Being retried after an unexpected error: {error}")
    assert error in system.cli("failures", run_id)
    said = system.cli("logs", "--run", run_id, "--level", "warning")
    assert "Traceback (most recent call last)" in said
    assert error in said
    page.goto(f"/console/runs/{run_id}?cell=0")
    logs = page.locator("#logs")
    expect(logs).to_be_visible()
    if logs.get_attribute("open") is None:
        logs.locator("summary").click()
    expect(logs).to_contain_text("Traceback (most recent call last)")
    expect(logs).to_contain_text(error)
    system.set_faults([])
    assert system.wait(run_id).status == "completed"


def test_a_run_whose_queue_is_purged_does_not_say_that_its_messages_wait_and_is_completed(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder, sweeps = tmp_path_factory.mktemp("purged"), {"SWEEP_IDLE_SECONDS": "2", "SWEEP_LEASE_SECONDS": "8"}
    with small_system(folder, CHUNK_SERVICES, **sweeps) as console:
        system = console.system
        with paused(console, "worker"):
            first = submit_cube(console, tmp_path, "first", chunk_size=1)
            wait_for(lambda: system.depth("chunks") >= 18, "the messages of the first run")
            second = submit_cube(console, tmp_path, "second", chunk_size=20)
            condition(console, second, "queued", "Waiting behind other runs: at least ")
            queue = f"prismline-{system.connection.environment}-chunks"
            url = system.sqs.get_queue_url(QueueName=queue)["QueueUrl"]

            def no_longer_waits() -> bool:
                system.sqs.purge_queue(QueueUrl=url)  # again: a request that was under way may have sent messages
                return "queued" not in condition_names(console, second)

            with paused(console, "dlq-consumer"):  # its sweeper sends lost messages again, and then they wait again
                wait_for(no_longer_waits, "the run to wait no longer")
            assert api_view(console, f"/runs/{second}")["status"] != "completed"
        for run_id in (first, second):
            assert system.wait(run_id).status == "completed"
        page = browser.new_page(base_url=console.url)
        page.goto(f"/console/runs/{second}?cell=0")
        expect(page.locator("#detail-body")).to_contain_text("Sent again")
        page.close()


def test_a_list_of_60_000_urls_that_is_half_read_says_that_its_numbers_are_not_final(
    page: Page, console: Console
) -> None:
    system = console.system
    run_id = system.run_id_for("half")
    system.set_faults([{"point": "ingest.checkpointed", "action": "hang", "where": {"run_id": run_id}, "seconds": 300}])
    urls = system.put_manifest(b"https://prismline.invalid/\n" * 60_000, "sources/half.txt")
    manifest = {"workload": "urls", "survey": "half", "list": {"key": urls, "format": "text"}}
    system.put_manifest(as_json(manifest | {"idempotency_key": "half"}))
    wait_for(lambda: console_knows(console, run_id), "the manifest to be read")
    shown(page, console, run_id, "ingesting", "Its list is being read: at least ")
    found = wait_for(
        lambda: re.search(r"at least ([1-9][\d,]*)", condition(console, run_id, "ingesting")), "the first tasks"
    )
    assert int(found[1].replace(",", "")) < 60_000
    assert "total" not in api_view(console, f"/runs/{run_id}")["counts"]
    with console.api() as api:
        api.post(f"/runs/{run_id}/cancel").raise_for_status()
    system.set_faults([])


def test_a_run_whose_slots_are_taken_says_that_it_waits_for_one(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    run_id = system.run_id_for("limited")
    system.set_faults([{"point": "chunk.started", "action": "hang", "where": {"run_id": run_id}, "seconds": 300}])
    assert submit_cube(console, tmp_path, "limited", chunk_size=5, max_concurrency=1) == run_id
    shown(page, console, run_id, "waiting", "No slot of the run is free: it has 1.")
    system.set_faults([])
    assert system.wait(run_id).status == "completed"


def test_a_run_whose_queue_nothing_reads_says_so(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    with small_system(tmp_path_factory.mktemp("alone"), ("api", "splitter", "status")) as console:
        run_id = submit_cube(console, tmp_path, "unread")
        page = browser.new_page(base_url=console.url)
        shown(page, console, run_id, "no_consumer", "The queue chunks has no consumer: 2 messages wait in it.")
        page.close()


def test_a_run_whose_spectra_wait_for_the_slow_lane_says_so(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder, services = tmp_path_factory.mktemp("slow"), ("api", "splitter", "status", "worker")
    with small_system(folder, services, SPECTRUM_BUDGET_SECONDS="0.000001") as console:
        with paused(console, "slow-lane"):
            run_id = submit_cube(console, tmp_path, "slow")
            page = browser.new_page(base_url=console.url)
            shown(page, console, run_id, "refitting", "20 spectra ran out of time and wait to be fitted again.")
        assert console.system.wait(run_id).status == "completed"
        expect(page.locator("#condition-refitting")).to_have_count(0)
        page.close()


@contextmanager
def small_system(folder: Path, services: Sequence[str], **settings: str) -> Iterator[Console]:
    """Another system, with only these services."""
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch, services=services, **settings) as running:
        key = read_api_key(folder / "home" / "api-key")
        assert key is not None
        yield Console(running, os.environ["PRISMLINE_API_URL"], key, folder / "home")


def test_a_run_behind_the_messages_of_other_runs_says_so(page: Page, console: Console, tmp_path: Path) -> None:
    system = console.system
    with paused(console, "worker"):
        first = submit_cube(console, tmp_path, "before", chunk_size=1)
        wait_for(lambda: system.depth("chunks") >= 18, "the messages of the first run")
        second = submit_cube(console, tmp_path, "behind", chunk_size=20)
        shown(page, console, second, "queued", "Waiting behind other runs: at least ")
        assert "in the queue chunks." in condition(console, second, "queued")
    for run_id in (first, second):
        assert system.wait(run_id).status == "completed"


def test_a_run_is_cancelling_from_the_request_until_its_end_is_recorded(page: Page, console: Console) -> None:
    with console.api() as api:
        job = api.post("/jobs", json={"workload": "urls", "name": "stopped", "open": True}).raise_for_status().json()
        run_id = job["run"]["run_id"]
        urls = {"urls": ["https://prismline.invalid/"] * 3}
        api.post(f"/jobs/{job['job_id']}/tasks", json=urls, headers={"Idempotency-Key": "s"}).raise_for_status()
        with paused(console, "status"):
            api.post(f"/runs/{run_id}/cancel").raise_for_status()
            shown(page, console, run_id, "cancelling", "Being cancelled: nothing more is begun.")
    wait_for(lambda: "cancelling" not in condition_names(console, run_id), "the end of the run")
    assert api_view(console, f"/runs/{run_id}")["status"] == "cancelled"


def test_a_failed_run_shows_its_errors_in_groups_and_its_export(page: Page, console: Console, scene: Scene) -> None:
    run_id = scene.bad_run
    causes = api_view(console, f"/runs/{run_id}/causes")
    (cause,) = causes["items"]
    assert (cause["count"], causes["complete"]) == (len(FAILED_CHUNKS), True)
    said = console.system.cli("failures", run_id, expect=1)
    assert f"{len(FAILED_CHUNKS)}" in said
    assert "Injected permanent fault" in said
    page.goto(f"/console/runs/{run_id}")
    row = page.get_by_role("table", name="Failures by error").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Injected permanent fault")
    row.get_by_role("button", name=cause["example"]).click()
    expect(page.locator("#detail-body")).to_contain_text(cause["example"])
    with console.api() as api:
        export_id = api.post(f"/runs/{run_id}/export").raise_for_status().json()["export_id"]
    wait_for(
        lambda: api_view(console, f"/runs/{run_id}/exports/{export_id}")["status"] == "completed", "the export to end"
    )
    assert "completed" in console.system.cli("jobs", "exported", run_id, export_id)
    page.goto(f"/console/runs/{run_id}")
    progress = page.get_by_role("table", name="Recoveries, exports and webhooks")
    expect(progress).to_contain_text("Export")
    expect(progress).to_contain_text("completed")


def test_what_happened_to_a_run_is_on_its_page_with_the_keys_of_those_who_asked(
    page: Page, console: Console, site: tuple[str, Site]
) -> None:
    url, _ = site
    hook = {"url": f"{url}/post"}
    with console.api() as api:
        body = {"workload": "urls", "name": "hooked", "open": True, "webhook": hook, "params": {"timeout_s": 7.0}}
        job = api.post("/jobs", json=body).raise_for_status().json()
        run_id = job["run"]["run_id"]
        urls = {"urls": [f"{url}/slow/60/a", f"{url}/slow/60/b"]}
        api.post(f"/jobs/{job['job_id']}/tasks", json=urls, headers={"Idempotency-Key": "h"}).raise_for_status()
        api.post(f"/runs/{run_id}/cancel").raise_for_status()
    wait_for(lambda: api_view(console, f"/runs/{run_id}")["status"] == "cancelled", "the run to be cancelled")

    def posts() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api_view(console, f"/runs/{run_id}/activity")["webhooks"]
        return found

    (post,) = wait_for(posts, "the post of the end")
    assert post["event_type"].startswith("prismline.run.cancelled")
    activity = api_view(console, f"/runs/{run_id}/activity")
    names = [event["name"] for event in activity["events"]]
    assert names[0] == "submitted"
    assert {"cancel_requested", "stopped", "ended"} <= set(names)
    (by,) = {event["by"] for event in activity["events"] if event["name"] == "cancel_requested"}
    page.goto(f"/console/runs/{run_id}")
    happened = page.locator("#activity-body")
    expect(happened).to_contain_text(f"submitted by the key {by}")
    expect(happened).to_contain_text(f"its cancellation was requested by the key {by}")
    expect(happened).to_contain_text("Webhook")
    expect(page.locator("#given-body")).to_contain_text("timeout_s")
    expect(page.locator("#given-body")).to_contain_text("7")


def test_tasks_are_found_by_the_beginning_of_their_url_and_by_their_id(page: Page, console: Console) -> None:
    run_id = submit_urls(console, "found", urls=[f"https://prismline.invalid/{each}" for each in ("aa", "ab", "b")])
    tasks = api_view(console, f"/runs/{run_id}/tasks")["items"]
    wanted = next(task for task in tasks if task["url"].endswith("/b"))
    page.goto(f"/console/runs/{run_id}")
    field, rows = page.get_by_label("Beginning of the URL, or id"), page.locator("#table tbody tr")
    expect(rows).to_have_count(3)
    for text, number in (("https://prismline.invalid/a", 2), (wanted["task_id"], 1), ("https://none/", 0), ("", 3)):
        field.fill(text)
        page.get_by_role("button", name="Find", exact=True).click()
        expect(rows).to_have_count(number)
    field.fill(wanted["task_id"].rpartition(".")[2])
    page.get_by_role("button", name="Find", exact=True).click()
    expect(rows).to_have_count(1)
    rows.get_by_role("button").click()
    expect(page.locator("#detail-body")).to_contain_text("https://prismline.invalid/b")
    with console.api() as api:
        api.post(f"/runs/{run_id}/cancel").raise_for_status()


def test_the_table_beside_the_map_lists_the_cells_of_a_state(page: Page, scene: Scene) -> None:
    page.goto(f"/console/runs/{scene.bad_run}")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(BAD_CHUNKS)
    page.locator("#table-state").select_option("failed")
    expect(rows).to_have_count(len(FAILED_CHUNKS))
    rows.first.get_by_role("button").click()
    expect(page.locator("#detail-body")).to_contain_text(FAILED_CHUNKS[0])


def test_a_run_that_goes_on_shows_its_rate_and_the_time_that_is_left(
    page: Page, console: Console, tmp_path: Path
) -> None:
    system = console.system
    run_id = system.run_id_for("paced")
    last = {"run_id": run_id, "chunk_id": "chunk-0000010"}
    system.set_faults([{"point": "chunk.started", "action": "transient", "where": last, "times": None}])
    assert submit_cube(console, tmp_path, "paced") == run_id
    pace = wait_for(
        lambda: console_knows(console, run_id) and api_view(console, f"/runs/{run_id}").get("pace"), "a pace"
    )
    assert pace["per_second"] > 0
    assert pace["remaining_seconds"] > 0
    page.goto(f"/console/runs/{run_id}")
    expect(page.locator(".facts")).to_contain_text("Rate")
    expect(page.locator(".facts")).to_contain_text("Time left")
    with watching(run_id) as lines:
        head = wait_for(lambda: next((line for line in lines if "1/2 chunks" in line), None), "a line of the command")
        assert re.search(r"running: 1/2 chunks, [\d.]+ spectra/\w+, [\w ]+ left", head)
        wait_for(lambda: any("Being retried after an error (" in line for line in lines), "the line of the attempt")
        system.set_faults([])
        wait_for(lambda: any(line.startswith("completed: 2/2 chunks") for line in lines), "its last line")
    assert system.wait(run_id).status == "completed"


@contextmanager
def watching(run_id: str) -> Iterator[list[str]]:
    """`prismline watch`, and the lines that it has printed so far."""
    command = [str(Path(sys.executable).with_name("prismline")), "watch", run_id]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        reader = threading.Thread(
            target=lambda printed: [lines.append(line) for line in printed], args=(process.stderr,)
        )
        reader.start()
        try:
            yield lines
        finally:
            if process.poll() is None and not any(line.startswith("completed") for line in lines):
                process.terminate()
            reader.join()
