"""Start the `prismline` command. Its groups are in `commands`, and its exit codes in `output.ExitCode`."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper
from typing import NoReturn

import typer
from typer.main import get_group

from prismline_cli.application import Application
from prismline_cli.commands import register
from prismline_cli.output import ExitCode


def application(command: str | None = None) -> typer.Typer:
    """The application with the group of `command`, or with all groups if it is None or no command of the package."""
    app = typer.Typer(
        name="prismline",
        cls=Application,
        help="Decompose spectral cubes in chunks that are queued, and follow every chunk.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )
    register(app, command)
    return app


def _terminate(_number: int, _frame: object) -> NoReturn:
    """End the command by an exception, so that it deletes its temporary files."""
    sys.exit(ExitCode.TERMINATED)


def start() -> None:
    """Run the command line of this process. Characters that the terminal cannot show are escaped."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    get_group(application(sys.argv[1] if len(sys.argv) > 1 else None))()
