"""The services as Lambda functions: deployed like on AWS, run by awslambdaric, invoked from queues like by Lambda."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from prismline_contracts.prefixes import UPLOADS_PREFIX
from prismline_deploy.deploying import CODE_TYPES
from prismline_localstack.api_keys import read_api_key
from prismline_localstack.home import Home
from prismline_localstack.settings import REPOSITORY
from prismline_splitter.input_cost import SMALL_CUBE_BYTES
from tests.contracts.versions import verify_as
from tests.cubes import write_cube, write_large_cube
from tests.invariants import assert_invariants
from tests.system import System, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system whose services are functions with the credentials of their roles. IAM policies are enforced."""
    folder = tmp_path_factory.mktemp("functions")
    with pytest.MonkeyPatch.context() as patch, System.as_functions(folder, patch) as running:
        yield running


def invocations(function: str) -> list[dict[str, Any]]:
    """What the driver logged about the invocations of a function, by its short name."""
    lines = Home.at(None).log("functions").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in found if each["message"] == "invocation" and each["function"].endswith(f"-{function}")]


def test_a_cube_is_decomposed_by_functions(functions: System, tmp_path: Path) -> None:
    run_id = functions.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=5), chunk_size=5)
    view = functions.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", 4, 0, 4)
    assert len(functions.table(run_id)) == 20
    assert_invariants(functions, run_id, nx=5)
    for function in ("splitter", "worker", "status"):
        assert [each for each in invocations(function) if "error" in each] == []
        assert invocations(function), "each service did its part as a function"


@pytest.fixture(scope="module")
def api(functions: System) -> Iterator[httpx.Client]:
    """A client of the API, with the key of the local user."""
    key = read_api_key(Home.at(None).api_key)
    url, headers = f"{os.environ['PRISMLINE_API_URL']}/v1", {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client


def test_the_workers_read_a_large_cube_that_was_uploaded_through_the_api(
    functions: System, api: httpx.Client, tmp_path: Path
) -> None:
    cube = write_large_cube(tmp_path / "cube.fits", SMALL_CUBE_BYTES + 1).read_bytes()
    upload = api.post("/uploads", json={"format": "fits", "size_bytes": len(cube)}).raise_for_status().json()
    httpx.put(upload["url"], content=cube, headers=upload["headers"], timeout=60).raise_for_status()
    job = {"workload": "spectra", "name": "large", "upload": upload["upload_id"], "chunk_size": 40_000}
    run_id = api.post("/jobs", json=job).raise_for_status().json()["run"]["run_id"]
    view = functions.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", 2, 0, 2)
    assert all(chunk.chunk_key.startswith(UPLOADS_PREFIX) for chunk in functions.chunks(run_id)), "by reference"


def test_the_api_lists_a_dead_letter_whose_recovery_failed(functions: System, api: httpx.Client) -> None:
    url = functions.sqs.get_queue_url(QueueName="prismline-local-chunks")["QueueUrl"]
    functions.sqs.send_message(QueueUrl=url, MessageBody="This is not a message.")

    def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get("/dead-letters").raise_for_status().json()["items"]
        return found

    wait_for(lambda: [each for each in letters() if each["source_queue"] == "chunks"], "the archived dead letter")
    functions.cli("deadletters", "recover", "--wait", expect=1)
    failed = [each for each in letters() if each["recovery_failed"]]
    assert [each["source_queue"] for each in failed] == ["chunks"]
    shown = api.get(f"/dead-letters/{failed[0]['day']}/{failed[0]['message_id']}").raise_for_status().json()
    assert shown["record"]["body"] == "This is not a message."


def release(folder: Path, version: str) -> Path:
    """A checkout in which the worker has another version and different code."""
    for part in ("contracts", "libs", "services", "platform"):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    worker = folder / "services" / "worker"
    project = worker / "pyproject.toml"
    before, _, after = project.read_text().partition('version = "')
    project.write_text(f'{before}version = "{version}"{after.partition(chr(34))[2]}')
    verify_as(folder, "worker", version)
    package = worker / "src" / "prismline_worker" / "__init__.py"
    package.write_text(f"{package.read_text()}\n# Release {version}.\n")
    return folder


def deploy_worker(system: System, root: Path) -> dict[str, Any]:
    """Deploy only the worker of a checkout. Return what the command prints about it."""
    shown = json.loads(system.cli("deploy", "--env", "local", "--service", "worker", "--root", str(root), "--json"))
    assert [stack["stack"] for stack in shown["stacks"]] == ["prismline-local-worker"]
    return {"changes": shown["stacks"][0]["changes"], **shown["deployed"][0]}


def test_the_worker_is_upgraded_and_rolled_back_while_a_run_goes_on(functions: System, tmp_path: Path) -> None:
    first = deploy_worker(functions, REPOSITORY)
    functions.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 3}])
    try:
        run_id = functions.submit(write_cube(tmp_path / "cube.fits", ny=10, nx=8), chunk_size=1)
        earlier = len(invocations("worker"))

        def images() -> list[str]:
            """The images of the run's invocations so far, with consecutive repeats removed."""
            found = [each["image"] for each in invocations("worker")[earlier:] if "error" not in each]
            return [image for n, image in enumerate(found) if n == 0 or image != found[n - 1]]

        wait_for(lambda: first["image"] in images(), "chunks by the first release")
        second = deploy_worker(functions, release(tmp_path / "checkout", "9.0.0"))
        assert second["version"] == "9.0.0"
        # Only code changes; the emulator also lists resources whose condition is false.
        assert all(change["type"].startswith(CODE_TYPES) for change in second["changes"])
        wait_for(lambda: second["image"] in images(), "chunks by the second release")
        restored = json.loads(functions.cli("rollback", "--env", "local", "--service", "worker", "--json"))
        assert all(change["type"].startswith(CODE_TYPES) for change in restored["stacks"][0]["changes"])
        assert [(each["version"], each["image"]) for each in restored["deployed"]] == [
            (first["version"], first["image"])
        ]
        wait_for(lambda: images()[-1] == first["image"], "chunks by the restored release")
        view = functions.view(run_id)
        assert view is not None
        assert not view.ended, "all that was in mid-run"
    finally:
        functions.set_faults([])
    view = functions.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", 80, 0, 80)
    assert_invariants(functions, run_id, nx=8)
    assert [each for each in invocations("worker")[earlier:] if "error" in each] == [], "no worker lost a chunk"
