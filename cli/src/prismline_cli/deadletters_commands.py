"""`prismline deadletters recover`: ask for a recovery of archived dead letters, and follow it. And the group itself."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from prismline_cli import deadletters_search
from prismline_cli.connection import Connection, reachable
from prismline_cli.output import ExitCode, console, fail, print_json, stderr
from prismline_contracts import (
    ARCHIVE_PREFIX,
    DEAD_LETTERS_PREFIX,
    DeadlettersRecover,
    Envelope,
    Queue,
    RecoveryCounts,
    RecoveryOperationItem,
    timestamp,
)
from prismline_ledger import Operations

#: Seconds between two looks at a recovery.
POLL_SECONDS = 0.5


def request_recovery(connection: Connection, *, prefix: str, run_id: str | None, dry_run: bool) -> str:
    """Send the command; the operation's id."""
    operation_id = f"recovery-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    request = DeadlettersRecover(
        operation_id=operation_id, prefix=prefix, only_run=run_id, dry_run=dry_run, requested_at=timestamp()
    )
    transport = connection.transport
    message = Envelope.wrap(request, source=transport.source, traceparent=None, key=(operation_id,))
    transport.send(Queue.RECOVERIES, [message])
    return operation_id


def load_operation(connection: Connection, operation_id: str) -> RecoveryOperationItem | None:
    """The operation's item; None while nobody has begun it."""
    return Operations(connection.dynamodb, f"prismline-{connection.environment}-runs").get(operation_id)


def wait_for_operation(connection: Connection, operation_id: str) -> RecoveryOperationItem:
    """The operation once it has ended, its progress on standard error meanwhile."""
    with stderr.status("waiting for the recovery to begin") as status:
        while True:
            operation = load_operation(connection, operation_id)
            if operation is not None:
                if operation.status == "COMPLETED":
                    return operation
                status.update(progress_of(operation))
            time.sleep(POLL_SECONDS)


def progress_of(operation: RecoveryOperationItem) -> str:
    """What a recovery does at the moment, in a line."""
    if not operation.listed:
        return f"{operation.n_records} records looked at"
    return (
        f"{operation.n_sent} messages sent back: {operation.n_recovered} done, {operation.n_failed} failed;"
        " waiting for the others' chunks to end"
    )


def recover_command(
    prefix: Annotated[str, typer.Option(help="Only records below this prefix of the archive.")] = DEAD_LETTERS_PREFIX,
    run: Annotated[str | None, typer.Option(help="Only records of this run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be done, and do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the chunks of all have ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Send archived dead letters back to their queues.

    With --wait, until the chunk of each has ended; then exit code 1 if some could not be sent, or failed again.
    """
    if not prefix.startswith(ARCHIVE_PREFIX):
        fail(f"The prefix has to begin with {ARCHIVE_PREFIX}.")
    with reachable():
        connection = Connection.open()
        operation_id = request_recovery(connection, prefix=prefix, run_id=run, dry_run=dry_run)
        if not wait:
            print_json({"operation_id": operation_id}) if as_json else console.print(operation_id)
            return
        operation = wait_for_operation(connection, operation_id)
    _show(operation, as_json=as_json)


def operation_command(
    operation_id: Annotated[str, typer.Argument(help="The id that `recover` printed.", metavar="ID")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Show how far a recovery is."""
    with reachable():
        operation = load_operation(Connection.open(), operation_id)
    if operation is None:
        fail(f"There is no recovery {operation_id}, or nobody has begun it yet.")
    _show(operation, as_json=as_json)


def _show(operation: RecoveryOperationItem, *, as_json: bool) -> None:
    shown: dict[str, Any] = {"operation_id": operation.operation_id} | operation.model_dump(
        include={"status", "prefix", "only_run", "dry_run", "started_at", "finished_at", *RecoveryCounts.model_fields}
    )
    if as_json:
        print_json(shown)
    else:
        table = Table(box=None, show_header=False)
        for name, value in shown.items():
            if value is not None:
                table.add_row(name, str(value))
        console.print(table)
    if operation.n_failed:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def register(app: typer.Typer) -> None:
    """Add the group `deadletters` to `app`."""
    group = typer.Typer(help="Search and recover the dead letters in the archive.", no_args_is_help=True)
    deadletters_search.register(group)
    group.command("recover")(recover_command)
    group.command("operation")(operation_command)
    app.add_typer(group, name="deadletters")
