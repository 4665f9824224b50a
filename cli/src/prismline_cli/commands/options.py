"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

RunId = Annotated[str, typer.Argument(help="The run's id, or the beginning of it.", metavar="ID")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Survey = Annotated[str | None, typer.Option(help="Only runs of this survey.")]
Wait = Annotated[bool, typer.Option("--wait", help="Watch the run until it has ended.")]
Estimate = Annotated[bool, typer.Option("--estimate", help="Show what the run would cost on AWS. Submits nothing.")]
#: The name of `--tolerated-failure-percent` before 1.1.
Tolerate = Annotated[float | None, typer.Option("--tolerate", hidden=True)]
ToleratedFailures = Annotated[
    int | None,
    typer.Option(help="Chunks or tasks that may fail. The run is stopped as soon as more have failed."),
]
IdempotencyKey = Annotated[str | None, typer.Option(help="Requests with the same key take effect only once.")]


def pairs(values: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` arguments."""
    parsed = {}
    for value in values:
        name, separator, content = value.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{value} is not NAME=VALUE.")
        parsed[name] = content
    return parsed
