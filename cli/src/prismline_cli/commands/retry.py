"""`prismline retry`: try chunks that failed again."""

from __future__ import annotations

from typing import Annotated

import typer

from prismline_cli.commands.deadletters import show_operation
from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import find_chunk, find_run, item_of
from prismline_cli.output import console, fail, print_json, stderr
from prismline_cli.recovering import looking_again, request_retry, wait_for_operation
from prismline_contracts.deadletters import MAX_RETRIED_CHUNKS


def retry(
    run_id: RunId,
    chunks: Annotated[
        list[str] | None, typer.Argument(metavar="CHUNK", help="Only these chunks.", show_default="all that failed")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All chunks that failed; so it is without chunks.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be done, and do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all of the chunks have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try failed chunks of a run again, with all their attempts, whether the archive has their messages or not.

    With --wait, until each has ended; then exit code 1 if some failed again.
    """
    if failed and chunks:
        fail("Give chunks or --failed, not both.")
    connection = Connection.open()
    view = find_run(connection, run_id)
    run = item_of(view)
    if run.cancelled_at is not None and run.stop_reason == "cancelled":
        fail(f"Run {run.run_id} was cancelled, and a cancelled run does not go on. Submit its cube again.")
    if len(chunks or []) > MAX_RETRIED_CHUNKS:
        fail(f"Name at most {MAX_RETRIED_CHUNKS} chunks, or none for all that failed.")
    names = [find_chunk(connection, run.run_id, chunk) for chunk in chunks or []]
    if not names and run.jobs_failed == 0:
        fail(f"No chunk of run {run.run_id} has failed.")
    operation_id = request_retry(connection, run.run_id, chunk_ids=names, dry_run=dry_run)
    if not wait:
        print_json({"operation_id": operation_id}) if as_json else console.print(operation_id)
        return
    stderr.print(f"Asked for {operation_id}.", soft_wrap=True)
    with looking_again(operation_id):
        found = wait_for_operation(connection, operation_id)
    show_operation(found, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(retry)
