"""`prismline jobs`: jobs over the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError
from rich.table import Table

from prismline_cli.commands.options import AsJson, IdempotencyKey, Tolerate, ToleratedFailures
from prismline_cli.connection import Connection
from prismline_cli.output import console, fail, print_json
from prismline_client import Client, part
from prismline_contracts.base import timestamp
from prismline_contracts.jobs import Scope, TenantItem, jobs_table_name, new_api_key
from prismline_runtime import Table as DynamoTable
from prismline_runtime import describe_invalid

JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")]
RunId = Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")]
TaskId = Annotated[str, typer.Argument(help="The task's id, as `jobs tasks` shows it.", metavar="TASK")]
#: The scopes of a key that is created without `--scope`: all that concern its own tenant.
OWN_SCOPES = ("read", "submit", "operate")

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")]
Status = Annotated[str | None, typer.Option(help="Only PENDING, IN_PROGRESS, COMPLETED or FAILED.")]
To = Annotated[Path | None, typer.Option(help="Download it into this file.")]

#: Formats of lists by the suffix of the file's name.
FORMATS = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


def submit_command(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    urls: Annotated[list[str] | None, typer.Argument(help="URLs to fetch.", metavar="[URL]...")] = None,
    file: Annotated[
        Path | None, typer.Option(help="A list of URLs to upload: .txt, .jsonl or .csv, each also with .gz.")
    ] = None,
    cube_key: Annotated[str | None, typer.Option(help="The key of a cube in the bucket, in place of URLs.")] = None,
    body: Annotated[Path | None, typer.Option(help="A JSON file with more fields of the request.")] = None,
    open_job: Annotated[bool, typer.Option("--open", help="Accept tasks of `jobs add` until `jobs close`.")] = False,
    run_async: Annotated[bool, typer.Option("--async", help="Do not wait until the tasks are queued.")] = False,
    max_concurrency: Annotated[int | None, typer.Option(help="Maximum tasks or chunks in progress at a time.")] = None,
    priority: Annotated[int | None, typer.Option(help="1 (lowest) to 9.")] = None,
    tolerated_failure_percent: Annotated[
        float | None, typer.Option(help="Percentage of tasks or chunks that may fail.")
    ] = None,
    tolerate: Tolerate = None,
    tolerated_failures: ToleratedFailures = None,
    deadline_at: Annotated[str | None, typer.Option(help="When to stop the run, such as 2026-03-01T12:00:00Z.")] = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job: URLs, a list of URLs in a file, or a cube."""
    document: dict[str, Any] = {"workload": "spectra" if cube_key else "urls", **_read_body(body), "name": name}
    given = {
        "urls": urls,
        "cube_key": cube_key,
        "open": open_job or None,
        "async": run_async or None,
        "max_concurrency": max_concurrency,
        "priority": priority,
        "tolerated_failure_percent": tolerate if tolerated_failure_percent is None else tolerated_failure_percent,
        "tolerated_failures": tolerated_failures,
        "deadline_at": deadline_at,
    }
    document |= {field: value for field, value in given.items() if value or value == 0}
    format_ = None if file is None else _format_of(file)
    client = Client.open()
    if file is not None and format_ is not None:
        document["upload"] = client.upload(file, format_, key=idempotency_key)
    _show(client.post("/jobs", document, key=idempotency_key), as_json=as_json)


def _read_body(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        fail(f"{path} is not JSON: {error}.")
    if not isinstance(document, dict):
        fail(f"{path} is not a JSON object.")
    return document


def _format_of(file: Path) -> str:
    if not file.is_file():
        fail(f"There is no file {file}.")
    suffix = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if suffix not in FORMATS:
        fail(f"{file} does not end in {', '.join(FORMATS)}, or one of them with .gz.")
    return FORMATS[suffix]


def ls_command(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List your jobs, the newest first."""
    jobs = Client.open().listed("/jobs", limit)
    _list(jobs, ("job_id", "name", "workload", "state", "created_at"), "No jobs.", as_json=as_json)


def show_command(job_id: JobId, as_json: AsJson = False) -> None:
    """Show a job and its latest run."""
    _show(Client.open().get(f"/jobs/{part(job_id)}"), as_json=as_json)


def add_command(
    job_id: JobId,
    urls: Annotated[list[str], typer.Argument(help="URLs to fetch.", metavar="URL...")],
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Add tasks to an open job."""
    _show(Client.open().post(f"/jobs/{part(job_id)}/tasks", {"urls": urls}, key=idempotency_key), as_json=as_json)


def close_command(job_id: JobId, as_json: AsJson = False) -> None:
    """Close an open job. It takes no more tasks."""
    _show(Client.open().post(f"/jobs/{part(job_id)}/close"), as_json=as_json)


def rerun_command(
    job_id: JobId,
    failed: Annotated[bool, typer.Option("--failed", help="Only the tasks or chunks that failed.")] = False,
    rest: Annotated[
        bool, typer.Option("--rest", help="Those that are not completed: failed, or skipped by a stopped run.")
    ] = False,
    run: Annotated[
        str | None, typer.Option(help="The run. Default: the first; with --failed or --rest, the latest.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Start a new run of a job. With --failed, failed chunks are retried in the run that they belong to."""
    if failed and rest:
        fail("Give --failed or --rest, not both: the rest includes what failed.")
    body = {"only": "rest" if rest else "failed" if failed else "all"} | ({"run_id": run} if run else {})
    if dry_run:
        _show(Client.open().get(f"/jobs/{part(job_id)}/rerun", **body), as_json=as_json)
        return
    _show(Client.open().post(f"/jobs/{part(job_id)}/rerun", body, key=idempotency_key), as_json=as_json)


def delete_command(job_id: JobId, as_json: AsJson = False) -> None:
    """Delete a job with its results. Its runs are cancelled first."""
    _show(Client.open().delete(f"/jobs/{part(job_id)}"), as_json=as_json)


def runs_command(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the runs of your jobs, the newest first."""
    runs = Client.open().listed("/runs", limit)
    _list(runs, ("run_id", "job_id", "name", "workload", "created_at"), "No runs.", as_json=as_json)


def run_command(run_id: RunId, as_json: AsJson = False) -> None:
    """Show a run: its status and progress."""
    _show(Client.open().get(f"/runs/{part(run_id)}"), as_json=as_json)


def activity_command(run_id: RunId, as_json: AsJson = False) -> None:
    """Show what happened to a run and who asked for it, and its recoveries, exports and webhook posts."""
    _show(Client.open().get(f"/runs/{part(run_id)}/activity"), as_json=as_json)


def tasks_command(run_id: RunId, status: Status = None, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the tasks of a run."""
    tasks = Client.open().listed(f"/runs/{part(run_id)}/tasks", limit, status=status)
    _list(tasks, ("task_id", "status", "attempts", "url", "error"), "No tasks.", as_json=as_json)


def chunks_command(run_id: RunId, status: Status = None, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the chunks of a run."""
    chunks = Client.open().listed(f"/runs/{part(run_id)}/chunks", limit, status=status)
    _list(chunks, ("chunk_id", "status", "attempts", "n_items", "error"), "No chunks.", as_json=as_json)


def task_command(task_id: TaskId, as_json: AsJson = False) -> None:
    """Show a task."""
    _show(Client.open().get(f"/tasks/{part(task_id)}"), as_json=as_json)


def result_command(task_id: TaskId, to: To = None, as_json: AsJson = False) -> None:
    """Get a link to the body that a task fetched, or the body itself."""
    client = Client.open()
    link = client.get(f"/tasks/{part(task_id)}/result")
    if to is not None:
        client.download(link["url"], to)
    _show(link, as_json=as_json)


def cancel_command(run_id: RunId, as_json: AsJson = False) -> None:
    """Cancel a run. Tasks or chunks that have not started are skipped."""
    _show(Client.open().post(f"/runs/{part(run_id)}/cancel"), as_json=as_json)


def export_command(run_id: RunId, idempotency_key: IdempotencyKey = None, as_json: AsJson = False) -> None:
    """Export a run: pack all its results into one object."""
    _show(Client.open().post(f"/runs/{part(run_id)}/export", key=idempotency_key), as_json=as_json)


def exported_command(
    run_id: RunId,
    export_id: Annotated[str, typer.Argument(help="The export's id.", metavar="EXPORT")],
    to: To = None,
    as_json: AsJson = False,
) -> None:
    """Show an export, or download it once it is complete."""
    client = Client.open()
    export = client.get(f"/runs/{part(run_id)}/exports/{part(export_id)}")
    if to is not None:
        if "url" not in export:
            fail(f"The export is {export['status']}: {export.get('error', 'wait until it is completed')}.")
        client.download(export["url"], to)
    _show(export, as_json=as_json)


def deadletters_command(
    run: Annotated[str | None, typer.Option(help="Only of this run.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List the archived dead letters of your runs."""
    letters = Client.open().listed("/dead-letters", limit, run_id=run)
    columns = ("archived_at", "source_queue", "receive_count", "run_id", "error")
    _list(letters, columns, "No dead letters.", as_json=as_json)


def recover_command(
    run_id: RunId,
    retry: Annotated[bool, typer.Option("--retry", help="Instead, retry everything that failed in the run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be done, and do nothing.")] = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Send the dead letters of a run back to their queues."""
    body = {"run_id": run_id, "retry": retry, "dry_run": dry_run}
    _show(Client.open().post("/dead-letters/recover", body, key=idempotency_key), as_json=as_json)


def recovery_command(
    operation_id: Annotated[str, typer.Argument(help="The recovery's id.", metavar="RECOVERY")],
    as_json: AsJson = False,
) -> None:
    """Show the progress of a recovery of dead letters."""
    _show(Client.open().get(f"/recoveries/{part(operation_id)}"), as_json=as_json)


def create_key_command(
    tenant: Annotated[str, typer.Argument(help="The tenant that the key belongs to.")],
    name: Annotated[str, typer.Option(help="The name of the key in lists and logs.")] = "unnamed",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, submit, operate or all; may be repeated.", show_default="read, submit, operate"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key. It is shown once: only its hash is stored."""
    known = get_args(Scope)
    if unknown := sorted(set(scope or ()) - set(known)):
        fail(f"There is no scope {', '.join(map(repr, unknown))}. The scopes are {', '.join(known)}.")
    try:
        scopes = [each for each in known if each in (scope or OWN_SCOPES)]
        key, item = new_api_key(tenant, name, scopes, timestamp())
    except ValidationError as error:
        fail(f"The key cannot be created: {describe_invalid(error)}.")
    connection = Connection.open()
    table = DynamoTable(connection.dynamodb, jobs_table_name(connection.environment))
    table.create(TenantItem(SK=tenant).model_dump(), key="PK")
    table.create(item.model_dump(exclude_none=True), key="PK")
    if as_json:
        print_json({"key": key, "key_id": item.key_id, "tenant": item.tenant, "scopes": list(item.scopes)})
    else:
        console.print(key, soft_wrap=True)


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    table = Table(box=None, show_header=False)
    for field, value in document.items():
        table.add_row(field, value if isinstance(value, str) else json.dumps(value))
    console.print(table)


def _list(found: Iterable[Any], columns: tuple[str, ...], nothing: str, *, as_json: bool) -> None:
    items = list(found)
    if as_json:
        print_json(items)
        return
    table = Table(*columns, box=None)
    for item in items:
        table.add_row(*(str(item.get(column, "-")) for column in columns))
    console.print(table if items else nothing)


def register(app: typer.Typer) -> None:
    """Add the group to `app`."""
    group = typer.Typer(help="Jobs over the HTTP API.", no_args_is_help=True)
    commands: dict[str, Callable[..., None]] = {
        "submit": submit_command,
        "ls": ls_command,
        "show": show_command,
        "add": add_command,
        "close": close_command,
        "rerun": rerun_command,
        "delete": delete_command,
        "runs": runs_command,
        "run": run_command,
        "activity": activity_command,
        "tasks": tasks_command,
        "chunks": chunks_command,
        "task": task_command,
        "result": result_command,
        "cancel": cancel_command,
        "export": export_command,
        "exported": exported_command,
        "deadletters": deadletters_command,
        "recover": recover_command,
        "recovery": recovery_command,
    }
    for name, command in commands.items():
        group.command(name)(command)
    keys = typer.Typer(help="API keys.", no_args_is_help=True)
    keys.command("create")(create_key_command)
    group.add_typer(keys, name="keys")
    app.add_typer(group, name="jobs")
