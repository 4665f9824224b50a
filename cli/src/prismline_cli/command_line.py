"""Start the `prismline` command. Its groups are in `commands`, and its exit codes in `output.ExitCode`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from prismline_cli.application import Application
from prismline_cli.commands import register
from prismline_cli.output import ExitCode

#: The option that prints the version. It needs no command.
VERSION_OPTION = "--version"
DISTRIBUTION = "prismline-cli"


def application(command: str | None = None) -> typer.Typer:
    """The application with the group of `command`, or with all groups if it is None or no command of the package."""
    app = typer.Typer(
        name="prismline",
        cls=Application,
        help="Decompose spectral cubes in chunks that are queued, and follow every chunk.",
        no_args_is_help=True,
        pretty_exceptions_show_locals=False,
    )
    app.callback()(_root)
    if command != VERSION_OPTION:
        register(app, command)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"prismline {version(DISTRIBUTION)}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option(VERSION_OPTION, callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The options of `prismline` itself."""


def _terminate(_number: int, _frame: object) -> NoReturn:
    """End the command by an exception, so that it deletes its temporary files."""
    sys.exit(ExitCode.TERMINATED)


def prepare(arguments: Sequence[str]) -> Callable[[], object]:
    """Import what the command line `arguments` needs. Return the function that runs this process's command line.

    Characters that the terminal cannot show are escaped.
    """
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return get_command(application(arguments[0] if arguments else None))
