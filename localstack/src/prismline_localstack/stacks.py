"""Create the stacks without functions: `platform/template.yaml`, then every `services/*/template.yaml`.

`prismline_deploy` deploys with functions, as to AWS: it builds images, makes change sets in the order of the stacks,
and records releases. Where the services run as processes, none of this is necessary. This module creates the stacks of
all services at the same time, so that the system starts sooner.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from prismline_contracts.pools import pool_queue
from prismline_deploy.change_sets import Stacks
from prismline_deploy.endpoints import emulator_parameters
from prismline_deploy.errors import DeployError
from prismline_deploy.pool_template import POOL_TEMPLATE
from prismline_deploy.state_machines import upload_state_machines
from prismline_localstack.errors import HarnessError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

#: Stacks that are created at the same time.
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


def create_stacks(
    cloudformation: CloudFormationClient,
    s3: S3Client,
    root: Path,
    environment: str,
    parameters: Mapping[str, str] | None = None,
    pools: Collection[str] = (),
) -> dict[str, str]:
    """Create or update all stacks of `root` and return their outputs as environment variables.

    Each template gets the `parameters` that it declares, and `Environment`, `DeployFunctions=false` (the harness runs
    the services itself), `DeploySearch=false`, `DeletionProtection=false` and `emulator_parameters`. Each of `pools`
    gets a stack of its own. Raises DeployError with the reason of the first resource that failed.
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

    def create(name: str, template: Path, **own: str) -> dict[str, str]:
        stack = f"prismline-{environment}-{name}"
        try:
            definition = {"StateMachineKey": definitions[name]} if name in definitions else {}
            return stacks.put(stack, given | definition | own, template.read_text())
        except (ClientError, BotoCoreError) as error:
            raise DeployError(f"The stack {stack} ({template}) was not deployed: {error}") from error

    definitions: dict[str, str] = {}
    outputs = {"platform": create("platform", root / "platform" / "template.yaml")}
    definitions |= upload_state_machines(s3, root, outputs["platform"].get("DeploymentBucket", ""))
    services = templates(root)
    with ThreadPoolExecutor(PARALLEL_STACKS) as pool:
        outputs |= zip(services, pool.map(create, services, services.values()), strict=True)
    for name in pools:
        create(pool_queue(name), root / POOL_TEMPLATE, Pool=name)
    return merge_outputs(outputs)
