"""`prismline retry`: process failed chunks again, or continue a cancelled run."""

from __future__ import annotations

from typing import Annotated

import typer

from prismline_cli.commands.deadletters import show_request
from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import find_chunk, find_run, item_of
from prismline_cli.output import fail
from prismline_cli.recovering import request_retry
from prismline_cli.runs import RunView
from prismline_contracts.deadletters import MAX_RETRIED_CHUNKS
from prismline_ledger import ActionName


def retry(
    run_id: RunId,
    chunks: Annotated[
        list[str] | None, typer.Argument(metavar="CHUNK", help="Only these chunks.", show_default="all that failed")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed chunks. This is the default.")] = False,
    cancelled: Annotated[
        bool,
        typer.Option("--cancelled", help="Continue a cancelled run with the chunks that were skipped."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the chunks, and send nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the chunks have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Process failed chunks of a run again, each with its full number of attempts. No archived messages are needed.

    With --wait, the command ends when each chunk has ended. Exit code 1 if some failed again. With --cancelled, failed
    chunks are not processed again, and --wait waits until the run continues. Follow it with `prismline watch`.
    """
    if failed and chunks:
        fail("Give chunks or --failed, not both.")
    if cancelled and (failed or chunks):
        fail("Give --cancelled alone. Failed chunks can be retried once the run continues.")
    connection = Connection.open()
    view = find_run(connection, run_id)
    if cancelled:
        operation_id = request_retry(connection, view.run_id, cancelled_at=_cancelled_at(view), dry_run=dry_run)
        show_request(connection, operation_id, wait=wait, as_json=as_json)
        return
    run = item_of(view)
    if len(chunks or []) > MAX_RETRIED_CHUNKS:
        fail(f"Name at most {MAX_RETRIED_CHUNKS} chunks, or none for all that failed.")
    names = [find_chunk(connection, run.run_id, chunk) for chunk in chunks or []]
    if (reason := view.refusal(ActionName.RETRY)) is not None:
        fail(reason)
    operation_id = request_retry(connection, run.run_id, chunk_ids=names, dry_run=dry_run)
    show_request(connection, operation_id, wait=wait, as_json=as_json)


def _cancelled_at(view: RunView) -> str:
    """When the run was stopped. Ends the command if the run is not a cancelled run that can be continued."""
    if (reason := view.refusal(ActionName.CONTINUE)) is not None:
        fail(reason)
    return item_of(view).cancelled_at or ""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(retry)
