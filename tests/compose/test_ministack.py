"""The stack on the emulator, which keeps its state over a restart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prismline_contracts.items import ChunkStatus
from tests.compose.conftest import measured
from tests.compose.stack import Stack, run
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import System, wait_for

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

EMULATOR = "ministack"


def test_an_emulator_restarted_in_the_middle_of_a_run_loses_no_chunk(
    stack: Stack, faults: System, tmp_path: Path
) -> None:
    system = faults
    system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 600}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=6), chunk_size=2)
    wait_for(lambda: len(system.events(run_id, "run.started")) == 1, "the run to be started")
    wait_for(lambda: len(system.chunks(run_id, ChunkStatus.IN_PROGRESS)) == 2, "two workers to be in mid-chunk")
    with measured(system, run_id, "ministack restarted in the middle"):
        stack.compose("restart", "ministack")
        system.set_faults([])
        wait_for(lambda: system.item(run_id).drained_at, "all chunks to end")
    assert system.item(run_id).chunks_completed == 12
    assert system.wait(run_id).status == "completed", "although its execution ended with ministack's process"
    assert_invariants(system, run_id, nx=6)


def test_the_end_to_end_tests_take_the_stack_s_emulator_by_one_variable(stack: Stack) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/e2e/test_runs.py")
    assert " passed" in run(*command, AWS_ENDPOINT_URL=stack.endpoint, PRISMLINE_EMULATOR_SECRET=stack.secret).stdout


def test_down_and_up_again_finds_everything_as_it_was(stack: Stack, system: System, tmp_path: Path) -> None:
    run_id = system.submit(write_cube(tmp_path / "cube.fits"), survey="kept", chunk_size=5)
    before = system.wait(run_id).as_json()
    stack.compose("down")
    stack.up()
    view = system.view(run_id)
    assert view is not None
    assert view.as_json() == before
    assert_invariants(system, run_id, nx=5)


def test_down_with_volumes_leaves_nothing(stack: Stack, system: System) -> None:
    assert stack.leftovers()
    stack.compose("down", "--volumes")
    assert stack.leftovers() == []
