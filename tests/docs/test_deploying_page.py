"""The commands of docs/deploying.md work as the page says, on the emulator."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline_localstack import harness
from prismline_localstack.deployment.change_sets import Stacks
from prismline_localstack.settings import REPOSITORY
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import System

pytestmark = pytest.mark.e2e

PAGE = REPOSITORY / "docs" / "deploying.md"


def commands(heading: str) -> list[list[str]]:
    """The commands below a heading of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system of `prismline up --functions`."""
    first = commands("On your machine")[0]
    assert first == ["prismline", "up", "--functions"]
    folder = tmp_path_factory.mktemp("deploying")
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch, functions=True) as running:
        yield running


def test_a_cube_is_decomposed(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    _, submit = commands("On your machine")
    document = json.loads(system.cli(*submit[1:], "--json"))
    assert document["status"] == "completed"
    assert_invariants(system, document["run_id"], nx=3)


def test_an_upgrade_and_a_rollback(system: System) -> None:
    plan, upgrade = commands("An upgrade")
    assert "no changes" in system.cli(*plan[1:]), "what is deployed is this checkout"
    assert "is deployed" in system.cli(*upgrade[1:])
    rollback_plan, rollback, listed = commands("A rollback")
    for command in (rollback_plan, rollback):
        assert "No release of worker before" in system.cli(*command[1:], expect=3, stream="stderr")
    path = listed[listed.index("--path") + 1]
    found = harness.load_state().client("ssm").get_parameters_by_path(Path=path)["Parameters"]
    services = {entry["Name"].rpartition("/")[2]: json.loads(entry["Value"]) for entry in found}
    assert {"splitter", "worker", "status"} <= services.keys()
    assert services["worker"]["code"]["ImageUri"].startswith("prismline/worker@sha256:")


#: Stands for docker: what it "pushes" is in the emulator's ECR.
DOCKER = f"""#!{sys.executable}
import json, sys
import boto3
if sys.argv[1] == "push":
    repository, _, tag = sys.argv[2].partition("/")[2].rpartition(":")
    manifest = json.dumps({{"schemaVersion": 2, "config": {{"digest": sys.argv[2]}}}})
    boto3.client("ecr").put_image(repositoryName=repository, imageManifest=manifest, imageTag=tag)
"""


def test_the_first_deployment_makes_a_whole_environment(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator stands for the account; nothing runs the functions of this environment."""
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    export, plan, deployment = commands("The first deployment to AWS")
    assert export[0] == "export"
    planned = json.loads(system.cli(*plan[1:], "--json"))
    assert [(stack["stack"], stack["new"]) for stack in planned["stacks"]] == [("prismline-prod-platform", True)]
    assert planned["deployed"] == []
    stacks = Stacks(harness.load_state().client("cloudformation"))
    assert stacks.state("prismline-prod-platform") is None
    deployed = json.loads(system.cli(*deployment[1:], "--json"))
    services = {path.parent.name for path in REPOSITORY.glob("services/*/template.yaml")}
    assert {release["service"] for release in deployed["deployed"]} == services
    for release in deployed["deployed"]:
        stack = f"prismline-prod-{release['service']}"
        assert stacks.state(stack) == "CREATE_COMPLETE"
        assert stacks.parameters(stack)["ImageUri"] == release["image"]
        assert f"/prismline/{release['service']}@sha256:" in release["image"]
