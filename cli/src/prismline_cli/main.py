"""The `prismline` command. Its groups are in `commands`, and its exit codes in `output.ExitCode`."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper
from typing import NoReturn

import typer

from prismline_cli.application import Application
from prismline_cli.commands import register_all
from prismline_cli.output import ExitCode

app = typer.Typer(
    name="prismline",
    cls=Application,
    help="Decompose spectral cubes in chunks that are queued, and follow every chunk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
register_all(app)


def _terminate(_number: int, _frame: object) -> NoReturn:
    """End the command by an exception, so that it deletes its temporary files."""
    sys.exit(ExitCode.TERMINATED)


def main() -> None:
    """Entry point of `prismline`. Characters that the terminal cannot show are escaped."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
