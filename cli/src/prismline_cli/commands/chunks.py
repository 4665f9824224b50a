"""`prismline chunks | tasks | stuck | failures`: what became of a run's chunks or tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.finding import consists_of, find_run
from prismline_cli.output import ExitCode, console, print_json, stderr
from prismline_cli.runs import RunView
from prismline_cli.tables import duration_of, show_chunks, show_tasks
from prismline_client import Causes, Client
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
    client = Client.open()
    view = find_run(client, run_id)
    consists_of("chunk", view)
    show_chunks(list(client.chunks(view.run_id, status=status, details=True)), as_json=as_json)


def tasks(
    run_id: RunId,
    status: Annotated[TaskStatus | None, typer.Option(case_sensitive=False, help="Only this status.")] = None,
    url: Annotated[str | None, typer.Option(help="Only tasks whose URL begins so.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List tasks of a run that consists of tasks, in no particular order."""
    client = Client.open()
    view = find_run(client, run_id)
    consists_of("task", view)
    show_tasks(list(client.tasks(view.run_id, limit, status=status, url=url, details=True)), as_json=as_json)


def stuck(
    run_id: RunId,
    minutes: Annotated[float, typer.Option(min=0, help="List chunks in progress for longer than this.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """List chunks without progress: their attempt began but never ended, they crash their workers repeatedly, or the
    sweeper had to send them again. For a run of tasks: say what it waits for. Exit code 1 if there is something.
    """
    client = Client.open()
    view = find_run(client, run_id)
    for sentence in view.tried_again:
        stderr.print(sentence, style="yellow", markup=False, soft_wrap=True)
    if view.opened and view.run.unit == "task":
        _show_waiting(view, as_json=as_json)
        return
    consists_of(view.run.unit, view)
    found = list(client.chunks(view.run_id, stuck_after=minutes, details=True))
    show_chunks(found, as_json=as_json, why=True)
    if found:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def _show_waiting(view: RunView, *, as_json: bool) -> None:
    """Say what a run of tasks waits for, on standard error if a program reads the list of chunks, which is empty."""
    if as_json:
        print_json([])
    if view.run.waiting_for is None:
        (stderr if as_json else console).print("Nothing waits.")
        return
    (stderr if as_json else console).print(f"The tasks wait: {view.run.waiting_for}", soft_wrap=True)
    raise typer.Exit(ExitCode.FAILED_CHUNKS)


def failures(run_id: RunId, as_json: AsJson = False) -> None:
    """Show why a run, or its chunks or tasks, failed. Exit code 1 if anything failed."""
    client = Client.open()
    view = find_run(client, run_id)
    found = list(client.chunks(view.run_id, status="failed", details=True))
    failed = list(client.tasks(view.run_id, MOST_FAILED_TASKS, status="failed", details=True))
    if as_json:
        print_json(
            {
                "run_id": view.run_id,
                "error": view.run.error,
                "chunks": [chunk.details for chunk in found],
                "tasks": [task.details for task in failed],
            }
        )
    else:
        if view.run.error:
            console.print(f"run: {view.run.error}", style="red", markup=False, soft_wrap=True)
        for sentence in view.tried_again:
            console.print(sentence, style="yellow", markup=False, soft_wrap=True)
        if found or failed:
            _show_causes(client.causes(view.run_id), view.failed)
        for chunk in found:
            took = f"{chunk.attempts} attempt{'s' * (chunk.attempts != 1)}, {duration_of(chunk)} s"
            console.print(f"{chunk.chunk_id} ({took}): {chunk.error}", markup=False, soft_wrap=True)
        for task in failed:
            attempts = f"{task.attempts} attempt{'s' * (task.attempts != 1)}"
            console.print(f"{task.details['source']} ({attempts}): {task.error}", markup=False, soft_wrap=True)
        if view.failed > len(failed) > 0:
            console.print(f"... and {view.failed - len(failed):,} more.")
        if not view.run.error and not found and not failed:
            console.print("Nothing has failed for good." if view.tried_again else "Nothing failed.")
    if view.run.error or found or failed:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def _show_causes(causes: Causes, n_failed: int) -> None:
    """Print how often each error occurred, if some occurred several times."""
    if len(causes.items) == causes.count:
        return
    of_all = "all failures" if causes.complete else f"the first {causes.count:,} of {n_failed:,} failures"
    console.print(f"By error, in {of_all}, the latest first:")
    for cause in causes.items:
        console.print(f"  {cause.count:,} x {cause.error} (latest: {cause.example})", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (chunks, tasks, stuck, failures):
        app.command()(command)
