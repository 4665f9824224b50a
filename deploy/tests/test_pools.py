"""The stack of a pool is deployed by itself, with an image that somebody has built."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from prismline_deploy import commands
from prismline_deploy.change_sets import Change, ChangeSet
from prismline_deploy.errors import DeployError
from prismline_deploy.pools import deploy_pool, described_functions, rollback_pool
from prismline_deploy.record import ReleaseHistory

REPOSITORY = Path(__file__).parents[2]
IMAGE, NEWER = ("registry/pool@sha256:" + digit * 64 for digit in "01")


class FakeStacks:
    """Remembers what is planned, and which plans are executed. `missing`: stacks that do not exist."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.planned: list[tuple[str, dict[str, str]]] = []
        self.executed: list[Any] = []
        self.changes: list[Change] = []

    def state(self, stack: str) -> str | None:
        return None if stack in self.missing else "CREATE_COMPLETE"

    def chosen(self, stack: str) -> set[str]:
        return set()

    def plan(
        self, stack: str, given: dict[str, str], template: str | None = None, chosen: set[str] | None = None
    ) -> ChangeSet:
        self.planned.append((stack, given))
        return ChangeSet(stack=stack, name="c", new=True, changes=self.changes)

    def outputs(self, stack: str) -> dict[str, str]:
        return {"Bucket": "data"} if stack == "prismline-prod-platform" else {}

    def execute(self, planned: ChangeSet) -> None:
        self.executed.append(planned.stack)

    def discard(self, planned: ChangeSet) -> None:
        pass


class FakeS3:
    """The objects of the bucket of the environment."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803  boto3's names
        assert Bucket == "data"
        self.objects[Key] = Body

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        assert Bucket == "data"
        return {"Body": BytesIO(self.objects[Key])}


class FakeRecord:
    """The record of pools."""

    def __init__(self) -> None:
        self.pools: dict[str, ReleaseHistory] = {}

    def get_pool(self, pool: str) -> ReleaseHistory | None:
        return self.pools.get(pool)

    def put_pool(self, pool: str, history: ReleaseHistory) -> None:
        self.pools[pool] = history


def target(stacks: FakeStacks) -> Any:
    return SimpleNamespace(
        environment="prod",
        stacks=stacks,
        record=FakeRecord(),
        s3=FakeS3(),
        parameters={"Concurrency": "5"},
        stack=lambda name: f"prismline-prod-{name}",
    )


@pytest.mark.parametrize("accepted", [True, False])
def test_the_stack_of_a_pool_is_changed_if_its_change_set_is_accepted(accepted: bool) -> None:
    stacks = FakeStacks()
    deploy_pool(target(stacks), REPOSITORY, "red", IMAGE, lambda _: accepted)
    ((stack, given),) = stacks.planned
    assert stack == "prismline-prod-pool-red"
    assert given == {"Environment": "prod", "Pool": "red", "ImageUri": IMAGE, "Concurrency": "5"}
    assert stacks.executed == ([stack] if accepted else [])


@pytest.mark.parametrize("name", ["Red", "a_b", "r", "a" * 25])
def test_a_name_that_no_pool_can_have_is_refused(name: str) -> None:
    with pytest.raises(DeployError, match="cannot be the name of a pool"):
        deploy_pool(target(FakeStacks()), REPOSITORY, name, IMAGE, lambda _: True)


def test_a_pool_needs_the_services_of_its_environment() -> None:
    with pytest.raises(DeployError, match="prod has no services yet"):
        deploy_pool(target(FakeStacks("prismline-prod-dlq-consumer")), REPOSITORY, "red", IMAGE, lambda _: True)


@pytest.mark.parametrize("options", [["--pool", "red"], ["--pool", "red", "--image", IMAGE, "--service", "worker"]])
def test_a_pool_is_deployed_by_itself_and_with_an_image(options: list[str]) -> None:
    app = typer.Typer()
    commands.register(app)
    done = CliRunner().invoke(app, ["deploy", "--env", "prod", *options])
    assert done.exit_code != 0
    assert "Deploy a pool by itself, and name its image" in str(done.exception)


def test_a_pool_gets_the_image_that_it_had_before() -> None:
    stacks = FakeStacks()
    prod = target(stacks)
    for image in (IMAGE, NEWER):
        deploy_pool(prod, REPOSITORY, "red", image, lambda _: True)
    assert rollback_pool(prod, "red", lambda _: False) is None
    assert prod.record.pools["red"].image == NEWER, "only the change set was shown"
    restored = rollback_pool(prod, "red", lambda _: True)
    assert restored is not None
    assert stacks.planned[-1] == ("prismline-prod-pool-red", {"ImageUri": IMAGE}), "other parameters stay"
    assert (prod.record.pools["red"].image, len(stacks.executed)) == (IMAGE, 3)
    with pytest.raises(DeployError, match="No previous release of pool-red is recorded in prod"):
        rollback_pool(prod, "red", lambda _: True)


def test_a_change_set_that_is_refused_is_not_recorded(tmp_path: Path) -> None:
    prod = target(FakeStacks())
    deploy_pool(prod, REPOSITORY, "red", IMAGE, lambda _: False, described_functions(described(tmp_path, "a")))
    assert prod.record.pools == {}
    assert prod.s3.objects == {}


def description(digit: str, name: str = "count") -> dict[str, Any]:
    """What `python -m prismline.describe` prints of a function."""
    limits = {"timeout": 60, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024}
    return {"name": name, "code": digit * 64, "item": {}, "parameters": {}, "limits": limits}


def described(folder: Path, *digits: str) -> Path:
    """A file with a description for each digit of a digest."""
    file = folder / "functions.jsonl"
    file.write_text("".join(json.dumps(description(digit)) + "\n" for digit in digits))
    return file


def test_the_functions_of_an_image_are_registered_with_it_and_restored_with_it(tmp_path: Path) -> None:
    prod = target(FakeStacks())
    for image, digit in ((IMAGE, "a"), (NEWER, "b")):
        deploy_pool(prod, REPOSITORY, "red", image, lambda _: True, described_functions(described(tmp_path, digit)))
    objects = prod.s3.objects
    assert json.loads(objects["workloads/count/latest.json"])["code"] == "b" * 64
    assert objects["workloads/count/latest.json"] == objects[f"workloads/count/{'b' * 64}.json"]
    assert prod.record.pools["red"].registered == {"count": "b" * 64}
    assert rollback_pool(prod, "red", lambda _: True) is not None
    assert json.loads(objects["workloads/count/latest.json"])["code"] == "a" * 64
    assert json.loads(objects[f"workloads/count/{'b' * 64}.json"])["code"] == "b" * 64, "its runs go on"
    assert prod.record.pools["red"].registered == {"count": "a" * 64}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "describes no function"),
        (["count"], "Line 1 of .* does not describe a function"),
        ([json.dumps(description("a")), "{}"], "Line 2 of .* does not describe a function"),
        ([json.dumps(description("a"))] * 2, "Line 2 .*: count has two descriptions"),
        ([json.dumps(description("a", name="urls"))], "urls is not the name of an entry point"),
        ([json.dumps(description("a", name="seeing:count"))], "seeing:count is not the name of an entry point"),
    ],
)
def test_a_file_that_does_not_describe_functions_is_refused(tmp_path: Path, lines: list[str], reason: str) -> None:
    file = tmp_path / "functions.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(DeployError, match=reason):
        described_functions(file)
    with pytest.raises(DeployError, match=r"missing.jsonl cannot be read: No such file"):
        described_functions(tmp_path / "missing.jsonl")


def test_functions_are_registered_only_with_a_pool(tmp_path: Path) -> None:
    app = typer.Typer()
    commands.register(app)
    done = CliRunner().invoke(app, ["deploy", "--env", "prod", "--functions", str(described(tmp_path, "a"))])
    assert "add --pool NAME" in str(done.exception)


def test_a_rollback_that_would_change_more_than_code_is_refused() -> None:
    stacks = FakeStacks()
    prod = target(stacks)
    for image in (IMAGE, NEWER):
        deploy_pool(prod, REPOSITORY, "red", image, lambda _: True)
    stacks.changes = [Change("Modify", "Queue", "AWS::SQS::Queue", "True")]
    with pytest.raises(DeployError, match="would change more than code: Queue"):
        rollback_pool(prod, "red", lambda _: True)
    assert prod.record.pools["red"].image == NEWER


@pytest.mark.parametrize("options", [[], ["--pool", "red", "--service", "worker"]])
def test_either_a_service_or_a_pool_is_rolled_back(options: list[str]) -> None:
    app = typer.Typer()
    commands.register(app)
    done = CliRunner().invoke(app, ["rollback", "--env", "prod", *options])
    assert done.exit_code != 0
    assert "Name what to roll back" in str(done.exception)
