"""`prismline deadletters ls | show | stats | recover | operation`: search the archive of dead letters, and recover."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table

from prismline_cli.commands.options import AsJson
from prismline_cli.deadletters_search import ALL, by_cause, dead_letters, latest
from prismline_cli.finding import find_run, match
from prismline_cli.output import ExitCode, console, fail, print_json, stderr
from prismline_cli.recovering import find_operation, looking_again, wait_for_operation
from prismline_cli.submission import check_survey
from prismline_client import Client, Recovery, WantedDeadLetters
from prismline_contracts.deadletters import DeadLetterRecord, RecoveryCounts
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
    client = Client.open()
    search = _search(client, first, last, survey, run, error)
    rows, total = latest(dead_letters(client, search), limit)
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
            _short(row["error"]) + (" (a recovery of it failed)" if row["recovery_failed"] else ""),
            row["messageId"] or row["key"],
        )
    console.print(table if rows else f"No dead letters from {search['first']} to {search['last']}.")
    if total > len(rows):
        console.print(f"{total - len(rows)} more; --limit shows them.")


def show(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's id, or the beginning of it.")],
    first: FirstDay = None,
    last: LastDay = None,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter with all fields and its body."""
    client = Client.open()
    wanted: WantedDeadLetters = {"first": _day(first or datetime.min), "last": _day(last or datetime.max)}
    wanted |= {"message_id": message_id}
    found = [letter for letter in client.dead_letters(**(wanted | ALL)) if letter.details] if message_id else []
    whole = match(message_id, (letter.message_id for letter in found), what="dead letter")
    found.sort(key=lambda letter: (letter.recovering, letter.recovery_failed, letter.key))
    letters = [client.dead_letter(letter) for letter in found if letter.message_id == whole]
    records = {letter.key: DeadLetterRecord.model_validate(letter.details) for letter in letters}
    if as_json:
        print_json([{"key": key, **record.model_dump()} for key, record in records.items()])
        return
    for key, record in records.items():
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
    client = Client.open()
    search = _search(client, first, last, survey, run, error)
    rows = by_cause(dead_letters(client, search))
    if as_json:
        print_json(rows)
        return
    table = Table("day", "queue", "records", "messages", "runs", "chunks", "error", box=None)
    for row in rows:
        counts = (str(row[name]) for name in ("records", "messages", "runs", "chunks"))
        table.add_row(row["eventdate"], row["source_queue"] or "-", *counts, _short(row["error"]))
    console.print(table if rows else f"No dead letters from {search['first']} to {search['last']}.")


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
    client = Client.open()
    run_id = find_run(client, run).run_id if run is not None else None
    asked = None if prefix == DEAD_LETTERS_PREFIX else prefix
    operation_id = client.recover(run_id, prefix=asked, dry_run=dry_run)
    show_request(client, operation_id, wait=wait, as_json=as_json)


def operation(
    operation_id: Annotated[str, typer.Argument(help="The id that `recover` printed.", metavar="ID")],
    as_json: AsJson = False,
) -> None:
    """Show the progress of a recovery."""
    show_operation(find_operation(Client.open(), operation_id), as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the group `deadletters` to `app`."""
    group = typer.Typer(help="Search and recover the dead letters in the archive.", no_args_is_help=True)
    for command in (ls, show, stats, recover, operation):
        group.command()(command)
    app.add_typer(group, name="deadletters")


def show_request(client: Client, operation_id: str, *, wait: bool, as_json: bool) -> None:
    """Print the id of a requested recovery. With `wait`, wait until it has ended and print its result."""
    if not wait:
        print_json({"operation_id": operation_id}) if as_json else console.print(operation_id)
        return
    stderr.print(f"Requested recovery {operation_id}.", soft_wrap=True)
    with looking_again(operation_id):
        found = wait_for_operation(client, operation_id)
    show_operation(found, as_json=as_json)


def show_operation(operation: Recovery, *, as_json: bool) -> None:
    """Print a recovery. Exit code 1 if some of its chunks failed again."""
    names = ("prefix", "dry_run", "retry", "chunk_ids", "cancelled_at", "started_at", "finished_at")
    shown: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "status": operation.status.upper(),
        "only_run": operation.run_id,
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
    client: Client,
    first: datetime | None,
    last: datetime | None,
    survey: str | None,
    run: str | None,
    error: str | None,
) -> WantedDeadLetters:
    end = last or datetime.now(UTC)
    begin = first or end - timedelta(days=DEFAULT_DAYS - 1)
    if _day(begin) > _day(end):
        fail(f"Nothing can be found from {_day(begin)} to {_day(end)}: the first day is after the last.")
    if survey is not None:
        check_survey(survey)
    run_id = find_run(client, run).run_id if run is not None else None
    return {"first": _day(begin), "last": _day(end), "name": survey, "run_id": run_id, "error": error}


def _day(moment: datetime) -> str:
    return moment.date().isoformat()


def _short(error: str | None) -> str:
    line = " ".join((error or "-").split())
    return line if len(line) <= ERROR_CHARS else f"{line[: ERROR_CHARS - 1]}…"
