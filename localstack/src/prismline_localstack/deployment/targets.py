"""The two kinds of places to deploy to: AWS, and the system that the harness runs on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from prismline_localstack.deploy import emulator_parameters
from prismline_localstack.deployment.change_sets import Stacks
from prismline_localstack.deployment.deploying import Target
from prismline_localstack.deployment.record import Record
from prismline_localstack.functions.images import FolderImages
from prismline_localstack.home import Home
from prismline_localstack.state import State


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
