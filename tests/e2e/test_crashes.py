"""The emulator, or the supervisor with all processes, is killed at bad moments: no run is lost, and all continue."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from prismline_localstack import harness
from prismline_localstack.errors import HarnessError
from prismline_localstack.home import Home
from prismline_localstack.state import State
from tests.cubes import write_cube
from tests.run_view import RunView
from tests.system import CHUNK_SERVICES, SHARED_ENDPOINT, System, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(SHARED_ENDPOINT is not None, reason="only the emulator saves its state"),
]


class Machine:
    """A home directory whose system is killed and started again."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.faults = folder / "home", folder / "faults.json"
        self._patch = patch
        patch.setenv("PRISMLINE_HOME", str(self.home))

    def up(self) -> System:
        """Start the system by the command."""
        self._patch.delenv("AWS_ENDPOINT_URL", raising=False)
        settings = {
            "PRISMLINE_VISIBILITY_SECONDS": "5",
            "PRISMLINE_WAIT_SECONDS": "1",
            "PRISMLINE_FAULTS_FILE": str(self.faults),
            # A kill may lose the messages of the last second. The sweeper sends them again.
            "SWEEP_IDLE_SECONDS": "5",
            "SWEEP_LEASE_SECONDS": "15",
        }
        self.state = harness.up(self.home, workers=2, services=CHUNK_SERVICES, settings=settings)
        self._patch.setattr(boto3, "DEFAULT_SESSION", None)  # it may hold the credentials of another system
        for name, value in self.state.env.items():
            self._patch.setenv(name, value)
        return System.connected(self.state.environment, self.faults)

    def kill(self, process: str) -> None:
        """Send SIGKILL to the supervisor or one of its processes, and wait until all processes have ended."""
        entry = self.state.processes.get(process)
        victim = entry.process if entry else self.state.supervisor
        assert victim is not None
        victim.signal(signal.SIGKILL)
        wait_for(lambda: not self.state.supervisor.alive, "the supervisor to end")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path, monkeypatch)
    yield made
    harness.down(made.home)


def lasting(view: RunView) -> RunView:
    """The view without the index of open runs, which each sweep changes, and without the time of the last message.

    A message whose deletion was lost by the kill is handled again. It changes nothing else.
    """
    assert view.item is not None
    assert view.state is not None
    item = view.item.model_copy(update={"GSI2_PK": None, "GSI2_SK": None})
    return replace(view, item=item, state=view.state.model_copy(update={"updated_at": ""}))


def test_an_ended_run_is_there_after_a_kill_with_all_that_belongs_to_it(machine: Machine, tmp_path: Path) -> None:
    system = machine.up()
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=3), chunk_size=2)
    system.wait(run_id)
    wait_for(lambda: system.item(run_id).ended_at, "the end of the run to be recorded")
    before = lasting(system.view(run_id))
    machine.kill("emulator")
    system = machine.up()
    assert lasting(system.view(run_id)) == before
    assert run_id in system.cli("runs")
    assert json.loads(system.cli("run", run_id, "--json"))["status"] == "completed"
    chunks = json.loads(system.cli("chunks", run_id, "--json"))
    assert [chunk["status"] for chunk in chunks] == ["COMPLETED"] * 3
    files = json.loads(system.cli("results", run_id, "--to", str(tmp_path / "results"), "--json"))["files"]
    assert len(files) == 3
    system.cli("plot", run_id, "--to", str(tmp_path / "run.png"))
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert machine.state.resumed == []


def test_runs_that_are_cut_off_at_any_stage_go_on_and_up_names_them(machine: Machine, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=4, nx=5)
    system = machine.up()
    submitted = system.submit(cube, chunk_size=1)
    machine.kill("emulator")

    system = machine.up()
    assert machine.state.resumed == [submitted]
    system.set_faults([{"point": "split.total_set", "action": "hang", "seconds": 60, "times": 1}])
    half_split = system.submit(cube, chunk_size=1)
    wait_for(system.faults_that_struck, "the splitter to be in the middle of it")
    machine.kill("supervisor")

    system = machine.up()
    assert half_split in machine.state.resumed
    system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 0.5}])
    half_done = system.submit(cube, chunk_size=1)
    wait_for(lambda: (view := system.view(half_done)) and view.completed, "a chunk to be completed")
    machine.kill("emulator")

    system = machine.up()
    system.set_faults([])
    for run_id in (submitted, half_split, half_done):
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 20, 20)


def test_a_start_that_was_cut_short_is_made_good_by_the_next(machine: Machine) -> None:
    home = Home.at(machine.home)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(machine.up)
        state = wait_for(lambda: (found := State.load(home.state)) and found.endpoint and found, "the emulator")
        assert state.phase == "starting"
        state.supervisor.signal(signal.SIGKILL)
        assert isinstance(starting.exception(), HarnessError)
    assert machine.up().cli("runs").strip() == "No runs."
