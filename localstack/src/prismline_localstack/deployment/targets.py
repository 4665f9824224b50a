"""The two targets of a deployment: AWS, and the system that the harness runs on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

import boto3

from prismline_localstack.deploy import emulator_parameters
from prismline_localstack.deployment.change_sets import Stacks
from prismline_localstack.deployment.containers import ContainerImages
from prismline_localstack.deployment.deploying import Target
from prismline_localstack.deployment.record import Record
from prismline_localstack.errors import HarnessError, NotRunningError
from prismline_localstack.functions.images import FolderImages
from prismline_localstack.harness import load_state
from prismline_localstack.home import Home
from prismline_localstack.state import State

#: Pattern of the names of environments, as in the templates.
ENVIRONMENT_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


def local_target(state: State, home: Home, parameters: Mapping[str, str]) -> Target:
    """The emulator of a system on this machine. Its images are folders."""
    return Target(
        environment=state.environment,
        stacks=Stacks(state.client("cloudformation")),
        s3=state.client("s3"),
        record=Record(state.client("ssm"), state.environment),
        images=FolderImages(home.images),
        parameters={**emulator_parameters(state.endpoint), **parameters},
    )


def account_target(environment: str, parameters: Mapping[str, str]) -> Target:
    """The AWS account of the credentials that boto3 finds. Raises HarnessError without a Region.

    `AWS_ENDPOINT_URL` may name an emulator instead. Features that emulators lack are then disabled.
    """
    session = boto3.Session()
    if session.region_name is None:
        raise HarnessError("No Region is set. Set AWS_REGION, or a profile with the Region to deploy to.")
    cloudformation = session.client("cloudformation")
    return Target(
        environment=environment,
        stacks=Stacks(cloudformation),
        s3=session.client("s3"),
        record=Record(session.client("ssm"), environment),
        images=ContainerImages(session.client("ecr")),
        parameters={**emulator_parameters(cloudformation.meta.endpoint_url), **parameters},
    )


def find_target(environment: str, parameters: Mapping[str, str]) -> Target:
    """The system that runs on this machine if it is of this environment, or else the AWS account.

    Raises HarnessError for a name that no environment can have.
    """
    if not ENVIRONMENT_NAME.fullmatch(environment):
        raise HarnessError(
            f"{environment!r} cannot be the name of an environment: use 1 to 20 lower-case letters, digits and"
            " hyphens, starting with a letter."
        )
    try:
        state = load_state()
    except NotRunningError:
        state = None
    if state is not None and state.environment == environment:
        return local_target(state, Home.at(None), parameters)
    return account_target(environment, parameters)
