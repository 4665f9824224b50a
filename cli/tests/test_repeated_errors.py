"""What `run`, `runs` and `watch` print about a run whose message raises again and again."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import CliWorld

from prismline_cli import watching
from prismline_cli.runs import RunView
from prismline_contracts.commands import ChunkProcess, RunSplit
from prismline_runtime import Work

pytestmark = pytest.mark.emulator

RETRIED = "Being retried after an unexpected error: KeyError: 'CTYPE3' (splitter, run.split, 3 times from "


def split_raises(world: CliWorld, run_id: str, times: int = 3) -> Work:
    """Note that the split of the run raised so often. Returns the work that raised."""
    work = Work(run_id, RunSplit.TYPE)
    for _ in range(times):
        world.connection.ledger.note_error(work, service="splitter", error="KeyError: 'CTYPE3'")
    return work


def test_a_run_shows_the_error_as_a_line_and_in_json_until_the_message_succeeds(world: CliWorld) -> None:
    world.add_run("run-1", status="pending")
    work = split_raises(world, "run-1")
    shown = world.run("run", "run-1")
    assert RETRIED in shown.stderr
    document = world.json("run", "run-1")
    assert (document["status"], document["error"]) == ("pending", None)
    assert (document["repeated_error"]["error"], document["repeated_error"]["count"]) == ("KeyError: 'CTYPE3'", 3)
    assert [run["repeated_error"]["service"] for run in world.json("runs")] == ["splitter"]
    world.connection.ledger.forget_error(work)
    assert "Being retried" not in world.run("run", "run-1").stderr
    assert world.json("run", "run-1")["repeated_error"] is None


def test_a_run_that_no_service_has_opened_is_shown_with_its_error(world: CliWorld) -> None:
    split_raises(world, "run-1", times=2)
    world.run("run", "run-1", expect=2)
    split_raises(world, "run-1", times=1)
    assert RETRIED in world.run("run", "run-1").stderr
    assert f"has no chunks: {RETRIED}" in world.run("chunks", "run-1", expect=2).stderr


def test_watch_says_once_that_a_chunk_is_being_retried_and_after_which_error(
    world: CliWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)
    run = {"jobs_total": 1, "n_spectra": 9000, "n_chunks": 1}
    world.add_run("run-1", status="running", **run)
    work = Work("run-1", ChunkProcess.TYPE, "chunk-0000000")
    load, polls = watching.load_run, iter(range(1, 8))

    def go_on(client: Any, run_id: str) -> RunView | None:
        if next(polls) < 6:
            world.connection.ledger.note_error(work, service="worker", error="KeyError: 'noise'")
        else:
            world.connection.ledger.forget_error(work)
            world.add_run("run-1", status="completed", jobs_completed=1, **run)
        return load(client, run_id)

    monkeypatch.setattr(watching, "load_run", go_on)
    lines = world.run("watch", "run-1").stderr.splitlines()
    retried = [line for line in lines if "Being retried" in line]
    assert len(retried) == 1
    assert "KeyError: 'noise' (worker, chunk.process of chunk-0000000, 3 times from " in retried[0]
    assert lines[-1].startswith("completed: 1/1 chunks")
