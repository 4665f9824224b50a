"""Convert errors of a deployment, and of the harness, to a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prismline_cli.output import ExitCode, fail
from prismline_deploy.errors import DeployError


@contextmanager
def deploy_errors() -> Iterator[None]:
    """End the command with a sentence if the block raises DeployError."""
    try:
        yield
    except DeployError as error:
        fail(str(error), ExitCode.UNREACHABLE)
