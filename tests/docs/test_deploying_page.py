"""The commands of the pages about deployments work as they say, on the emulator."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_deploy.change_sets import Stacks
from prismline_deploy.labels import version_of
from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from tests.cubes import write_cube
from tests.docs.commands import commands, shell, steps
from tests.fake_docker import write_fake_docker
from tests.invariants import assert_invariants
from tests.system import System

pytestmark = pytest.mark.e2e

PAGE = REPOSITORY / "docs/how-to/deploy.md"
PIPELINE_PAGE = REPOSITORY / "docs/how-to/deploy-from-a-pipeline.md"
UPGRADE_PAGE = REPOSITORY / "docs/how-to/upgrade-and-roll-back.md"
CONTRACTS_PAGE = REPOSITORY / "docs/how-to/change-a-contract.md"


def prismline(system: System, command: str, *more: str, **expected: Any) -> str:
    """Run a `prismline` command of the page. Return what it printed."""
    name, *arguments = shlex.split(command)
    assert name == "prismline"
    return system.cli(*arguments, *more, **expected)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that was started like `prismline up --functions`."""
    assert commands(PAGE, "On your machine")[0] == "prismline up --functions"
    folder = tmp_path_factory.mktemp("deploying")
    with pytest.MonkeyPatch.context() as patch, System.running(folder, patch, functions=True) as running:
        yield running


def test_a_cube_is_decomposed(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    _, submit = commands(PAGE, "On your machine")
    document = json.loads(prismline(system, submit, "--json"))
    assert document["status"] == "completed"
    assert_invariants(system, document["run_id"], nx=3)


def test_an_upgrade_and_a_rollback(system: System) -> None:
    plan, upgrade = commands(UPGRADE_PAGE, "An upgrade")
    assert "no changes" in prismline(system, plan), "the deployed release is this checkout"
    assert "is deployed" in prismline(system, upgrade)
    rollback_plan, rollback, listed = commands(UPGRADE_PAGE, "A rollback")
    for command in (rollback_plan, rollback):
        assert "No previous release of worker" in prismline(system, command, expect=3, stream="stderr")
    services = [json.loads(value) for value in json.loads(shell(listed))]
    assert any(each["code"]["ImageUri"].startswith("prismline/worker@sha256:") for each in services)
    assert len(services) == len(list(REPOSITORY.glob("services/*/template.yaml")))


@pytest.fixture(scope="module")
def account(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The output of the first deployment to an account. The emulator is the account; no service runs there."""
    folder = tmp_path_factory.mktemp("bin")
    write_fake_docker(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        export, plan, deployment = commands(PAGE, "The first deployment to AWS")
        assert export.startswith("export ")
        planned = json.loads(prismline(system, plan, "--json"))
        assert Stacks(client("cloudformation")).state("prismline-prod-platform") is None
        yield {"planned": planned, "deployed": json.loads(prismline(system, deployment, "--json"))}


def client(service: str) -> Any:
    """A client of the emulator."""
    return harness.load_state().client(service)


def test_the_first_deployment_makes_a_whole_environment(account: dict[str, Any]) -> None:
    planned, deployed = account["planned"], account["deployed"]
    assert [(stack["stack"], stack["new"]) for stack in planned["stacks"]] == [("prismline-prod-platform", True)]
    assert planned["deployed"] == []
    services = {path.parent.name for path in REPOSITORY.glob("services/*/template.yaml")}
    assert {release["service"] for release in deployed["deployed"]} == services
    stacks = Stacks(client("cloudformation"))
    for release in deployed["deployed"]:
        stack = f"prismline-prod-{release['service']}"
        assert stacks.state(stack) == "CREATE_COMPLETE"
        assert stacks.parameters(stack)["ImageUri"] == release["image"]
        assert f"/prismline/{release['service']}@sha256:" in release["image"]


RESERVED = {"api": 50, "interactions": 5, "repairs": 4, "dead-letters": 32}


def reserved(environment: str) -> dict[str, int | None]:
    """The reserved concurrency of the functions that the page mentions."""
    functions = client("lambda")
    return {
        name: functions.get_function_concurrency(FunctionName=f"prismline-{environment}-{name}").get(
            "ReservedConcurrentExecutions"
        )
        for name in RESERVED
    }


def test_concurrency_is_reserved_once_the_account_has_enough(account: dict[str, Any], system: System) -> None:
    limit, ask, again = commands(PAGE, "A new account")
    assert int(shell(limit)) > 0
    # The emulator has no quotas; this checks the command and sends nothing.
    assert "RequestedQuota" in json.loads(shell(f"{ask} --generate-cli-skeleton output"))
    assert reserved("prod") == RESERVED
    prismline(system, again.replace("=true", "=false"))
    assert reserved("prod") == dict.fromkeys(RESERVED)
    prismline(system, again)
    assert reserved("prod") == RESERVED


def test_a_pipeline_has_a_role_to_deploy_with(account: dict[str, Any], system: System) -> None:
    provider, platform = commands(PIPELINE_PAGE, "The role")
    assert json.loads(shell(provider))["OpenIDConnectProviderArn"].endswith("/token.actions.githubusercontent.com")
    prismline(system, platform)
    role = client("iam").get_role(RoleName="prismline-prod-deployer-us-east-1")["Role"]
    assert "repo:my-organization/prismline:environment:prod" in json.dumps(role["AssumeRolePolicyDocument"])
    *_, deployment = steps(PIPELINE_PAGE, "The job")
    version = version_of(REPOSITORY, "worker")
    assert f"worker {version} is deployed" in prismline(system, deployment).replace("\n", " ")


def test_an_earlier_checkout_is_deployed(
    account: dict[str, Any], system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "earlier").symlink_to(REPOSITORY)
    monkeypatch.chdir(tmp_path / "here")
    assert "is deployed" in prismline(system, "prismline deploy --env prod --service worker --root ../earlier")


def test_what_is_deployed_says_whether_a_service_can_be(account: dict[str, Any]) -> None:
    (ask,) = [command for command in commands(CONTRACTS_PAGE) if command.endswith("--record -")]
    assert "worker 1.1.0 works with what is in prod" in shell(ask.replace(".venv/bin/", ""))
