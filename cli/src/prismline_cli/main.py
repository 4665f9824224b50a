"""The `prismline` command. Its groups are in `commands`, and its exit codes in `output.ExitCode`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

import typer

from prismline_cli.application import Application
from prismline_cli.commands import register_all

app = typer.Typer(
    name="prismline",
    cls=Application,
    help="Decompose spectral cubes in chunks that are queued, and follow every chunk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
register_all(app)


def main() -> None:
    """Entry point of `prismline`. Characters that the terminal cannot show are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
