"""`prismline chunks | tasks | stuck | failures`: what became of a run's chunks or tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from prismline_cli.causes import Failure, causes_of
from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import chunked, find_run, item_of
from prismline_cli.output import ExitCode, console, fail, print_json
from prismline_cli.tables import chunk_json, duration_of, show_chunks, show_tasks, task_json
from prismline_cli.troubles import troubles
from prismline_contracts.items import ChunkStatus
from prismline_contracts.tasks import TaskStatus

#: Failed tasks that `failures` shows. `tasks --status failed` shows more.
MOST_FAILED_TASKS = 100


def chunks(
    run_id: RunId,
    status: Annotated[ChunkStatus | None, typer.Option(case_sensitive=False, help="Only this status.")] = None,
    as_json: AsJson = False,
) -> None:
    """List a run's chunks."""
    connection = Connection.open()
    found = list(connection.ledger.chunks(chunked(find_run(connection, run_id)).run_id, status=status))
    show_chunks(found, as_json=as_json)


def tasks(
    run_id: RunId,
    status: Annotated[TaskStatus | None, typer.Option(case_sensitive=False, help="Only this status.")] = None,
    url: Annotated[str | None, typer.Option(help="Only tasks whose URL begins so.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List tasks of a run that consists of tasks, in no particular order."""
    connection = Connection.open()
    view = find_run(connection, run_id)
    if item_of(view).unit != "task":
        fail(f"Run {view.run_id} consists of chunks, not of tasks: `prismline chunks {view.run_id}` lists them.")
    found = connection.ledger.tasks(item_of(view), status=status, begins=url)
    show_tasks(list(islice(found, limit)), as_json=as_json)


def stuck(
    run_id: RunId,
    minutes: Annotated[float, typer.Option(min=0, help="List chunks in progress for longer than this.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """List chunks without progress: their attempt began but never ended, they crash their workers repeatedly, or the
    sweeper had to send them again. Exit code 1 if there are any.
    """
    connection = Connection.open()
    item = chunked(find_run(connection, run_id))
    chunks = connection.ledger.chunks(item.run_id)
    why = troubles(chunks, now=datetime.now(UTC), after=timedelta(minutes=minutes))
    show_chunks([chunk for chunk, _ in why], as_json=as_json, why={chunk.chunk_id: trouble for chunk, trouble in why})
    if why:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def failures(run_id: RunId, as_json: AsJson = False) -> None:
    """Show why a run, or its chunks or tasks, failed. Exit code 1 if anything failed."""
    connection = Connection.open()
    view = find_run(connection, run_id)
    chunked = view.item is not None and view.unit == "chunk"
    found = list(connection.ledger.chunks(view.run_id, status=ChunkStatus.FAILED)) if chunked else []
    failed = (
        []
        if chunked or view.item is None
        else list(islice(connection.ledger.tasks(view.item, status=TaskStatus.FAILED), MOST_FAILED_TASKS))
    )
    if as_json:
        print_json(
            {
                "run_id": view.run_id,
                "error": view.error,
                "chunks": [chunk_json(chunk) for chunk in found],
                "tasks": [task_json(task) for task in failed],
            }
        )
    else:
        if view.error:
            console.print(f"run: {view.error}", style="red", markup=False, soft_wrap=True)
        if view.retried:
            console.print(view.retried, style="yellow", markup=False, soft_wrap=True)
        _show_causes(
            [
                *(Failure(each.chunk_id, each.completed_at or "", each.error or "no error") for each in found),
                *(Failure(each.source, each.completed_at or "", each.error or "no error") for each in failed),
            ],
            view.failed,
        )
        for chunk in found:
            took = f"{chunk.attempts} attempt{'s' * (chunk.attempts != 1)}, {duration_of(chunk)} s"
            console.print(f"{chunk.chunk_id} ({took}): {chunk.error}", markup=False, soft_wrap=True)
        for task in failed:
            attempts = f"{task.attempts} attempt{'s' * (task.attempts != 1)}"
            console.print(f"{task.source} ({attempts}): {task.error}", markup=False, soft_wrap=True)
        if view.failed > len(failed) > 0:
            console.print(f"... and {view.failed - len(failed):,} more.")
        if not view.error and not found and not failed:
            console.print("Nothing has failed for good." if view.retried else "Nothing failed.")
    if view.error or found or failed:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def _show_causes(failures: Sequence[Failure], n_failed: int) -> None:
    """Print how often each error occurred, if some occurred several times."""
    causes = causes_of(failures)
    if len(causes) == len(failures):
        return
    of_all = f"the first {len(failures):,} of {n_failed:,} failures" if n_failed > len(failures) else "all failures"
    console.print(f"By error, in {of_all}, the latest first:")
    for cause in causes:
        console.print(
            f"  {cause.count:,} x {cause.example.error} (latest: {cause.example.name})", markup=False, soft_wrap=True
        )


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (chunks, tasks, stuck, failures):
        app.command()(command)
