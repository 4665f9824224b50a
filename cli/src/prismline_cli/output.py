"""The output of all commands: exit codes, tables, JSON, and errors of one sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, NoReturn

import typer
from rich.console import Console

#: Width, in columns, of a table that is not printed to a terminal. No id is cut at this width.
PIPE_WIDTH = 240


#: Prints results. Markup is off, because names and errors may look like markup. In a pipe, there are no colours.
console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
#: Prints progress and errors, so that a pipe gets only results.
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)


#: The current command as a user types it, such as `deadletters ls`. Empty outside commands.
_command: ContextVar[str] = ContextVar("command", default="")


class ExitCode(IntEnum):
    """The exit codes of all `prismline` commands."""

    OK = 0
    #: Chunks or the run failed.
    FAILED_CHUNKS = 1
    #: The command was used wrongly, or an id, a file or an object that it names does not exist.
    USAGE = 2
    #: Prismline cannot be reached.
    UNREACHABLE = 3
    #: The command has a bug.
    FAULT = 70
    #: Somebody pressed ctrl-C.
    INTERRUPTED = 130
    #: The command got SIGTERM.
    TERMINATED = 143


class CommandError(Exception):
    """Ends the command with a sentence and an exit code.

    candidates: ids that the user may have meant. run_id: the run that continues although the command ends.
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
    """With `enabled`, print `console` to standard error, so that standard output contains only the JSON document."""
    if not enabled:
        yield
        return
    console.stderr = True
    try:
        yield
    finally:
        console.stderr = False


@contextmanager
def printing_as(command: str) -> Iterator[None]:
    """In the block, or in the function that this decorates, check JSON against the contract of `command`."""
    token = _command.set(command)
    try:
        yield
    finally:
        _command.reset(token)


def fail(message: str, code: ExitCode = ExitCode.USAGE, *, candidates: Sequence[str] = ()) -> NoReturn:
    """End the command with a sentence."""
    raise CommandError(message, code, candidates=candidates)


def print_error(error: CommandError, *, as_json: bool) -> None:
    """Print an error to standard error. With `as_json`, also print a document to standard output."""
    stderr.print(error.message, style="red", soft_wrap=True, markup=False)
    for candidate in error.candidates:
        stderr.print(f"  {candidate}", soft_wrap=True, markup=False)
    if as_json:
        document: dict[str, Any] = {"error": error.message, "exit_code": int(error.code)}
        document |= {"candidates": error.candidates} if error.candidates else {}
        document |= {"run_id": error.run_id} if error.run_id else {}
        typer.echo(json.dumps(document, indent=2))


def print_json(document: Any, *, option: str = "") -> None:
    """Print `document` as JSON. Raises `pydantic.ValidationError` if it breaks the command's output contract.

    option: the option that has the command print something else.
    """
    from prismline_cli.printed import checked_output  # noqa: PLC0415  the models of all commands take a while

    checked_output(f"{_command.get()} {option}".strip(), document)
    typer.echo(json.dumps(document, indent=2))
