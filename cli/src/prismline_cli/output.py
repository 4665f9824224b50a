"""How the command speaks: exit codes, tables, JSON, and one-sentence errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer._click.globals import get_current_context

from prismline_contracts.outputs import checked_output

#: Width of a table that nobody looks at on a terminal: wide enough that no id is cut.
PIPE_WIDTH = 240


#: Where results go. Nothing printed is markup: it may be somebody's name or error. In a pipe there are no colours, and
#: lines are as long as they need to be.
console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
#: Where progress and errors go, so that a pipe gets only results.
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)


class ExitCode(IntEnum):
    """What the exit code of every `prismline` command means."""

    OK = 0
    #: Chunks or the run failed.
    FAILED_CHUNKS = 1
    #: The command was used wrongly, or what it names does not exist.
    USAGE = 2
    #: Prismline cannot be reached.
    UNREACHABLE = 3
    #: The command itself is at fault.
    FAULT = 70
    #: Somebody pressed ctrl-C.
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with a sentence and an exit code.

    candidates: ids that the user may have meant. run_id: the run that goes on although the command ends.
    """

    def __init__(
        self,
        message: str,
        code: ExitCode = ExitCode.USAGE,
        *,
        candidates: Sequence[str] = (),
        run_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.candidates = list(candidates)
        self.run_id = run_id


@contextmanager
def story_on_stderr(enabled: bool) -> Iterator[None]:
    """With `enabled`, what is printed to `console` goes to standard error: a document alone goes to standard output."""
    if not enabled:
        yield
        return
    console.stderr = True
    try:
        yield
    finally:
        console.stderr = False


def fail(message: str, code: ExitCode = ExitCode.USAGE, *, candidates: Sequence[str] = ()) -> NoReturn:
    """End the command with a sentence."""
    raise CommandError(message, code, candidates=candidates)


def print_error(error: CommandError, *, as_json: bool) -> None:
    """Print an error: the sentence to standard error, and with `as_json` a document to standard output as well."""
    stderr.print(error.message, style="red", soft_wrap=True, markup=False)
    for candidate in error.candidates:
        stderr.print(f"  {candidate}", soft_wrap=True, markup=False)
    if as_json:
        document: dict[str, Any] = {"error": error.message, "exit_code": int(error.code)}
        document |= {"candidates": error.candidates} if error.candidates else {}
        document |= {"run_id": error.run_id} if error.run_id else {}
        typer.echo(json.dumps(document, indent=2))


def print_json(document: Any) -> None:
    """Print `document` as JSON for a program to read: it has to be what the command's output contract says."""
    context = get_current_context(silent=True)
    if context is not None:
        command = " ".join(context.command_path.split(" ")[1:])
        checked_output(command, document)
    typer.echo(json.dumps(document, indent=2))
