"""`prismline deadletters ls | show | stats | recover | operation`: search the archive of dead letters, and recover."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table

from prismline_cli.commands.options import AsJson
from prismline_cli.connection import Connection
from prismline_cli.deadletters_search import Search, by_cause, dead_letters, found_records, latest
from prismline_cli.finding import find_run, match
from prismline_cli.output import ExitCode, console, fail, print_json, stderr
from prismline_cli.recovering import (
    AnyRecovery,
    find_operation,
    load_operation,
    looking_again,
    request_recovery,
    wait_for_operation,
)
from prismline_cli.submission import check_survey
from prismline_client import Client, Recovery
from prismline_contracts.deadletters import RecoveryCounts, RecoveryOperationItem
from prismline_contracts.prefixes import ARCHIVE_PREFIX, DEAD_LETTERS_PREFIX

#: Days that are searched unless `--from` says otherwise, today included.
DEFAULT_DAYS = 7
#: Characters of an error that a table shows.
ERROR_CHARS = 70

FirstDay = Annotated[
    datetime | None,
    typer.Option(
        "--from", formats=["%Y-%m-%d"], help="First day, in UTC.", show_default=f"{DEFAULT_DAYS - 1} days ago"
    ),
]
LastDay = Annotated[
    datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day, in UTC.", show_default="today")
]
Survey = Annotated[str | None, typer.Option(help="Only dead letters of this survey.")]
Run = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="Only dead letters of this run: its id, or the beginning of it."),
]
ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only dead letters whose error contains this text.")
]


def ls(
    first: FirstDay = None,
    last: LastDay = None,
    survey: Survey = None,
    run: Run = None,
    error: ErrorText = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of dead letters to show.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List archived dead letters, newest first."""
    connection = Connection.open()
    search = _search(first, last, survey, run, error)
    rows, total = latest(dead_letters(connection, search), limit)
    if as_json:
        print_json(rows)
        return
    table = Table("archived", "queue", "received", "run", "chunk", "error", "message", box=None)
    for row in rows:
        table.add_row(
            row["archived_at"] or row["eventdate"] or "-",
            row["source_queue"] or "-",
            str(row["receive_count"] or "-"),
            row["run_id"] or "-",
            row["chunk_id"] or "-",
            _short(row["error"]),
            row["messageId"] or row["key"],
        )
    console.print(table if rows else f"No dead letters from {search.first} to {search.last}.")
    if total > len(rows):
        console.print(f"{total - len(rows)} more; --limit shows them.")


def show(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's id, or the beginning of it.")],
    first: FirstDay = None,
    last: LastDay = None,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter with all fields and its body."""
    search = Search(first=first.date() if first else date.min, last=last.date() if last else date.max)
    connection = Connection.open()
    found = dict(found_records(connection, search, message_id)) if message_id else {}
    whole = match(message_id, (record.messageId or key for key, record in found.items()), what="dead letter")
    found = {key: record for key, record in found.items() if (record.messageId or key) == whole}
    if as_json:
        print_json([{"key": key, **record.model_dump()} for key, record in found.items()])
        return
    for key, record in found.items():
        table = Table("field", "value", title=key, title_justify="left", box=None)
        for name, value in record.model_dump(exclude_none=True, exclude={"body"}).items():
            table.add_row(name, value if isinstance(value, str) else json.dumps(value))
        console.print(table)
        console.print(record.body, markup=False, soft_wrap=True)


def stats(
    first: FirstDay = None,
    last: LastDay = None,
    survey: Survey = None,
    run: Run = None,
    error: ErrorText = None,
    as_json: AsJson = False,
) -> None:
    """Count archived dead letters by day, queue and error."""
    connection = Connection.open()
    search = _search(first, last, survey, run, error)
    rows = by_cause(dead_letters(connection, search))
    if as_json:
        print_json(rows)
        return
    table = Table("day", "queue", "records", "messages", "runs", "chunks", "error", box=None)
    for row in rows:
        counts = (str(row[name]) for name in ("records", "messages", "runs", "chunks"))
        table.add_row(row["eventdate"], row["source_queue"] or "-", *counts, _short(row["error"]))
    console.print(table if rows else f"No dead letters from {search.first} to {search.last}.")


def recover(
    prefix: Annotated[str, typer.Option(help="Only records below this prefix of the archive.")] = DEAD_LETTERS_PREFIX,
    run: Run = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the chunk of each dead letter has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send archived dead letters back to their queues.

    With --wait, the command ends when the chunk of each dead letter has ended. Exit code 1 if some could not be sent or
    failed again.
    """
    if not prefix.startswith(ARCHIVE_PREFIX):
        fail(f"The prefix has to begin with {ARCHIVE_PREFIX}.")
    connection = Connection.open()
    run_id = find_run(Client.open(), run).run_id if run is not None else None
    operation_id = request_recovery(connection, prefix=prefix, run_id=run_id, dry_run=dry_run)
    show_request(lambda: load_operation(connection, operation_id), operation_id, wait=wait, as_json=as_json)


def operation(
    operation_id: Annotated[
        str, typer.Argument(help="The id that `recover` printed, or the beginning of it.", metavar="ID")
    ],
    as_json: AsJson = False,
) -> None:
    """Show the progress of a recovery."""
    connection = Connection.open()
    found = load_operation(connection, find_operation(connection, operation_id))
    if found is None:
        fail(f"There is no recovery operation {operation_id} any more.")
    show_operation(found, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the group `deadletters` to `app`."""
    group = typer.Typer(help="Search and recover the dead letters in the archive.", no_args_is_help=True)
    for command in (ls, show, stats, recover, operation):
        group.command()(command)
    app.add_typer(group, name="deadletters")


def show_request(load: Callable[[], AnyRecovery | None], operation_id: str, *, wait: bool, as_json: bool) -> None:
    """Print the id of a requested recovery. With `wait`, wait until it has ended and print its result."""
    if not wait:
        print_json({"operation_id": operation_id}) if as_json else console.print(operation_id)
        return
    stderr.print(f"Requested recovery {operation_id}.", soft_wrap=True)
    with looking_again(operation_id):
        found = wait_for_operation(load)
    show_operation(found, as_json=as_json)


def show_operation(operation: RecoveryOperationItem | Recovery, *, as_json: bool) -> None:
    """Print a recovery. Exit code 1 if some of its chunks failed again."""
    names = ("prefix", "dry_run", "retry", "chunk_ids", "cancelled_at", "started_at", "finished_at")
    shown: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "status": operation.status.upper(),
        "only_run": operation.run_id if isinstance(operation, Recovery) else operation.only_run,
    } | {name: getattr(operation, name) for name in (*names, *RecoveryCounts.model_fields)}
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


def _search(
    first: datetime | None,
    last: datetime | None,
    survey: str | None,
    run: str | None,
    error: str | None,
) -> Search:
    end = last.date() if last else datetime.now(UTC).date()
    begin = first.date() if first else end - timedelta(days=DEFAULT_DAYS - 1)
    if begin > end:
        fail(f"Nothing can be found from {begin} to {end}: the first day is after the last.")
    if survey is not None:
        check_survey(survey)
    run_id = find_run(Client.open(), run).run_id if run is not None else None
    return Search(first=begin, last=end, survey=survey, run_id=run_id, error=error)


def _short(error: str | None) -> str:
    line = " ".join((error or "-").split())
    return line if len(line) <= ERROR_CHARS else f"{line[: ERROR_CHARS - 1]}…"
