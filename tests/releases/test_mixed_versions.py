"""A service of the last release works with the others of this checkout, and the reverse: teams release one at a time.

`releases.toml` records the last release. Its wheels are built from the recorded commit. `make contracts` runs all
mixes; `make test` those in which splitter or worker alone are older.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import releases
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX
from prismline_localstack.demos import captions
from prismline_localstack.gpu import start_gpu
from prismline_localstack.harness import load_state
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.standins.discord import DiscordStandIn
from prismline_runtime import clients
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.releases import wheels
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RECORD = releases.read_record(REPOSITORY)
#: The services that were released, and the commits of their last releases.
SERVICES = {
    package.name: RECORD[f"services/{package.name}"].commit
    for package in (REPOSITORY / "services").iterdir()
    if f"services/{package.name}" in RECORD
}
#: Libraries that they were released with. gaussline has to be compiled, so the present one is used; it is in the
#: allowed range.
LIBRARIES = ("contracts", "libs/runtime", "libs/ledger", "libs/coordination")


def build_released(service: str, folder: Path) -> None:
    """Make a folder with the last release: the packages as its commit has them, and their wheels in `dist`.

    The libraries are also those of that commit, because the service was released with them.
    """
    folder.mkdir()
    names = [*LIBRARIES, f"services/{service}"]
    archive = ["git", "-C", str(REPOSITORY), "archive", "-o", str(folder / "package.tar"), SERVICES[service], *names]
    if subprocess.run(archive, capture_output=True, check=False).returncode:
        pytest.skip("the history does not have the commit of the last release")
    shutil.unpack_archive(folder / "package.tar", folder, filter="data")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    wheels.run([*pip, "--wheel-dir", "dist", *(f"./{name}" for name in names)], folder)


def checkout_with(older: Collection[str], made_once: wheels.MadeOnce, folder: Path) -> Path:
    """This checkout with some services from the wheels of their last releases. Their stacks are the present ones."""
    (folder / "services").mkdir(parents=True)
    for name in ("platform", "localstack"):
        (folder / name).symlink_to(REPOSITORY / name)
    for path in (REPOSITORY / "services").iterdir():
        if path.name in older:
            released = made_once(f"released-{path.name}", partial(build_released, path.name))
            install_released(released, path.name, folder / "services" / path.name)
        elif path.is_dir():
            (folder / "services" / path.name).symlink_to(path)
    return folder


def install_released(released: Path, service: str, folder: Path) -> None:
    """Make the folder of a service with its last release and the present stack."""
    present = REPOSITORY / "services" / service
    folder.mkdir()
    shutil.copy(released / "services" / service / "pyproject.toml", folder)
    shutil.copy(present / "template.yaml", folder)
    if (present / "statemachine").exists():
        shutil.copytree(present / "statemachine", folder / "statemachine")
    names = [f"prismline_{name.rpartition('/')[2].replace('-', '_')}" for name in (*LIBRARIES, service)]
    built = [str(path) for path in (released / "dist").glob("*.whl") if path.name.split("-")[0] in names]
    assert len(built) == len(names)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder / "src")]
    wheels.run([*pip, *built], folder)


@dataclass(frozen=True)
class Mixed:
    """A running system in which some services are of their last release."""

    system: System
    discord: DiscordStandIn
    older: Collection[str]


def mixes() -> Iterator[Any]:
    """Each service as the only one of its last release, and as the only one of this checkout."""
    for way in ("old", "new"):
        for name in SERVICES:
            with_all_tests = (way, name) in {("old", "splitter"), ("old", "worker")}
            yield pytest.param((way, name), id=f"{way} {name}", marks=[] if with_all_tests else [pytest.mark.mixed])


@pytest.fixture(scope="module", params=mixes())
def mixed(
    request: pytest.FixtureRequest, made_once: wheels.MadeOnce, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """A system with one service of its last release, or with one of this checkout beside the others' last releases."""
    way, name = request.param
    older = {name} if way == "old" else SERVICES.keys() - {name}
    folder = tmp_path_factory.mktemp("mixed")
    root = checkout_with(older, made_once, folder / "checkout")
    with (
        DiscordStandIn() as discord,
        pytest.MonkeyPatch.context() as patch,
        System.running(
            folder,
            patch,
            services=[*CHUNK_SERVICES, "alerting", "standins"],
            parameters=captions.PARAMETERS,
            root=root,
            **captions.SETTINGS | discord.settings | {"SWEEP_IDLE_SECONDS": "2"},
        ) as system,
    ):
        yield Mixed(system, discord, older)


def inputs_of(older: Collection[str]) -> list[dict[str, str]]:
    """What a cube is submitted with: without a choice, and with each input that all services know."""
    if "worker" not in older:
        return [{}, {"chunk_input": "copy"}, *([] if "splitter" in older else [{"chunk_input": "reference"}])]
    # Worker 1.0.0 leaves chunks that refer to the cube to wait. Splitter 1.0.0 makes none.
    return [{}] if "splitter" in older else [{"chunk_input": "copy"}]


def test_cubes_complete(mixed: Mixed, tmp_path: Path) -> None:
    system = mixed.system
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    for fields in inputs_of(mixed.older):
        run_id = system.submit(cube, chunk_size=2, **fields)
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 3, 3)
        assert len(system.table(run_id)) == 6
        if "worker" not in mixed.older:  # an older worker writes fewer columns
            assert_invariants(system, run_id, nx=3)


def test_a_run_is_cancelled_and_goes_on(mixed: Mixed, tmp_path: Path) -> None:
    system = mixed.system
    system.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 5.0}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=4), chunk_size=1, **inputs_of(mixed.older)[0])
    system.cancel_in_mid_run(run_id)
    system.set_faults([])
    system.cli("retry", run_id, "--cancelled", "--wait")
    view = system.wait(run_id)
    assert (view.status, view.completed, view.total) == ("completed", 8, 8)


def test_a_failed_chunk_is_retried(mixed: Mixed, tmp_path: Path) -> None:
    system = mixed.system
    system.set_faults([{"point": "chunk.started", "action": "permanent", "where": {"chunk_id": "chunk-0000002"}}])
    run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=2), chunk_size=2, **inputs_of(mixed.older)[0])
    assert system.wait(run_id).status == "failed"
    system.set_faults([])
    system.cli("retry", run_id, "--failed", "--wait")
    wait_for(lambda: (view := system.view(run_id)) and view.status == "completed", "the run to complete")


def test_a_recording_waits_for_the_gpu_and_people_are_alerted(mixed: Mixed, tmp_path: Path) -> None:
    captions.make_recording(tmp_path)
    interactions = load_state().url("interactions") + "/interactions"
    run_id = captions.outage(mixed.system.connection, mixed.discord, interactions, tmp_path, print)
    (instance,) = start_gpu(mixed.system.connection)
    # Release 1.0.0 of worker and dead-letter consumer read the instance's id here, where people wrote it.
    name = f"/prismline/{mixed.system.connection.environment}/resources/gpu/instance_id"
    clients.ssm().put_parameter(Name=name, Value=instance, Type="String")
    segments = captions.recovery(mixed.system.connection, mixed.discord, run_id, print)
    assert {segment.status for segment in segments} == {"complete"}


AUTHOR = """
from prismline import workload

@workload(attempts=1)
def work(item: int) -> int:
    return 6 // item
"""


def mapped(system: System) -> str:
    """Begin a run of a function over four items in the working directory, of which the first fails. Return its id."""
    Path("author.py").write_text(AUTHOR)
    Path("items.jsonl").write_text("0\n1\n2\n3\n")
    return str(json.loads(system.cli("map", "author:work", "items.jsonl", "--json"))["run_id"])


def test_a_function_is_run_or_refused(mixed: Mixed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitter 1.0.0 starts no jobs, and worker 1.0.0 takes no messages of tasks. Both are left for a newer one."""
    monkeypatch.chdir(tmp_path)
    system, before = mixed.system, archived(mixed.system)
    run_id = mapped(system)
    if "splitter" in mixed.older:
        wait_for(lambda: archived(system) > before, "splitter 1.0.0 to leave the job to the dead-letter queue")
        assert json.loads(system.cli("run", run_id, "--json"))["status"] == "pending"
        return
    if "worker" in mixed.older:
        wait_for(lambda: (view := system.view(run_id)) and view.total == 4, "the list to be read")
        run = system.item(run_id)
        assert [(task.status, task.attempts) for task in system.connection.ledger.tasks(run)] == [("PENDING", 0)] * 4
        system.cli("cancel", run_id)
        assert system.wait(run_id).status == "cancelled"
        return
    view = system.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("failed", 3, 1, 4)
    assert "integer division" in system.cli("failures", run_id, expect=1)


def archived(system: System) -> int:
    """Number of dead letters in the archive."""
    s3, bucket = system.connection.s3, system.connection.bucket
    return len(s3.list_objects_v2(Bucket=bucket, Prefix=DEAD_LETTERS_PREFIX).get("Contents", []))


def test_chunks_that_refer_to_the_cube_wait_until_the_worker_is_upgraded(
    made_once: wheels.MadeOnce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout_with({"worker"}, made_once, tmp_path / "checkout")
    with System.running(tmp_path, monkeypatch, services=CHUNK_SERVICES, root=root) as system:
        run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=3), chunk_size=2, chunk_input="reference")
        wait_for(lambda: archived(system) == 3, "worker 1.0.0 to leave all chunks to the dead-letter queue")
        view = system.view(run_id)
        assert view is not None
        assert (view.status, view.failed, view.completed) == ("running", 0, 0)
        shutil.rmtree(root / "services" / "worker")
        (root / "services" / "worker").symlink_to(REPOSITORY / "services" / "worker")
        for name, each in load_state().processes.items():
            if name.startswith("worker") and each.process is not None:
                each.process.signal(signal.SIGTERM)
        view = system.wait(run_id, patience=240)
        assert (view.status, view.completed, view.total) == ("completed", 3, 3)
        assert_invariants(system, run_id, nx=3)
