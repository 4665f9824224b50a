"""The `prismline` command. `commands` has its groups, `output.ExitCode` says what exit codes mean."""

from __future__ import annotations

import typer

from prismline_cli.commands import register_all

app = typer.Typer(
    name="prismline",
    help="Decompose spectral cubes on queues, and never lose sight of a chunk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
register_all(app)


def main() -> None:
    """Entry point of `prismline`."""
    app()


if __name__ == "__main__":
    main()
