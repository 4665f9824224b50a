"""Releases are planned, deployed, recorded and rolled back. Images are built once and identified by their digests."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismline_deploy.change_sets import ChangeSet, Stacks
from prismline_deploy.containers import ContainerImages
from prismline_deploy.deploying import Target, deploy, rollback
from prismline_deploy.errors import DeployError
from prismline_deploy.record import CHOSEN_PARAMETERS, REMEMBERED, Record, Release, ReleaseHistory
from prismline_localstack.functions.images import FolderImages
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.state import make_client

pytestmark = pytest.mark.emulator

TEMPLATE = """
Parameters:
  Environment: {Type: String}
  ImageUri: {Type: String}
  Retention: {Type: Number, Default: 60}
Resources:
  Queue:
    Type: AWS::SQS::Queue
    Properties: {QueueName: !Sub "prismline-${Environment}-echo", MessageRetentionPeriod: !Ref Retention}
  Function:
    Type: AWS::Lambda::Function
    Properties:
      FunctionName: !Sub "prismline-${Environment}-echo"
      PackageType: Image
      Code: {ImageUri: !Ref ImageUri}
      Role: arn:aws:iam::000000000000:role/echo
Outputs:
  Table: {Value: !ImportValue {"Fn::Sub": "prismline-${Environment}-RunsTable"}}
"""
#: A template in which a queue depends on the image.
ENTANGLED = TEMPLATE.replace(
    "Type: AWS::SQS::Queue\n    Properties: {",
    "Type: AWS::SQS::Queue\n    Properties: {Tags: [{Key: image, Value: !Ref ImageUri}], ",
)


class DeploymentWorld:
    """A checkout with the real platform and a service `echo`, and an environment to deploy it to."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.root, self.env = folder / "checkout", env
        shutil.copytree(REPOSITORY / "platform", self.root / "platform")
        self.service = self.root / "services" / "echo"
        (self.service / "src").mkdir(parents=True)
        (self.service / "template.yaml").write_text(TEMPLATE)
        (self.service / "Dockerfile").write_text("FROM scratch\nCOPY services/echo/src /app/\n")
        self.change("1.0.0")
        parameters = {"Emulator": "true", "DeletionProtection": "false"}
        self.target = Target(
            environment=env["ENVIRONMENT"],
            stacks=Stacks(make_client("cloudformation", env)),
            s3=make_client("s3", env),
            record=Record(make_client("ssm", env), env["ENVIRONMENT"]),
            images=FolderImages(folder / "images"),
            parameters=parameters,
        )
        self.shown: list[ChangeSet] = []

    def change(self, version: str) -> None:
        """Change the version of the service, and its code."""
        (self.service / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
        (self.service / "src" / "echo.py").write_text(f"VERSION = {version!r}\n")

    def deploy(self, *services: str, execute: bool = True) -> None:
        self.shown = []
        deploy(self.target, self.root, self.show(execute=execute), services or None)

    def rollback(self, *, execute: bool = True) -> ReleaseHistory | None:
        self.shown = []
        return rollback(self.target, "echo", self.show(execute=execute))

    def show(self, *, execute: bool) -> Any:
        return lambda planned: self.shown.append(planned) or execute

    def changes(self) -> list[list[tuple[str, str]]]:
        """The changes that were shown: actions and resources of each stack."""
        return [[(change.action, change.resource) for change in planned.changes] for planned in self.shown]

    def deployed(self) -> ReleaseHistory:
        found = self.target.record.get("echo")
        assert found is not None
        return found

    def image(self) -> str:
        """The image of the deployed function."""
        name = f"prismline-{self.env['ENVIRONMENT']}-echo"
        return str(make_client("lambda", self.env).get_function(FunctionName=name)["Code"]["ImageUri"])

    def retention(self) -> str:
        sqs = make_client("sqs", self.env)
        url = sqs.get_queue_url(QueueName=f"prismline-{self.env['ENVIRONMENT']}-echo")["QueueUrl"]
        return str(
            sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]["MessageRetentionPeriod"]
        )


@pytest.fixture
def world(aws_env: dict[str, str], tmp_path: Path) -> DeploymentWorld:
    return DeploymentWorld(aws_env, tmp_path)


def test_a_plan_of_a_new_environment_shows_the_platform_and_creates_nothing(world: DeploymentWorld) -> None:
    world.deploy(execute=False)
    assert [planned.new for planned in world.shown] == [True]
    assert ("Add", "RunsTable") in world.changes()[0]
    assert world.target.stacks.state(world.target.stack("platform")) is None
    assert world.target.record.get("echo") is None


def test_a_release_is_deployed_after_the_platform_and_recorded(world: DeploymentWorld) -> None:
    world.deploy()
    assert [planned.stack for planned in world.shown] == [world.target.stack(name) for name in ("platform", "echo")]
    assert sorted(world.changes()[1]) == [("Add", "Function"), ("Add", "Queue")]
    assert (world.deployed().version, world.deployed().image) == ("1.0.0", world.image())
    assert world.image().startswith("prismline/echo@sha256:")
    world.deploy()
    assert world.changes() == [[], []], "a second deployment of the same release changes nothing"
    assert world.deployed().previous == []


def test_a_plan_shows_what_would_change_and_changes_nothing(world: DeploymentWorld) -> None:
    world.deploy()
    image, world_before = world.image(), world.deployed()
    world.change("1.1.0")
    world.deploy("echo", execute=False)
    assert world.changes() == [[("Modify", "Function")]]
    assert (world.image(), world.deployed()) == (image, world_before)


def test_a_published_image_is_deployed_without_another_build(world: DeploymentWorld) -> None:
    world.deploy()
    published = world.target.images.build(world.root, "echo")
    world.change("2.0.0")
    deploy(world.target, world.root, world.show(execute=True), ["echo"], {"echo": published})
    release = world.target.record.get("echo")
    assert release is not None
    assert (release.version, release.image) == ("2.0.0", published)


def test_a_rollback_restores_the_previous_release_and_keeps_queues_and_parameters(world: DeploymentWorld) -> None:
    world.deploy()
    first = world.image()
    world.change("1.1.0")
    template = world.service / "template.yaml"
    template.write_text(TEMPLATE.replace("Default: 60", "Default: 120"))
    deploy(world.target, world.root, world.show(execute=True), ["echo"])
    kept = world.retention()
    world.change("1.2.0")
    world.deploy("echo")
    assert world.deployed().version == "1.2.0"
    second = world.deployed().previous[0]

    assert world.rollback(execute=False) is None
    assert world.deployed().version == "1.2.0", "a plan restores nothing"
    restored = world.rollback()
    assert restored is not None
    assert (restored.version, restored.image, world.image()) == ("1.1.0", second.image, second.image)
    assert world.changes() == [[("Modify", "Function")]]
    assert world.retention() == kept
    assert world.rollback() is not None
    assert (world.deployed().version, world.image()) == ("1.0.0", first)
    with pytest.raises(DeployError, match="No previous release of echo is recorded"):
        world.rollback()


def test_a_changed_default_reaches_an_environment_and_a_chosen_value_stays(world: DeploymentWorld) -> None:
    world.deploy()
    template = world.service / "template.yaml"
    template.write_text(TEMPLATE.replace("Default: 60", "Default: 120"))
    world.deploy("echo")
    assert world.retention() == "120"

    chosen = replace(world.target, parameters={**world.target.parameters, "Retention": "120"})
    deploy(chosen, world.root, world.show(execute=True), ["echo"])
    template.write_text(TEMPLATE.replace("Default: 60", "Default: 180"))
    world.deploy("echo")
    assert world.retention() == "120", "a person chose this value, although it was the default at that time"
    world.deploy()
    assert world.retention() == "120"


def test_a_value_that_was_chosen_before_choices_were_recorded_stays(world: DeploymentWorld) -> None:
    world.target = replace(world.target, parameters={**world.target.parameters, "Retention": "90"})
    world.deploy()
    name = CHOSEN_PARAMETERS.format(environment=world.env["ENVIRONMENT"], stack="echo")
    make_client("ssm", world.env).delete_parameter(Name=name)
    (world.service / "template.yaml").write_text(TEMPLATE.replace("Default: 60", "Default: 120"))
    world.target = replace(world.target, parameters={"Emulator": "true", "DeletionProtection": "false"})
    world.deploy("echo")
    assert world.retention() == "90"


def test_a_parameter_gets_no_second_value_in_an_environment(world: DeploymentWorld) -> None:
    world.deploy()
    world.target = replace(world.target, parameters={**world.target.parameters, "ChunkDays": "200"})
    with pytest.raises(DeployError, match=r"ChunkDays is '365' in the stack .*-platform.* add --service platform"):
        world.deploy("echo")
    world.deploy()
    assert world.target.stacks.parameters(world.target.stack("platform"))["ChunkDays"] == "200"
    world.deploy("echo")


def test_a_rollback_that_would_change_a_queue_is_refused(world: DeploymentWorld) -> None:
    (world.service / "template.yaml").write_text(ENTANGLED)
    world.deploy()
    world.change("1.1.0")
    world.deploy()
    image = world.image()
    with pytest.raises(DeployError, match="would change more than code: Queue"):
        world.rollback()
    assert (world.image(), world.deployed().version) == (image, "1.1.0")
    world.change("1.2.0")
    world.deploy("echo")  # the stack can still be changed


def test_a_deployment_that_fails_names_the_resource_and_is_not_recorded(world: DeploymentWorld) -> None:
    world.deploy()
    image = world.image()
    world.change("1.1.0")
    alarm = 'Alarm: {Type: AWS::CloudWatch::Alarm, Properties: {Metrics: [{Id: m, Expression: "1"}]}}'
    (world.service / "template.yaml").write_text(TEMPLATE.replace("Outputs:", f"  {alarm}\nOutputs:"))
    with pytest.raises(DeployError, match=rf"{world.target.stack('echo')} was not deployed: Alarm \(AWS::CloudWatch"):
        world.deploy("echo")
    assert (world.deployed().version, world.image()) == ("1.0.0", image)


def test_a_first_creation_that_failed_is_repeated(world: DeploymentWorld) -> None:
    template = world.root / "platform" / "template.yaml"
    whole = template.read_text()
    alarm = """  Broken:
    Type: AWS::CloudWatch::Alarm
    DependsOn: [RunsTable, Bucket, DeploymentBucket]
    Properties: {Metrics: [{Id: m, Expression: "1"}]}
"""
    template.write_text(whole.replace("\nOutputs:\n", f"\n{alarm}\nOutputs:\n"))
    world.target = replace(world.target, parameters={"Emulator": "true"})
    with pytest.raises(DeployError, match="Broken"):
        world.deploy()
    template.write_text(whole)
    world.deploy()
    assert world.deployed().version == "1.0.0"
    table = make_client("dynamodb", world.env).describe_table(TableName=f"prismline-{world.env['ENVIRONMENT']}-runs")
    protected = str(table["Table"]["DeletionProtectionEnabled"]).lower()
    assert protected == "true", "the table is protected once its stack stands"
    world.deploy()
    assert world.changes() == [[], []]


def test_an_environment_whose_rights_would_reach_another_one_is_refused(world: DeploymentWorld, tmp_path: Path) -> None:
    world.deploy()
    name = world.env["ENVIRONMENT"]
    longer = replace(world.target, environment=f"{name}-alice")
    with pytest.raises(DeployError, match=f"rights of {name} also reach what begins with prismline-{name}-"):
        deploy(longer, world.root, world.show(execute=True))
    shorter = replace(world.target, environment=name[:-1])
    deploy(shorter, world.root, world.show(execute=False))


def test_a_stack_with_an_unsatisfied_import_is_refused_before_anything_changes(world: DeploymentWorld) -> None:
    template = TEMPLATE.replace("-RunsTable", "-NoTable")
    (world.service / "template.yaml").write_text(template)
    with pytest.raises(DeployError, match=r"The stack echo needs export .*-NoTable, which no stack creates"):
        world.deploy()
    assert world.target.stacks.state(world.target.stack("platform")) is None


def test_unknown_services_and_folders_without_a_checkout_are_refused(world: DeploymentWorld, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"There is no service nope\. The names are platform, echo"):
        world.deploy("nope")
    with pytest.raises(DeployError, match="is not a full checkout of Prismline"):
        deploy(world.target, tmp_path / "empty", world.show(execute=True))


def test_a_few_releases_are_remembered() -> None:
    deployed = ReleaseHistory(version="0", code={"ImageUri": "0"}, deployed_at="t")
    for number in range(1, 9):
        release = Release(version=str(number), code={"ImageUri": str(number)}, deployed_at="t")
        deployed = deployed.replaced_by(release, [])
    assert [each.version for each in deployed.previous] == ["7", "6", "5", "4", "3"]
    assert len(deployed.previous) == REMEMBERED


def test_an_image_is_built_and_pushed_once_and_named_by_its_digest(world: DeploymentWorld) -> None:
    ecr = make_client("ecr", world.env)
    commands: list[list[str]] = []

    def engine(arguments: Sequence[str], text: str | None = None) -> None:
        commands.append(list(arguments))
        if arguments[0] == "push":
            repository, _, tag = arguments[1].partition("/")[2].rpartition(":")
            manifest = json.dumps({"schemaVersion": 2, "config": {"digest": hashlib.sha256(tag.encode()).hexdigest()}})
            ecr.put_image(repositoryName=repository, imageManifest=manifest, imageTag=tag)
        if arguments[0] == "login":
            assert text, "the password is not among the arguments"

    images = ContainerImages(ecr, engine)
    world.change(f"1.0.0+{world.env['ENVIRONMENT']}".replace("+", "-"))
    first = images.build(world.root, "echo")
    assert [command[0] for command in commands] == ["build", "login", "push"]
    assert {"--provenance=false", "--pull"} <= set(commands[0])
    place, _, digest = first.partition("@")
    assert place.endswith("/prismline/echo")
    assert digest.startswith("sha256:")
    assert images.build(world.root, "echo") == first
    assert len(commands) == 3, "an image that exists is not built again"
    world.change(f"1.0.1-{world.env['ENVIRONMENT']}")
    assert images.build(world.root, "echo") != first
    described = ecr.describe_repositories(repositoryNames=["prismline/echo"])["repositories"][0]
    assert described["imageTagMutability"] == "IMMUTABLE"
    policy = json.loads(ecr.get_lifecycle_policy(repositoryName="prismline/echo")["lifecyclePolicyText"])
    assert [rule["selection"]["tagStatus"] for rule in policy["rules"]] == ["untagged", "any"]
    assert policy["rules"][1]["selection"]["countNumber"] > 10 * (1 + REMEMBERED), "rollbacks need earlier images"


def test_a_sparse_checkout_deploys_its_service_alone(world: DeploymentWorld) -> None:
    world.deploy()
    shutil.rmtree(world.root / "platform")
    world.change("1.1.0")
    world.deploy("echo")
    assert world.deployed().version == "1.1.0"
    with pytest.raises(DeployError, match="From a sparse one, name the services to deploy"):
        world.deploy()
