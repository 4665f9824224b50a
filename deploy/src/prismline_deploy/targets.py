"""Find the target of a deployment: a system that another distribution knows, or else the AWS account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import entry_points

import boto3

from prismline_deploy.change_sets import Stacks
from prismline_deploy.containers import ContainerImages
from prismline_deploy.deploying import Target
from prismline_deploy.endpoints import emulator_parameters
from prismline_deploy.errors import DeployError
from prismline_deploy.record import Record

#: Pattern of the names of environments, as in the templates.
ENVIRONMENT_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
#: Most characters of a bucket's name.
BUCKET_NAME = 63
#: Entry points of this group name a function `(environment, parameters) -> Target | None`. It returns None for an
#: environment that it does not know.
ENTRY_POINTS = "prismline.targets"


def longest_name(region: str) -> int:
    """Most characters of an environment's name, so that its longest bucket name is allowed."""
    return BUCKET_NAME - len(f"prismline--deploy-{12 * '0'}-{region}")


def account_target(environment: str, parameters: Mapping[str, str]) -> Target:
    """The AWS account of the credentials that boto3 finds. Raises DeployError without a Region.

    `AWS_ENDPOINT_URL` may name an emulator instead. Features that emulators lack are then disabled.
    """
    session = boto3.Session()
    if session.region_name is None:
        raise DeployError("No Region is set. Set AWS_REGION, or a profile with the Region to deploy to.")
    if len(environment) > (longest := longest_name(session.region_name)):
        raise DeployError(
            f"{environment!r} is too long: in {session.region_name} the name of an environment has at most {longest}"
            f" characters, because a name of a bucket has at most {BUCKET_NAME}."
        )
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
    """The target that an entry point finds for this environment, or else the AWS account.

    Raises DeployError for a name that no environment can have.
    """
    if not ENVIRONMENT_NAME.fullmatch(environment):
        raise DeployError(
            f"{environment!r} cannot be the name of an environment: use 1 to 20 lower-case letters, digits and"
            " hyphens, starting with a letter."
        )
    for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        found: Target | None = entry_point.load()(environment, parameters)
        if found is not None:
            return found
    return account_target(environment, parameters)
