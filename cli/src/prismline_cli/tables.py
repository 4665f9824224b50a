"""Runs and chunks as tables or JSON on standard output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from prismline_cli.output import ExitCode, console, print_json, stderr
from prismline_cli.runs import RunView

if TYPE_CHECKING:
    from prismline_client import Chunk, Task

#: Fields of a run that only runs of spectra have.
_OF_SPECTRA = frozenset({"n_blank", "n_timed_out", "n_refit_failed"})


def show_run(view: RunView, *, as_json: bool) -> None:
    """Print one run. Exit code 1 if the run or one of its chunks failed."""
    if as_json:
        print_json(view.as_json())
    else:
        table = Table(box=None, show_header=False)
        for name, value in view.as_json().items():
            if (
                value not in (None, {})
                and name not in {"warnings", "unit", "repeated_error"}
                and (value or name != "n_rejected")
                and (view.items_word == "spectra" or name not in _OF_SPECTRA)
            ):
                shown = name.replace("chunks_", f"{view.run.unit}s_").replace("n_spectra", f"n_{view.items_word}")
                table.add_row(shown, coloured(value) if name == "status" else _shown(name, value))
        console.print(table)
    warn(view)
    if not view.ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def warn(view: RunView) -> None:
    """Print what a run does or waits for, and the warnings about an ended run, to standard error."""
    for condition in view.run.conditions:
        stderr.print(condition.sentence, style="yellow", markup=False, soft_wrap=True)
    if view.run.ended:
        for warning in view.run.warnings:
            stderr.print(f"Warning: {warning}", style="yellow", soft_wrap=True)


def _shown(name: str, value: Any) -> str:
    """Format a value of a run's document for a person. Parameters include the defaults."""
    if name == "usd":
        return f"{value['least']:.2g} to {value['most']:.2g} on AWS (prices: {value['prices']})"
    if name == "finalization":
        shown = value["error"] or value["value_url"] or ("" if value["value"] is None else json.dumps(value["value"]))
        return f"{value['status']}: {shown}" if shown else str(value["status"])
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


#: A table of runs is narrow below this number of columns.
WIDE = 130
#: Characters of an id in the narrow table. More are shown if two runs would look the same.
SHORT_ID = 8


def runs_table(views: Sequence[RunView], width: int) -> Table:
    """A table of runs, one in each line, `width` columns wide. A narrow table shortens ids and omits parameters."""
    wide = width >= WIDE
    columns = [
        Column("run", no_wrap=True),
        Column("survey", no_wrap=True, overflow="ellipsis", min_width=6),
        Column("status", no_wrap=True),
        Column("chunks", no_wrap=True, justify="right"),
        Column("failed", no_wrap=True, justify="right"),
        *([Column("items", no_wrap=True, justify="right")] if wide else []),
        Column("submitted", no_wrap=True),
        *([Column("job", overflow="fold"), Column("parameters", overflow="fold")] if wide else []),
    ]
    table = Table(*columns, box=None, padding=(0, 2 if wide else 1, 0, 0))
    shown = short_ids([view.run_id for view in views])
    for view in views:
        row = view.as_json()
        created = row["created_at"] or "-"
        table.add_row(
            view.run_id if wide else shown[view.run_id],
            row["survey"] or "-",
            coloured(view.run.status),
            f"{view.completed + view.failed}/{view.total or '?'}{' tasks' if view.run.unit == 'task' else ''}",
            str(view.failed),
            *([str(row["n_spectra"] or "-")] if wide else []),
            created if wide else created[5:16].replace("T", " "),
            *([row["job_id"] or "-", _shown("params", row["params"]) or "-"] if wide else []),
        )
    return table


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """For each id, the shortest beginning that is unique, of at least `SHORT_ID` characters."""
    length = SHORT_ID
    while len({name[:length] for name in ids}) < len(set(ids)):
        length += 1
    return {name: name[:length] for name in ids}


def show_chunks(found: Sequence[Chunk], *, as_json: bool, why: bool = False) -> None:
    """Print chunks. why: whether to show why they make no progress, and not their errors."""
    if as_json:
        print_json([chunk.details | ({"why": chunk.why} if why else {}) for chunk in found])
        return
    last = "why" if why else "error"
    table = Table("chunk", "status", "items", "input", "attempts", "started", "seconds", last, box=None)
    for chunk in found:
        error = chunk.why if why else error_of(chunk)
        table.add_row(
            chunk.chunk_id,
            coloured(chunk.status),
            f"{chunk.n_done}/{chunk.n_items}" if chunk.n_done else str(chunk.n_items),
            "copy" if chunk.details.get("reference") is None else "reference",
            str(chunk.attempts),
            chunk.started_at or "-",
            duration_of(chunk),
            error or "",
        )
    console.print(table if found else "No chunks.")


def show_tasks(found: Sequence[Task], *, as_json: bool) -> None:
    """Print tasks."""
    if as_json:
        print_json([task.details for task in found])
        return
    table = Table("index", "task", "status", "attempts", "answer", "bytes", "source", "error", box=None)
    for task in found:
        result, kept = task.result, task.details.get("result") or task.details.get("value")
        table.add_row(
            str(task.index),
            task.details["task_id"][:SHORT_ID],
            coloured(task.status),
            str(task.attempts),
            str(result.http_status) if result else "-",
            str(kept["length"]) if kept else "-",
            Text(task.details["source"], overflow="fold"),
            Text(task.retry.sentence if task.retry else task.error or task.last_error or ""),
        )
    console.print(table if found else "No tasks.")


def error_of(chunk: Chunk) -> str | None:
    """Why the chunk failed, or how it is tried again. A completed chunk has no error."""
    if chunk.retry is not None:
        return chunk.retry.sentence
    return None if chunk.status == "completed" else chunk.error or chunk.last_error


def duration_of(chunk: Chunk) -> str:
    """Duration of the latest attempt in seconds. For a chunk that was given up: from its first attempt to its end."""
    if chunk.duration_ms is not None:
        return f"{chunk.duration_ms / 1000:.1f}"
    if chunk.completed_at is None or (began := chunk.details.get("first_started_at") or chunk.started_at) is None:
        return "-"
    took = datetime.fromisoformat(chunk.completed_at) - datetime.fromisoformat(began)
    return f"{took.total_seconds():.1f}"


def coloured(status: str) -> Text:
    """A status in its colour."""
    colours = {"completed": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "in_progress": "cyan"}
    return Text(status, style=colours.get(status, ""))
