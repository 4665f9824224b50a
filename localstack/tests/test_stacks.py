"""Stacks are deployed and updated, and failures name the resource and the reason."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prismline_deploy.errors import DeployError
from prismline_localstack.errors import HarnessError
from prismline_localstack.functions.parameters import parameters_for
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.stacks import create_stacks, environment_name, merge_outputs
from prismline_localstack.state import make_client

TEMPLATE = """
Parameters:
  Environment: {Type: String}
  DeployFunctions: {Type: String, Default: "true"}
  Retention: {Type: Number, Default: 60}
Conditions:
  WithFunction: !Equals [!Ref DeployFunctions, "true"]
Resources:
  Queue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: !Sub "prismline-${Environment}-echo"
      MessageRetentionPeriod: !Ref Retention
  FunctionQueue:
    Type: AWS::SQS::Queue
    Condition: WithFunction
    Properties: {QueueName: !Sub "prismline-${Environment}-function"}
Outputs:
  EchoQueueName: {Value: !GetAtt Queue.QueueName}
  EchoTable: {Value: !ImportValue {"Fn::Sub": "prismline-${Environment}-RunsTable"}}
"""

BROKEN_RESOURCE = """
  Rule:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {source: [x]}
      Targets: [{Id: t, Arn: !ImportValue no-such-export}]
"""


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("Bucket", "BUCKET"),
        ("RunsTable", "RUNS_TABLE"),
        ("AlarmTopicArn", "ALARM_TOPIC_ARN"),
        ("DLQUrl", "DLQ_URL"),
        ("SplitDLQUrl", "SPLIT_DLQ_URL"),
        ("S3Bucket", "S3_BUCKET"),
        ("Gsi1Name", "GSI1_NAME"),
    ],
)
def test_an_output_becomes_an_environment_variable(output: str, name: str) -> None:
    assert environment_name(output) == name


def test_outputs_of_all_stacks_are_merged() -> None:
    outputs = {"a": {"RunsTable": "runs", "Bucket": "b"}, "b": {"QueueUrl": "q", "Bucket": "b"}}
    assert merge_outputs(outputs) == {"RUNS_TABLE": "runs", "BUCKET": "b", "QUEUE_URL": "q"}


def test_outputs_that_contradict_each_other_are_an_error_that_names_both_stacks() -> None:
    with pytest.raises(HarnessError, match=r"The stacks splitter and worker both .* QUEUE_URL"):
        merge_outputs({"splitter": {"QueueUrl": "a"}, "worker": {"QueueURL": "b"}})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with the real platform and a service `echo`."""
    shutil.copytree(REPOSITORY / "platform", tmp_path / "platform")
    (tmp_path / "services" / "echo").mkdir(parents=True)
    (tmp_path / "services" / "echo" / "template.yaml").write_text(TEMPLATE)
    return tmp_path


def run_deploy(aws_env: dict[str, str], root: Path, **parameters: str) -> dict[str, str]:
    return create_stacks(
        make_client("cloudformation", aws_env), make_client("s3", aws_env), root, aws_env["ENVIRONMENT"], parameters
    )


def retention(aws_env: dict[str, str], queue: str) -> str:
    sqs: Any = make_client("sqs", aws_env)
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]["MessageRetentionPeriod"]


@pytest.mark.emulator
def test_platform_and_services_are_deployed_without_functions(aws_env: dict[str, str], root: Path) -> None:
    environment = aws_env["ENVIRONMENT"]
    outputs = run_deploy(aws_env, root)
    assert outputs == {
        "EVENT_BUS": f"prismline-{environment}",
        "RUNS_TABLE": f"prismline-{environment}-runs",
        "BUCKET": f"prismline-{environment}-000000000000-us-east-1",
        "DEPLOYMENT_BUCKET": f"prismline-{environment}-deploy-000000000000-us-east-1",
        "ALERTING_ALARM_TOPIC_ARN": f"arn:aws:sns:us-east-1:000000000000:prismline-{environment}-alerting-alarms",
        "ALARM_TOPIC_ARN": f"arn:aws:sns:us-east-1:000000000000:prismline-{environment}-alarms",
        "VALKEY_URL": "none",
        "ECHO_QUEUE_NAME": f"prismline-{environment}-echo",
        "ECHO_TABLE": f"prismline-{environment}-runs",
    }
    urls = make_client("sqs", aws_env).list_queues(QueueNamePrefix=f"prismline-{environment}-")["QueueUrls"]
    assert [url.rsplit("/", 1)[-1] for url in urls] == [f"prismline-{environment}-echo"]


@pytest.mark.emulator
def test_the_platform_creates_the_resources_that_services_need(aws_env: dict[str, str], root: Path) -> None:
    outputs = run_deploy(aws_env, root)
    table = make_client("dynamodb", aws_env).describe_table(TableName=outputs["RUNS_TABLE"])["Table"]
    assert [key["AttributeName"] for key in table["KeySchema"]] == ["PK", "SK"]
    indexes = {index["IndexName"]: index for index in table["GlobalSecondaryIndexes"]}
    assert sorted(indexes) == ["GSI1", "GSI2"]
    for name, index in indexes.items():
        assert [key["AttributeName"] for key in index["KeySchema"]] == [f"{name}_PK", f"{name}_SK"]
        assert index["Projection"] == {"ProjectionType": "ALL"}
    s3 = make_client("s3", aws_env)
    assert "EventBridgeConfiguration" in s3.get_bucket_notification_configuration(Bucket=outputs["BUCKET"])
    assert all(s3.get_public_access_block(Bucket=outputs["BUCKET"])["PublicAccessBlockConfiguration"].values())
    path = f"/prismline/{aws_env['ENVIRONMENT']}/platform"
    parameters = make_client("ssm", aws_env).get_parameters_by_path(Path=path)["Parameters"]
    assert {entry["Name"].removeprefix(path): entry["Value"] for entry in parameters} == {
        "/bus": outputs["EVENT_BUS"],
        "/runs-table": outputs["RUNS_TABLE"],
        "/bucket": outputs["BUCKET"],
        "/deployment-bucket": outputs["DEPLOYMENT_BUCKET"],
        "/alarm-topic": outputs["ALARM_TOPIC_ARN"],
        "/valkey-url": outputs["VALKEY_URL"],
    }


@pytest.mark.emulator
def test_a_pipeline_has_a_role_if_its_issuer_is_given(aws_env: dict[str, str], root: Path) -> None:
    iam = make_client("iam", aws_env)
    name = f"prismline-{aws_env['ENVIRONMENT']}-deployer-us-east-1"
    run_deploy(aws_env, root)
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.get_role(RoleName=name)
    subjects = ["repo:a/b:environment:prod", "repo:a/b:ref:refs/heads/main"]
    run_deploy(aws_env, root, DeployerIssuer="token.example.org", DeployerSubjects=",".join(subjects))
    trust: Any = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    (statement,) = trust["Statement"]
    assert statement["Principal"]["Federated"].endswith(":oidc-provider/token.example.org")
    assert statement["Condition"]["StringEquals"]["token.example.org:sub"] == subjects


@pytest.mark.emulator
def test_the_boundary_without_a_region_remains_until_a_person_deletes_it(aws_env: dict[str, str], root: Path) -> None:
    iam = make_client("iam", aws_env)
    prefix = f"prismline-{aws_env['ENVIRONMENT']}"
    boundary = f"arn:aws:iam::000000000000:policy/{prefix}-boundary"
    template = root / "platform" / "template.yaml"
    present = template.read_text()
    template.write_text(re.sub(r'(RoleName|PolicyName|DashboardName)(: .*)-\$\{AWS::Region\}"', r'\1\2"', present))
    run_deploy(aws_env, root)
    iam.get_role(RoleName=f"{prefix}-operator")
    template.write_text(present)
    run_deploy(aws_env, root)
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.get_role(RoleName=f"{prefix}-operator")
    iam.get_role(RoleName=f"{prefix}-operator-us-east-1")
    iam.get_policy(PolicyArn=f"{boundary}-us-east-1")
    iam.delete_policy(PolicyArn=boundary)


@pytest.mark.emulator
def test_deploying_again_changes_only_what_changed(aws_env: dict[str, str], root: Path) -> None:
    outputs = run_deploy(aws_env, root)
    assert retention(aws_env, outputs["ECHO_QUEUE_NAME"]) == "60"
    assert run_deploy(aws_env, root) == outputs
    assert run_deploy(aws_env, root, Retention="120", Unknown="x") == outputs
    assert retention(aws_env, outputs["ECHO_QUEUE_NAME"]) == "120"


@pytest.mark.emulator
def test_a_failed_deployment_names_stack_resource_and_reason_and_can_be_repeated(
    aws_env: dict[str, str], root: Path
) -> None:
    template = root / "services" / "echo" / "template.yaml"
    template.write_text(TEMPLATE.replace("Outputs:", BROKEN_RESOURCE + "Outputs:"))
    with pytest.raises(DeployError, match=rf"prismline-{aws_env['ENVIRONMENT']}-echo .*no-such-export"):
        run_deploy(aws_env, root)
    template.write_text(TEMPLATE)
    assert "ECHO_QUEUE_NAME" in run_deploy(aws_env, root)


@pytest.mark.emulator
def test_a_failed_update_is_explained_by_its_own_failure_not_by_an_earlier_one(
    aws_env: dict[str, str], root: Path
) -> None:
    run_deploy(aws_env, root)
    template = root / "services" / "echo" / "template.yaml"
    for export in ("first-missing", "second-missing"):
        broken = BROKEN_RESOURCE.replace("no-such-export", export)
        template.write_text(TEMPLATE.replace("Outputs:", broken + "Outputs:"))
        with pytest.raises(DeployError, match=rf"-echo was not deployed: .*{export}"):
            run_deploy(aws_env, root)


@pytest.mark.emulator
def test_an_invalid_template_is_an_error_that_names_it(aws_env: dict[str, str], root: Path) -> None:
    (root / "services" / "echo" / "template.yaml").write_text("Resources: [")
    with pytest.raises(DeployError, match=r"services/echo/template\.yaml"):
        run_deploy(aws_env, root)


def test_settings_of_functions_become_parameters_of_their_templates() -> None:
    settings = {"MAX_ATTEMPTS": "7", "CAPTION_BASE_URL": "http://127.0.0.1:1/v1", "URLS_ALLOW_PRIVATE": "true"}
    assert parameters_for(REPOSITORY, settings) == {"MaxAttempts": "7", "CaptionBaseUrl": "http://127.0.0.1:1/v1"}


def test_the_container_that_deploys_needs_no_package_that_its_image_lacks() -> None:
    """The lock of its image has no YAML parser, and none of the packages of services."""
    program = "import sys; sys.modules['yaml'] = None; import prismline_localstack.provision"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
