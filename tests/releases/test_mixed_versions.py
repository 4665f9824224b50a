"""A service of the last release works with the others of this checkout: teams release one service at a time.

`releases.toml` records the last release. Its wheels are built from the recorded commit.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import releases
from prismline_contracts.items import ChunkStatus
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX
from prismline_localstack.harness import load_state
from prismline_localstack.settings import REPOSITORY
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.releases import wheels
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RECORD = releases.read_record(REPOSITORY)
#: The services to build, and the commits of their last releases.
SERVICES = {name: RECORD[f"services/{name}"].commit for name in ("worker", "splitter")}
#: Libraries that splitter and worker were released with. gaussline has to be compiled, so the present one is used; it
#: is in the allowed range.
LIBRARIES = ("contracts", "libs/runtime", "libs/ledger", "libs/coordination")


@pytest.fixture(scope="module", params=SERVICES)
def released(request: pytest.FixtureRequest, made_once: wheels.MadeOnce) -> tuple[str, Path]:
    """A service, and a folder with its last release: the packages as the commit has them, their wheels in `dist`.

    The libraries are also those of that commit, because the service was released with them.
    """
    service: str = request.param
    return service, made_once(f"released-{service}", lambda folder: build_released(service, folder))


def build_released(service: str, folder: Path) -> None:
    folder.mkdir()
    names = [*LIBRARIES, f"services/{service}"]
    archive = ["git", "-C", str(REPOSITORY), "archive", "-o", str(folder / "package.tar"), SERVICES[service], *names]
    if subprocess.run(archive, capture_output=True, check=False).returncode:
        pytest.skip("the history does not have the commit of the last release")
    shutil.unpack_archive(folder / "package.tar", folder, filter="data")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    wheels.run([*pip, "--wheel-dir", "dist", *(f"./{name}" for name in names)], folder)


def checkout_with(released: Path, service: str, folder: Path) -> Path:
    """This checkout with one service from the wheels of its last release. Its stack is the present one."""
    for path in (REPOSITORY / "services").iterdir():
        if path.is_dir() and path.name != service:
            (folder / "services").mkdir(parents=True, exist_ok=True)
            (folder / "services" / path.name).symlink_to(path)
    for name in ("platform", "localstack"):
        (folder / name).symlink_to(REPOSITORY / name)
    older = folder / "services" / service
    older.mkdir()
    shutil.copy(released / "services" / service / "pyproject.toml", older)
    shutil.copy(REPOSITORY / "services" / service / "template.yaml", older)
    names = [f"prismline_{name.rpartition('/')[2]}" for name in (*LIBRARIES, service)]
    built = [str(path) for path in (released / "dist").glob("*.whl") if path.name.split("-")[0] in names]
    assert len(built) == len(names)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(older / "src")]
    wheels.run([*pip, *built], folder)
    return folder


def test_a_cube_is_decomposed_with_one_service_of_the_last_release(
    released: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, folder = released
    root = checkout_with(folder, service, tmp_path / "checkout")
    with System.running(tmp_path, monkeypatch, services=CHUNK_SERVICES, root=root) as system:
        # Chunks that refer to the cube would wait: worker 1.0.0 does not know them.
        fields = {"chunk_input": "copy"} if service == "worker" else {}
        run_id = system.submit(write_cube(tmp_path / "cube.fits", ny=2, nx=3), chunk_size=2, **fields)
        view = system.wait(run_id)
        assert (view.status, view.completed, view.total) == ("completed", 3, 3)
        assert {chunk.state for chunk in system.chunks(run_id)} == {ChunkStatus.COMPLETED}
        assert len(system.table(run_id)) == 6
        if service == "splitter":  # an older worker writes fewer columns
            assert_invariants(system, run_id, nx=3)


def archived(system: System) -> int:
    """Number of dead letters in the archive."""
    s3, bucket = system.connection.s3, system.connection.bucket
    return len(s3.list_objects_v2(Bucket=bucket, Prefix=DEAD_LETTERS_PREFIX).get("Contents", []))


def test_chunks_that_refer_to_the_cube_wait_until_the_worker_is_upgraded(
    made_once: wheels.MadeOnce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_once("released-worker", lambda folder: build_released("worker", folder))
    root = checkout_with(folder, "worker", tmp_path / "checkout")
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
