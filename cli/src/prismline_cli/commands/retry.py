"""`prismline retry`: process failed chunks again, or continue a cancelled run."""

from __future__ import annotations

from typing import Annotated

import typer

from prismline_cli.commands.deadletters import show_request
from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.finding import consists_of, find_chunk, find_run
from prismline_cli.output import fail
from prismline_cli.runs import RunView
from prismline_client import Client, outdated
from prismline_contracts.deadletters import MAX_RETRIED_CHUNKS


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
    code: Annotated[
        str | None,
        typer.Option(metavar="latest", help="Of a function: `latest` moves the run to the newest code first."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the chunks, and send nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the chunks have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Process failed chunks of a run again, each with its full number of attempts. No archived messages are needed.

    A run of a function keeps its code, unless --code latest moves it to the newest one. On the machine where the
    function was registered, that is the code as it is now.

    With --wait, the command ends when each chunk has ended. Exit code 1 if some failed again. With --cancelled, failed
    chunks are not processed again, and --wait waits until the run continues. Follow it with `prismline watch`.
    """
    if failed and chunks:
        fail("Give chunks or --failed, not both.")
    if code not in (None, "latest"):
        fail(f"--code is {code}: only `latest` is possible.")
    if cancelled and (failed or chunks or code):
        fail("Give --cancelled alone. Failed chunks can be retried once the run continues.")
    client = Client.open()
    view = find_run(client, run_id)
    action = view.run.action("continue" if cancelled else "retry")
    if len(chunks or []) > MAX_RETRIED_CHUNKS:
        fail(f"Name at most {MAX_RETRIED_CHUNKS} chunks, or none for all that failed.")
    newer = code is not None and _has_newer_code(client, view)
    names = [find_chunk(client, view.run_id, chunk) for chunk in chunks or []]
    # A run whose code is gone waits, although nothing has failed.
    if action.reason is not None and (view.run.cancelled_at or not newer):
        fail(action.reason)
    since = view.run.cancelled_at if cancelled else None
    operation_id = client.retry(view.run_id, names, cancelled_at=since, code=code, dry_run=dry_run)
    show_request(client, operation_id, wait=wait, as_json=as_json)


def _has_newer_code(client: Client, view: RunView) -> bool:
    """Register the code of the run's function as it is now on this machine, and say whether the run has another one."""
    from prismline_cli import mapping  # noqa: PLC0415

    consists_of(view.run.unit, view)
    if not view.calls_function:
        fail(f"The workload {view.run.workload} is a part of the services: run {view.run_id} has no code.")
    if view.run.code is None:
        raise outdated("does not show the code of runs")
    return mapping.latest_code(client, view.run.workload) != view.run.code


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(retry)
