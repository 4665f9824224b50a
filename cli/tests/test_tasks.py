"""Commands on a run of tasks show its counts, also those in shards, its tasks, and why some of them failed."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_world import CliWorld

from prismline_cli import watching
from prismline_cli.runs import RunView
from prismline_contracts.base import now, timestamp
from prismline_contracts.finalization import Finalization
from prismline_contracts.tasks import TaskValue

pytestmark = pytest.mark.emulator

RUN = "5a1e0000-0000-4000-8000-000000000000"


@pytest.fixture
def tasks(world: CliWorld) -> Any:
    """A world with a run in progress that has four tasks in two shards."""
    fields = {
        "unit": "task",
        "workload": "urls",
        "shard_count": 2,
        "jobs_total": 4,
        "latched_at": "2026-03-10T12:00:00Z",
    }
    world.add_run(RUN, status="running", n_rejected=3, rejects_key="jobs/j/rejects.jsonl", **fields)
    result = {"key": "results/r/t", "http_status": 200, "length": 51, "sha256": "0" * 64, "final_url": "https://e.org"}
    for index in range(2):
        world.add_task(RUN, index, shard_count=2, result=result)
    world.add_task(RUN, 2, shard_count=2, status="FAILED", error="[404] Not Found", attempts=1)
    world.add_task(RUN, 3, shard_count=2, status="PENDING", last_error="503", attempts=2)
    world.add_shard(RUN, 0, total=2, completed=1, failed=1)
    world.add_shard(RUN, 1, total=2, completed=1)
    return world


def test_a_run_shows_the_counts_of_its_shards(tasks: Any) -> None:
    document = tasks.json("run", RUN, expect=1)
    counts = [document[name] for name in ("unit", "chunks_total", "chunks_completed", "chunks_failed", "n_rejected")]
    assert counts == ["task", 4, 2, 1, 3]
    assert any("3 lines of the list are not valid tasks." in warning for warning in document["warnings"])
    shown = tasks.run("run", RUN, expect=1).stdout
    assert "tasks_completed" in shown
    assert "chunk" not in shown


def test_a_run_whose_list_is_still_being_read_is_running_once_a_task_has_ended(world: CliWorld) -> None:
    world.add_run("reading", status="pending", unit="task", jobs_completed=596)
    assert world.json("run", "reading")["status"] == "running"
    assert world.json("runs")[0]["status"] == "running"


def test_a_run_says_that_its_tasks_find_no_slot_as_long_as_it_is_true(world: CliWorld) -> None:
    waiting = "No slot of the run is free: it has 2."
    for run_id, minutes in (("now", 0), ("long-ago", 10)):
        moment = timestamp(now() - timedelta(minutes=minutes))
        world.add_run(run_id, status="running", unit="task", waiting_for=waiting, waiting_at=moment)
    assert world.json("run", "now")["waiting_for"] == waiting
    assert "No slot of the run is free" in world.run("run", "now").stdout
    assert world.json("run", "long-ago")["waiting_for"] is None


def test_a_run_shows_between_which_values_its_work_costs(world: CliWorld) -> None:
    world.add_run("run-1", jobs_total=1)
    assert world.json("run", "run-1")["usd"] is None, "a release that counted no costs has ended its chunks"
    assert "usd" not in world.run("run", "run-1").stdout
    world.add_run("run-2", jobs_total=1, worked_ms=60_000, n_attempts=1, n_bytes=1_000)
    usd = world.json("run", "run-2")["usd"]
    assert 0.0017 < usd["least"] < usd["most"] < 0.0021
    assert "0.0017 to 0.0019 on AWS (prices: us-east-1, 2025)" in " ".join(world.run("run", "run-2").stdout.split())


def test_a_list_of_runs_says_which_count_tasks(tasks: Any) -> None:
    assert "3/4 tasks" in tasks.run("runs").stdout


def test_tasks_are_listed_by_status(tasks: Any) -> None:
    assert sorted(task["index"] for task in tasks.json("tasks", RUN)) == [0, 1, 2, 3]
    (failed,) = tasks.json("tasks", RUN, "--status", "failed")
    assert (failed["source"], failed["error"]) == ("https://example.org/2", "[404] Not Found")
    assert len(tasks.json("tasks", RUN, "--limit", "2")) == 2
    assert "[404] Not Found" in tasks.run("tasks", RUN).stdout


def test_tasks_are_found_by_the_beginning_of_their_url(tasks: Any) -> None:
    (found,) = tasks.json("tasks", RUN, "--url", "https://example.org/2")
    assert found["index"] == 2
    assert tasks.json("tasks", RUN, "--url", "https://example.org/2", "--status", "pending") == []
    assert len(tasks.json("tasks", RUN, "--url", "https://example.org/")) == 4


def test_failures_are_those_of_tasks(tasks: Any) -> None:
    assert "https://example.org/2 (1 attempt): [404] Not Found" in tasks.run("failures", RUN, expect=1).stdout
    assert [task["index"] for task in tasks.json("failures", RUN, expect=1)["tasks"]] == [2]


def test_a_command_for_chunks_names_the_command_for_a_run_of_tasks(tasks: Any) -> None:
    assert f"prismline tasks {RUN}" in tasks.run("chunks", RUN, expect=2).stderr


def test_stuck_says_what_a_run_of_tasks_waits_for(tasks: Any) -> None:
    assert "Nothing waits." in tasks.run("stuck", RUN).stdout
    ledger = tasks.connection.ledger
    ledger.record_waiting(ledger.run(RUN), "The workload seeing:measure cannot be used.")
    assert "The tasks wait: The workload seeing:measure" in tasks.run("stuck", RUN, expect=1).stdout
    assert tasks.json("stuck", RUN, expect=1) == []


def test_the_command_for_tasks_names_the_command_for_a_run_of_chunks(world: CliWorld) -> None:
    world.add_run(RUN)
    assert f"prismline chunks {RUN}" in world.run("tasks", RUN, expect=2).stderr


def test_watching_shows_the_rate_and_the_time_left_that_the_api_has(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"unit": "task", "jobs_total": 4, "latched_at": timestamp(now() - timedelta(seconds=100))}
    tasks.add_run(RUN, status="running", jobs_completed=2, **run)
    load = watching.load_run

    def ended_at_the_second_look(client: Any, run_id: str) -> RunView | None:
        view = load(client, run_id)
        tasks.add_run(RUN, status="completed", jobs_completed=4, drained_at=timestamp(), **run)
        return view

    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watching, "load_run", ended_at_the_second_look)
    first, last = tasks.run("watch", RUN).stderr.splitlines()
    assert re.fullmatch(r"running: 2/4 tasks, 1\.\d tasks/min, 1\d\d s left", first)
    assert last.startswith("completed: 4/4 tasks")


def test_an_ended_run_that_nobody_watched_has_no_rate(tasks: Any) -> None:
    tasks.add_run(RUN, status="completed", unit="task", jobs_total=4, jobs_completed=4, drained_at=timestamp())
    assert tasks.run("watch", RUN).stderr.splitlines() == ["completed: 4/4 tasks"]


@pytest.mark.parametrize(
    ("finalization", "shown", "code"),
    [
        (
            Finalization(status="COMPLETED", drains=1, attempts=1, value=TaskValue(text='{"n":3}', length=7)),
            '{"n": 3}',
            0,
        ),
        (Finalization(status="FAILED", drains=1, attempts=3, error="a bug"), "failed: a bug", 1),
    ],
)
def test_a_run_shows_what_became_of_its_finalization(
    world: CliWorld, finalization: Finalization, shown: str, code: int
) -> None:
    moment = "2026-03-10T12:00:00Z"
    fields = {"unit": "task", "workload": "measure", "code": "a" * 64, "jobs_total": 1, "jobs_completed": 1}
    ended = {"latched_at": moment, "drained_at": moment, "drains": 1, "finalization": finalization.as_json()}
    world.add_run(RUN, status="completed", **fields, **ended)
    assert shown in world.run("run", RUN, expect=code).stdout
    document = world.json("run", RUN, expect=code)["finalization"]
    assert (document["status"], document["error"]) == (finalization.status.lower(), finalization.error)


def test_the_rows_of_a_function_are_written_with_short_and_long_values(world: CliWorld, tmp_path: Path) -> None:
    world.add_run(RUN, unit="task", workload="seeing:measure", code="0" * 64, jobs_total=3, jobs_completed=2)
    key = f"results/{RUN}/1"
    world.connection.s3.put_object(Bucket=world.connection.bucket, Key=key, Body=b'"long"')
    world.add_task(RUN, 1, source='{"n":1}', value={"key": key, "length": 6}, attempts=1, duration_ms=5)
    world.add_task(RUN, 0, source='{"n":0}', value={"text": "7", "length": 1}, attempts=1)
    world.add_task(RUN, 2, source='{"n":2}', status="FAILED", error="[e] bug", error_type="ValueError", attempts=3)
    (file,) = world.json("results", RUN, "--to", str(tmp_path / "out"))["files"]
    rows = pq.read_table(file).to_pylist()
    assert [(row["index"], row["item"], row["status"], row["value"]) for row in rows] == [
        (0, '{"n":0}', "completed", "7"),
        (1, '{"n":1}', "completed", '"long"'),
        (2, '{"n":2}', "failed", None),
    ]
    assert (rows[2]["error"], rows[2]["error_type"], rows[2]["attempts"]) == ("[e] bug", "ValueError", 3)
    world.connection.s3.delete_object(Bucket=world.connection.bucket, Key=key)
    refused = world.run("results", RUN, "--to", str(tmp_path / "out"), expect=2).stderr
    assert "its object is not in the bucket" in refused


def test_the_outputs_of_chunks_are_downloaded_under_their_keys(world: CliWorld, tmp_path: Path) -> None:
    world.add_run("words", workload="words", jobs_total=2, jobs_completed=1)
    assert "nothing to download" in world.run("results", "words", "--to", str(tmp_path), expect=2).stderr
    world.connection.s3.put_object(Bucket=world.connection.bucket, Key="words/a.txt", Body=b"words")
    world.add_chunk("words", 0, output_key="words/a.txt")
    world.add_chunk("words", 2, status="FAILED")
    world.run("results", "words", "--to", str(tmp_path))
    assert (tmp_path / "words/a.txt").read_text() == "words"


def test_the_windows_of_a_session_are_those_of_its_latest_runs(world: CliWorld) -> None:
    for run_id, minute in (("old", 1), ("new", 2)):
        moment = f"2026-03-10T12:0{minute}:00.000Z"
        world.add_run(
            run_id, workload="captions", created_at=moment, state={"workload": "captions", "created_at": moment}
        )
    world.add_run("other", workload="captions", survey="s-2", state={"workload": "captions", "survey": "s-2"})
    world.add_chunk("old", 0, summary="old")
    world.add_chunk("old", 1, summary="kept")
    world.add_chunk("new", 0, summary="new")
    world.add_chunk("other", 5, summary="of another session")
    assert [(each["window_index"], each["caption"]) for each in world.json("segments", "--session", "s")] == [
        (0, "new"),
        (1, "kept"),
    ]
