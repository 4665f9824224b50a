"""`prismline chunks | stuck | failures`: what became of a run's chunks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import find_run, item_of
from prismline_cli.output import ExitCode, console, print_json
from prismline_cli.tables import chunk_json, duration_of, show_chunks
from prismline_cli.troubles import troubles
from prismline_contracts import ChunkStatus


def chunks(
    run_id: RunId,
    status: Annotated[ChunkStatus | None, typer.Option(case_sensitive=False, help="Only those.")] = None,
    as_json: AsJson = False,
) -> None:
    """List a run's chunks."""
    connection = Connection.open()
    found = list(connection.ledger.chunks(item_of(find_run(connection, run_id)).run_id, status=status))
    show_chunks(found, as_json=as_json)


def stuck(
    run_id: RunId,
    minutes: Annotated[float, typer.Option(min=0, help="In progress for longer than this.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """List chunks that do not get on: their worker began but never ended, they end their workers again and again, or
    the sweeper had to send them again. Exit code 1 if there are any.
    """
    connection = Connection.open()
    item = item_of(find_run(connection, run_id))
    chunks = connection.ledger.chunks(item.run_id)
    why = troubles(chunks, now=datetime.now(UTC), after=timedelta(minutes=minutes))
    show_chunks([chunk for chunk, _ in why], as_json=as_json, why={chunk.chunk_id: trouble for chunk, trouble in why})
    if why:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def failures(run_id: RunId, as_json: AsJson = False) -> None:
    """Show why a run, or chunks of it, failed. Exit code 1 if anything did."""
    connection = Connection.open()
    view = find_run(connection, run_id)
    found = list(connection.ledger.chunks(view.run_id, status=ChunkStatus.FAILED)) if view.item else []
    if as_json:
        print_json({"run_id": view.run_id, "error": view.error, "chunks": [chunk_json(chunk) for chunk in found]})
    else:
        if view.error:
            console.print(f"run: {view.error}", style="red", markup=False, soft_wrap=True)
        for chunk in found:
            took = f"{chunk.attempts} attempt{'s' * (chunk.attempts != 1)}, {duration_of(chunk)} s"
            console.print(f"{chunk.chunk_id} ({took}): {chunk.error}", markup=False, soft_wrap=True)
        if not view.error and not found:
            console.print("Nothing failed.")
    if view.error or found:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (chunks, stuck, failures):
        app.command()(command)
