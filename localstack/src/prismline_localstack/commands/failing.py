"""Convert errors of the harness to a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prismline_cli.output import ExitCode, fail
from prismline_localstack.errors import HarnessError


@contextmanager
def harness_errors() -> Iterator[None]:
    """End the command with a sentence if the block raises HarnessError."""
    try:
        yield
    except HarnessError as error:
        fail(str(error), ExitCode.UNREACHABLE)
