"""How the command speaks: exit codes, tables, JSON, and one-sentence errors."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Any, NoReturn

import typer
from rich.console import Console

#: Width of a table that nobody looks at on a terminal: wide enough that no id is cut.
PIPE_WIDTH = 240

#: Where results go. In a pipe there are no colours, and lines are as long as they need to be.
console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
#: Where progress and errors go, so that a pipe gets only results.
stderr = Console(stderr=True, highlight=False)


class ExitCode(IntEnum):
    """What the exit code of every `prismline` command means."""

    OK = 0
    FAILED_CHUNKS = 1
    USAGE = 2
    UNREACHABLE = 3


def fail(message: str, code: ExitCode = ExitCode.USAGE) -> NoReturn:
    """Print one sentence to standard error and exit."""
    stderr.print(message, style="red", soft_wrap=True, markup=False)
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    """Print `document` as JSON for a program to read."""
    typer.echo(json.dumps(document, indent=2))
