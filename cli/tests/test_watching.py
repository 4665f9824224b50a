"""`submit --wait` prints the run's id first. If the watching ends early, it prints how to follow the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_world import CliWorld

from prismline_cli import watching
from prismline_cli.runs import RunView
from prismline_client import ApiError, Run
from tests.cubes import write_cube

#: A run that no service has opened.
ACCEPTED = {
    "job_id": "j",
    "name": "s",
    "workload": "spectra",
    "status": "pending",
    "created_at": "2026-03-10T12:00:00.000Z",
    "unit": "chunk",
    "ended": False,
}

pytestmark = pytest.mark.emulator


@pytest.fixture
def cube(tmp_path: Path) -> str:
    return str(write_cube(tmp_path / "cube.fits", ny=1, nx=1))


def interrupted_by(error: BaseException, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the second poll of a run raise `error`."""

    def look(_connection: Any, run_id: str) -> RunView:
        seen.append(run_id)
        if len(seen) > 1:
            raise error
        return RunView(Run.model_validate(ACCEPTED | {"run_id": run_id}))

    monkeypatch.setattr(watching, "load_run", look)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "continues"),
        (ApiError("Cannot reach the API: it was killed."), 3, "Lost the connection"),
    ],
    ids=["ctrl-C", "the api was killed"],
)
def test_an_interrupted_watch_prints_the_id_and_how_to_follow_the_run(
    world: CliWorld, cube: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    seen: list[str] = []
    interrupted_by(error, seen, monkeypatch)
    result = world.run("submit", cube, "--survey", "s", "--wait", "--json", expect=code)
    run_id = seen[0]
    lines = result.stderr.splitlines()
    assert lines[0] == f"Submitted run {run_id}.", "before anything else"
    assert message in lines[-1]
    assert f"prismline watch {run_id}" in lines[-1]
    document = json.loads(result.stdout)
    assert (document["run_id"], document["exit_code"]) == (run_id, code)


def test_a_run_that_no_service_begins_is_named_too(world: CliWorld, cube: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismline_cli.commands.submit.PICKED_UP_SECONDS", 0.0)
    document = world.json("submit", cube, "--survey", "s", "--wait", expect=3)
    assert f"prismline watch {document['run_id']}" in document["error"]


def test_the_words_fit_the_workload(world: CliWorld) -> None:
    world.add_run("run-1", status="completed", workload="captions", jobs_total=1, jobs_completed=1, n_spectra=3)
    shown = world.run("run", "run-1").stdout
    assert "n_windows" in shown
    assert not any(word in shown for word in ("spectra", "n_blank", "n_refit_failed"))
    fields = {"workload": "captions", "n_items": 30, "counts": {"total": 10, "completed": 1, "failed": 0}}
    fields |= {"run_id": "run-2", "pace": {"per_second": 0.2, "remaining_seconds": 45.0}}
    run = RunView(Run.model_validate(ACCEPTED | fields))
    assert watching.Clock().detail(run) == "36 windows/min, 45 s left"


def test_a_run_with_one_long_chunk_shows_progress(world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watching, "LOOK_INTO_CHUNKS_SECONDS", 0.0)
    run = {"jobs_total": 1, "n_spectra": 9000, "n_chunks": 1}
    world.add_run("run-1", status="running", **run)
    reports = iter([3000, 6000])
    load = watching.load_run

    def go_on(client: Any, run_id: str) -> RunView | None:
        n_done = next(reports, None)
        if n_done is None:
            world.add_run("run-1", status="completed", jobs_completed=1, **run)
        world.add_chunk("run-1", 0, status="IN_PROGRESS", n_items=9000, n_done=n_done or 0)
        return load(client, run_id)

    monkeypatch.setattr(watching, "load_run", go_on)
    lines = world.run("watch", "run-1").stderr.splitlines()
    assert lines[0].startswith("running: 0/1 chunks, 3,000 of 9,000 spectra")
    assert lines[1].startswith("running: 0/1 chunks, 6,000 of 9,000 spectra, ")
    assert lines[2].startswith("completed: 1/1 chunks, ")
