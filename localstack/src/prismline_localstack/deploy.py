"""Deploy the stacks: `platform/template.yaml`, then every `services/*/template.yaml`, through CloudFormation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from prismline_localstack.errors import HarnessError
from prismline_localstack.settings import is_aws

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.literals import CapabilityType
    from mypy_boto3_cloudformation.type_defs import ParameterTypeDef, WaiterConfigTypeDef
    from mypy_boto3_s3 import S3Client

#: Stacks that are deployed at the same time.
PARALLEL_STACKS = 4
#: Seconds between two looks at a stack under way, and how many looks: five minutes in all.
WAITER: WaiterConfigTypeDef = {"Delay": 0.2, "MaxAttempts": 1500}  # type: ignore[typeddict-item]
#: The services' stacks make roles with names.
CAPABILITIES: list[CapabilityType] = ["CAPABILITY_NAMED_IAM"]
#: States of a stack that never came up: it can only be deleted.
STILLBORN_STATES = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "REVIEW_IN_PROGRESS"})


def environment_name(output: str) -> str:
    """The environment variable for a stack output: `RunsTable` -> `RUNS_TABLE`, `DLQUrl` -> `DLQ_URL`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", output).upper()


def merge_outputs(outputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Environment variables from the outputs of stacks, by stack name. Raises HarnessError if two stacks differ."""
    merged: dict[str, str] = {}
    origin: dict[str, str] = {}
    for stack, values in outputs.items():
        for output, value in values.items():
            name = environment_name(output)
            if merged.setdefault(name, value) != value:
                raise HarnessError(
                    f"The stacks {origin[name]} and {stack} both have an output that becomes {name}, with different "
                    f"values. Rename one of them."
                )
            origin.setdefault(name, stack)
    return merged


def templates(root: Path) -> dict[str, Path]:
    """The templates of the services below `root`, by service."""
    return {path.parent.name: path for path in sorted(root.glob("services/*/template.yaml"))}


def upload_state_machines(s3: S3Client, root: Path, bucket: str) -> dict[str, str]:
    """Put the state machine definition of each service into the bucket. Return its key, by service.

    The key contains a hash of the content, so that a changed definition changes the stack.
    """
    keys = {}
    for path in sorted(root.glob("services/*/statemachine/*.asl.json")):
        body = path.read_bytes()
        keys[path.parents[1].name] = key = f"state-machines/{hashlib.sha256(body).hexdigest()[:16]}/{path.name}"
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    return keys


def emulator_parameters(endpoint: str) -> dict[str, str]:
    """Parameters of templates for what `endpoint` lacks if it is an emulator: Athena, alarms that calculate, and TLS.

    What is on an emulator may be deleted.
    """
    if is_aws(endpoint):
        return {}
    return {"DeploySearch": "false", "DeletionProtection": "false", "MetricMath": "false", "Emulator": "true"}


def deploy(
    cloudformation: CloudFormationClient,
    s3: S3Client,
    root: Path,
    environment: str,
    parameters: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Create or update all stacks of `root` and return their outputs as environment variables.

    `parameters` go to every template that declares them, with `Environment`, `DeployFunctions=false` (the harness runs
    the services itself), `DeploySearch=false` (emulators have no Athena), `DeletionProtection=false` and what else an
    emulator lacks. Raises HarnessError with the reason of the first resource that failed.
    """
    given = {
        "Environment": environment,
        "DeployFunctions": "false",
        "DeploySearch": "false",
        "DeletionProtection": "false",
        **emulator_parameters(cloudformation.meta.endpoint_url),
        **(parameters or {}),
    }

    def deploy_one(name: str, template: Path) -> dict[str, str]:
        stack = f"prismline-{environment}-{name}"
        try:
            definition = {"StateMachineKey": definitions[name]} if name in definitions else {}
            return _deploy_stack(cloudformation, stack, template.read_text(), given | definition)
        except (ClientError, BotoCoreError) as error:
            raise HarnessError(f"The stack {stack} ({template}) was not deployed: {error}") from error

    definitions: dict[str, str] = {}
    outputs = {"platform": deploy_one("platform", root / "platform" / "template.yaml")}
    definitions |= upload_state_machines(s3, root, outputs["platform"].get("DeploymentBucket", ""))
    services = templates(root)
    with ThreadPoolExecutor(PARALLEL_STACKS) as pool:
        outputs |= zip(services, pool.map(deploy_one, services, services.values()), strict=True)
    return merge_outputs(outputs)


def _deploy_stack(
    cloudformation: CloudFormationClient, stack: str, template: str, given: Mapping[str, str]
) -> dict[str, str]:
    # Not ValidateTemplate: it refuses types that an emulator lacks, also where a condition leaves them out.
    summary = cloudformation.get_template_summary(TemplateBody=template)
    declared = {entry["ParameterKey"] for entry in summary["Parameters"]}
    parameters: list[ParameterTypeDef] = [
        {"ParameterKey": key, "ParameterValue": value} for key, value in given.items() if key in declared
    ]
    state = _state(cloudformation, stack)
    if state in STILLBORN_STATES:
        cloudformation.delete_stack(StackName=stack)
        cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig=WAITER)
        state = None
    try:
        if state is None:
            cloudformation.create_stack(
                StackName=stack, TemplateBody=template, Parameters=parameters, Capabilities=CAPABILITIES
            )
            cloudformation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig=WAITER)
        else:
            cloudformation.update_stack(
                StackName=stack, TemplateBody=template, Parameters=parameters, Capabilities=CAPABILITIES
            )
            cloudformation.get_waiter("stack_update_complete").wait(StackName=stack, WaiterConfig=WAITER)
    except WaiterError as error:
        raise HarnessError(f"The stack {stack} was not deployed: {_failure(cloudformation, stack)}") from error
    except ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise
    outputs = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("Outputs", [])
    return {output["OutputKey"]: output["OutputValue"] for output in outputs}


def _state(cloudformation: CloudFormationClient, stack: str) -> str | None:
    """The status of the stack. None if there is no such stack."""
    try:
        return cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise


def _failure(cloudformation: CloudFormationClient, stack: str) -> str:
    """The first resource that failed in the latest attempt, and the reason."""
    failure = "see its events for the reason."
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
    for event in (event for page in pages for event in page["StackEvents"]):  # the newest first
        status = event.get("ResourceStatus", "")
        if event.get("ResourceType") == "AWS::CloudFormation::Stack":
            if status in {"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS"}:
                break
        elif status.endswith("_FAILED"):
            failure = f"{event.get('LogicalResourceId')} ({event.get('ResourceType')}): " + event.get(
                "ResourceStatusReason", "no reason given"
            )
    return failure
