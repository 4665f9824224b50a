"""Deploy the stacks without functions: `platform/template.yaml`, then every `services/*/template.yaml`.

`prismline_localstack.deployment` deploys with functions, as to AWS: it builds images, makes change sets in the order of
the stacks, and records releases. Where the services run as processes, none of this is necessary. This module deploys
the stacks of all services at the same time, so that the system starts sooner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from prismline_localstack.deployment.change_sets import Stacks
from prismline_localstack.errors import HarnessError
from prismline_localstack.settings import is_aws

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

#: Stacks that are deployed at the same time.
PARALLEL_STACKS = 4


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
                    f"The stacks {origin[name]} and {stack} both have an output for {name}, with different values."
                    " Rename one of them."
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
    """Template parameters for an emulator at `endpoint`. AWS itself gets none.

    They disable the features that emulators lack: Athena, alarms on metric math, and TLS. They also disable deletion
    protection, because data on an emulator is disposable.
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

    Each template gets the `parameters` that it declares, and `Environment`, `DeployFunctions=false` (the harness runs
    the services itself), `DeploySearch=false`, `DeletionProtection=false` and `emulator_parameters`. Raises
    HarnessError with the reason of the first resource that failed.
    """
    given = {
        "Environment": environment,
        "DeployFunctions": "false",
        "DeploySearch": "false",
        "DeletionProtection": "false",
        **emulator_parameters(cloudformation.meta.endpoint_url),
        **(parameters or {}),
    }

    stacks = Stacks(cloudformation)

    def deploy_one(name: str, template: Path) -> dict[str, str]:
        stack = f"prismline-{environment}-{name}"
        try:
            definition = {"StateMachineKey": definitions[name]} if name in definitions else {}
            return stacks.put(stack, given | definition, template.read_text())
        except (ClientError, BotoCoreError) as error:
            raise HarnessError(f"The stack {stack} ({template}) was not deployed: {error}") from error

    definitions: dict[str, str] = {}
    outputs = {"platform": deploy_one("platform", root / "platform" / "template.yaml")}
    definitions |= upload_state_machines(s3, root, outputs["platform"].get("DeploymentBucket", ""))
    services = templates(root)
    with ThreadPoolExecutor(PARALLEL_STACKS) as pool:
        outputs |= zip(services, pool.map(deploy_one, services, services.values()), strict=True)
    return merge_outputs(outputs)
