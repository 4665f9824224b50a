"""`prismline caption` and `prismline segments`: submit the frames of a recording, and list its windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from prismline_cli.captions import segments_of, submit_frames
from prismline_cli.commands.options import AsJson, IdempotencyKey
from prismline_cli.connection import Connection
from prismline_cli.finding import find_session
from prismline_cli.output import ExitCode, console, print_json
from prismline_client import Client
from prismline_contracts.captions import MAX_FRAMES

Session = Annotated[str, typer.Option("--session", help="The id of the recording.")]


def caption(
    frames: Annotated[
        Path, typer.Argument(help="A folder of PNG or JPEG files. The order of their names is the order of the frames.")
    ],
    session: Session,
    user: Annotated[str, typer.Option(help="The user that the recording belongs to.")],
    window: Annotated[int, typer.Option(min=1, max=MAX_FRAMES, help="Frames in a window.")] = 8,
    prompt: Annotated[str | None, typer.Option(help="The prompt for the model.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest caption, in tokens.")] = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Submit the frames of a recording for captions, window by window. Prints the id of the run."""
    params = {name: value for name, value in (("prompt", prompt), ("max_tokens", max_tokens)) if value is not None}
    fields = {"session_id": session, "user_id": user, "params": params}
    if idempotency_key is not None:
        fields["idempotency_key"] = idempotency_key
    run_id = submit_frames(Connection.open(), frames, window, fields)
    print_json({"run_id": run_id}) if as_json else console.print(run_id)


def segments(session: Session, as_json: AsJson = False) -> None:
    """List the windows of a session: pending, complete or failed. Exit code 1 if one failed."""
    client = Client.open()
    found = segments_of(client, find_session(client, session))
    if as_json:
        print_json([segment.as_json() for segment in found])
    else:
        table = Table("window", "status", "attempts", "deferrals", "caption", box=None)
        colours = {"complete": "green", "failed": "red", "pending": "yellow"}
        for segment in found:
            table.add_row(
                str(segment.window_index),
                Text(segment.status, style=colours[segment.status]),
                str(segment.attempts),
                str(segment.deferrals),
                segment.caption or segment.reason or "",
            )
        console.print(table)
    if any(segment.status == "failed" for segment in found):
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(caption)
    app.command()(segments)
