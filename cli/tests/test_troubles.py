"""What `chunks`, `failures`, `stuck` and `run` print about chunks without progress and about repaired chunks."""

from __future__ import annotations

import pytest
from cli_world import CliWorld

from prismline_contracts.base import timestamp


@pytest.mark.emulator
class TestCommands:
    def test_stuck_lists_reasons_and_is_exit_code_1(self, world: CliWorld) -> None:
        world.add_run("run", status="running")
        world.add_chunk("run", 0)
        looping = world.add_chunk("run", 2, status="IN_PROGRESS", attempts=3, started_at=timestamp())
        (found,) = world.json("stuck", "run", expect=1)
        assert (found["chunk_id"], "3 attempts" in found["why"]) == (looping, True)
        assert "3 attempts" in world.run("stuck", "run", expect=1).stdout

    def test_failures_show_how_long_and_how_often(self, world: CliWorld) -> None:
        world.add_run("run", status="failed", jobs_failed=2, error_message="2 of 2 chunks failed.")
        times = {"first_started_at": "2026-03-10T12:00:00.000Z", "completed_at": "2026-03-10T14:00:30.000Z"}
        world.add_chunk("run", 0, status="FAILED", error="No spectrum.", attempts=1, duration_ms=1500)
        world.add_chunk("run", 2, status="FAILED", error="Given up.", attempts=5, **times)
        shown = world.run("failures", "run", expect=1).stdout
        assert "chunk-0000000 (1 attempt, 1.5 s): No spectrum." in shown
        assert "chunk-0000002 (5 attempts, 7230.0 s): Given up." in shown

    def test_failures_are_counted_by_their_error(self, world: CliWorld) -> None:
        world.add_run("run", status="failed", jobs_failed=3, error_message="3 of 3 chunks failed.")
        for number, error in ((0, "It holds 1 spectra."), (2, "No header."), (4, "It holds 7 spectra.")):
            moment = f"2026-03-10T14:00:0{number}.000Z"
            world.add_chunk("run", number, status="FAILED", error=error, attempts=1, completed_at=moment)
        shown = world.run("failures", "run", expect=1).stdout
        assert "2 x It holds 7 spectra. (latest: chunk-0000004)" in shown
        assert "1 x No header." in shown

    def test_a_repaired_run_does_not_show_its_earlier_error(self, world: CliWorld) -> None:
        world.add_run("run", status="completed", jobs_total=1, jobs_completed=1, error_message="1 of 1 chunks failed.")
        world.add_chunk("run", 0, last_error="Injected.", attempts=6)
        assert world.json("run", "run")["error"] is None
        assert "Nothing failed." in world.run("failures", "run").stdout
        for command in ("run", "chunks"):
            shown = world.run(command, "run").stdout
            assert "Injected." not in shown
            assert "chunks failed." not in shown
