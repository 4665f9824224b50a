"""The whole stack in containers: used by docs/how-to/containers.md, killed, paused, disconnected, scaled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismline_contracts.items import ChunkStatus
from tests.compose.conftest import connected, measured
from tests.compose.stack import Stack, docker
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import System, wait_for

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

#: The default.
EMULATOR = "localstack"

#: Spectra of the tests' cubes along each axis, and spectra in a chunk.
NY, NX, CHUNK_SIZE = 4, 6, 2
CHUNKS = NY * NX // CHUNK_SIZE
#: A fault rule that holds every started chunk until the rule is removed.
HOLD = [{"point": "chunk.started", "action": "hang", "seconds": 600}]


@pytest.fixture
def cube(stack: Stack) -> Path:
    """A cube in a folder that containers can read."""
    return write_cube(stack.faults_file.with_name("cube.fits"), ny=NY, nx=NX)


def submit_held(system: System, cube: Path, workers: int) -> str:
    """Submit a run. Return its id when every worker holds a chunk that it has just begun."""
    system.set_faults(HOLD)
    run_id = system.submit(cube, chunk_size=CHUNK_SIZE)

    def all_hold_one() -> bool:
        run = system.connection.ledger.get_run(run_id)
        started = system.chunks(run_id, ChunkStatus.IN_PROGRESS) if run is not None and run.latched_at else []
        return len(started) == workers

    wait_for(all_hold_one, f"{workers} workers to be in mid-chunk")
    return run_id


def assert_completed(system: System, run_id: str, attempts_too_many: int) -> None:
    """Assert that the run and all its chunks completed, with so many extra attempts, and that all invariants hold."""
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", CHUNKS, 0, CHUNKS)
    assert sum(chunk.attempts - 1 for chunk in system.chunks(run_id)) == attempts_too_many
    assert_invariants(system, run_id, nx=NX)


def restarts(stack: Stack, service: str) -> int:
    """How often the engine itself restarted a service's containers."""
    return sum(stack.inspect(container)["RestartCount"] for container in stack.containers(service))


def test_the_documented_commands_submit_a_cube_and_tell_how_it_ended(stack: Stack, faults: System, cube: Path) -> None:
    arguments = ("submit", cube.name, "--survey", "compose", "--chunk-size", str(CHUNK_SIZE), "--wait", "--json")
    document = json.loads(stack.cli(*arguments))
    assert (document["status"], document["chunks_completed"]) == ("completed", CHUNKS)
    assert document["run_id"] in stack.cli("runs")
    assert_completed(faults, document["run_id"], attempts_too_many=0)

    faults.set_faults([{"point": "chunk.started", "action": "permanent", "where": {"chunk_id": "chunk-0000000"}}])
    failed = json.loads(stack.cli(*arguments, expect=1))
    assert (failed["status"], failed["chunks_failed"]) == ("failed", 1)
    stack.cli("submit", "nowhere.fits", "--survey", "compose", expect=2)


def test_a_real_cube_is_decomposed(system: System, grs_cube: Path) -> None:
    run_id = system.submit(grs_cube, survey="grs", chunk_size=10)
    with measured(system, run_id, "none (a cube of the Galactic Ring Survey)"):
        view = system.wait(run_id)
    assert (view.status, view.total, view.failed) == ("completed", 10, 0)
    assert_invariants(system, run_id, nx=10)


def test_a_worker_killed_in_mid_chunk_is_taken_over(stack: Stack, faults: System, cube: Path) -> None:
    victim, _ = stack.containers("worker")
    run_id = submit_held(faults, cube, workers=2)
    with measured(faults, run_id, "a worker killed in mid-chunk"):
        docker("kill", "--signal", "KILL", victim)
        assert stack.inspect(victim)["State"]["ExitCode"] == 137
        faults.set_faults([])
        assert_completed(faults, run_id, attempts_too_many=1)
    docker("start", victim)


def test_a_worker_that_dies_by_itself_is_restarted(stack: Stack, faults: System, cube: Path) -> None:
    before = restarts(stack, "worker")
    where = {"chunk_id": "chunk-0000004"}
    faults.set_faults([{"point": "chunk.output_written", "action": "kill", "times": 1, "where": where}])
    run_id = faults.submit(cube, chunk_size=CHUNK_SIZE)
    with measured(faults, run_id, "a worker that killed itself"):
        assert_completed(faults, run_id, attempts_too_many=1)
    assert restarts(stack, "worker") == before + 1


def test_a_worker_paused_past_its_visibility_time_changes_nothing_when_it_goes_on(
    stack: Stack, faults: System, cube: Path
) -> None:
    victim, _ = stack.containers("worker")
    run_id = submit_held(faults, cube, workers=2)
    with measured(faults, run_id, "a worker paused past its visibility time"):
        docker("pause", victim)
        faults.set_faults([])
        assert_completed(faults, run_id, attempts_too_many=1)
    finished = stack.logs(victim).count("chunk_completed")
    docker("unpause", victim)
    wait_for(lambda: stack.logs(victim).count("chunk_completed") > finished, "the paused worker to end its chunk")
    faults.wait_until_idle()
    assert_completed(faults, run_id, attempts_too_many=1)


def test_a_worker_cut_off_from_the_network_is_taken_over_and_comes_back(
    stack: Stack, faults: System, cube: Path
) -> None:
    victim, _ = stack.containers("worker")
    network = f"{stack.project}_default"
    run_id = submit_held(faults, cube, workers=2)
    with measured(faults, run_id, "a worker cut off from the network"):
        docker("network", "disconnect", network, victim)
        faults.set_faults([])
        assert_completed(faults, run_id, attempts_too_many=1)
    docker("network", "connect", network, victim)
    again = submit_held(faults, cube, workers=2)
    faults.set_faults([])
    assert_completed(faults, again, attempts_too_many=0)


def test_a_splitter_restarted_during_a_split_is_taken_up_again(stack: Stack, faults: System, cube: Path) -> None:
    faults.set_faults([{"point": "split.items_written", "action": "hang", "seconds": 600, "times": 1}])
    run_id = faults.submit(cube, chunk_size=CHUNK_SIZE)
    wait_for(faults.faults_that_struck, "the splitter to be in the middle of it")
    stack.compose("restart", "splitter")
    with measured(faults, run_id, "the splitter restarted during a split"):
        assert_completed(faults, run_id, attempts_too_many=0)


def test_workers_are_scaled_to_four_and_back_to_one_during_a_run(stack: Stack, faults: System, cube: Path) -> None:
    stack.scale_workers(1)
    run_id = submit_held(faults, cube, workers=1)
    with measured(faults, run_id, "workers scaled 1 -> 4 -> 1"):
        stack.scale_workers(4)
        wait_for(lambda: len(faults.chunks(run_id, ChunkStatus.IN_PROGRESS)) == 4, "four workers to be in mid-chunk")
        stack.scale_workers(1)
        assert len(stack.containers("worker")) == 1
        faults.set_faults([])
        assert_completed(faults, run_id, attempts_too_many=3)
    stack.scale_workers(2)


def test_containers_are_held_to_their_limits(stack: Stack, system: System) -> None:
    for container in stack.containers():
        document = stack.inspect(container)
        name, host = document["Name"], document["HostConfig"]
        assert host["NetworkMode"] == f"{stack.project}_default", name
        assert host["Memory"] > 0, name
        assert host["NanoCpus"] > 0, name
        assert not host["Privileged"], name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        for bindings in (host["PortBindings"] or {}).values():
            assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}, name
        if "localstack/localstack" not in document["Config"]["Image"]:
            assert host["ReadonlyRootfs"], name
            assert host["CapDrop"] == ["ALL"], name


def test_nothing_runs_as_root(stack: Stack, system: System) -> None:
    for container in stack.containers():
        document = stack.inspect(container)
        assert document["Config"]["User"].split(":")[0] not in {"", "0", "root"}, document["Name"]
        if document["State"]["Running"]:
            _, *processes = docker("top", container, "-eo", "pid,uid").splitlines()
            assert {process.split()[1] for process in processes} == {"10001"}, document["Name"]


def test_no_log_holds_a_secret_or_a_payload(stack: Stack, system: System) -> None:
    # the services' credential, a state machine's token, a signed request, a message's body
    forbidden = (stack.secret, '"tasktoken"', "X-Amz-Signature", "AWS4-HMAC-SHA256", '"specversion"')
    for container in stack.containers():
        log, name = stack.logs(container), stack.inspect(container)["Name"]
        assert not [secret for secret in forbidden if secret in log], name


def test_services_end_by_themselves_when_they_are_stopped(stack: Stack, system: System) -> None:
    stack.compose("stop")
    codes = {}
    for container in stack.containers():
        document = stack.inspect(container)
        codes[document["Config"]["Labels"]["com.docker.compose.service"]] = document["State"]["ExitCode"]
    codes.pop("localstack")  # the signal ends it
    assert set(codes.values()) == {0}, codes


def test_what_localstack_forgot_is_deployed_anew(stack: Stack, cube: Path) -> None:
    stack.up()
    with connected(stack) as system:
        assert not system.connection.ledger.runs_of("grs"), (
            "LocalStack 4.14 keeps no state; if this fails, update the documentation"
        )
        run_id = system.submit(cube, chunk_size=CHUNK_SIZE)
        assert_completed(system, run_id, attempts_too_many=0)
