"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

RunId = Annotated[str, typer.Argument(help="The run's id, or the beginning of it.", metavar="ID")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Survey = Annotated[str | None, typer.Option(help="Only runs of this survey.")]
Wait = Annotated[bool, typer.Option("--wait", help="Watch the run until it has ended.")]
IdempotencyKey = Annotated[str | None, typer.Option(help="Requests with the same key take effect only once.")]
