"""Deploy to the system that the harness runs: its emulator is the account, and its images are folders."""

from __future__ import annotations

from collections.abc import Mapping

from prismline_deploy.change_sets import Stacks
from prismline_deploy.deploying import Target
from prismline_deploy.endpoints import emulator_parameters
from prismline_deploy.record import Record
from prismline_localstack.errors import NotRunningError
from prismline_localstack.functions.images import FolderImages
from prismline_localstack.harness import load_state
from prismline_localstack.home import Home
from prismline_localstack.state import State


def local_target(state: State, home: Home, parameters: Mapping[str, str]) -> Target:
    """The emulator of a system on this machine."""
    return Target(
        environment=state.environment,
        stacks=Stacks(state.client("cloudformation")),
        s3=state.client("s3"),
        record=Record(state.client("ssm"), state.environment),
        images=FolderImages(home.images),
        parameters={**emulator_parameters(state.endpoint), **parameters},
    )


def find_target(environment: str, parameters: Mapping[str, str]) -> Target | None:
    """The system in `PRISMLINE_HOME` if it runs and is of this environment: the entry point in `prismline.targets`."""
    try:
        state = load_state()
    except NotRunningError:
        return None
    return local_target(state, Home.at(None), parameters) if state.environment == environment else None
