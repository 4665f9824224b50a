"""Runs and chunks as tables or JSON on standard output."""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table

from prismline_cli.output import ExitCode, console, print_json, stderr
from prismline_cli.runs import RunView
from prismline_contracts import ChunkItem


def show_run(view: RunView, *, as_json: bool) -> None:
    """Print one run. Exit code 1 if it failed or chunks of it did."""
    if as_json:
        print_json(view.as_json())
    else:
        table = Table(box=None, show_header=False)
        for name, value in view.as_json().items():
            if value not in (None, {}) and name != "warnings":
                table.add_row(name, coloured(value) if name == "status" else _shown(value))
        console.print(table)
    warn(view)
    if not view.ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def warn(view: RunView) -> None:
    """Print what must not be overlooked about an ended run to standard error."""
    if view.ended:
        for warning in view.warnings:
            stderr.print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def _shown(value: Any) -> str:
    """A value of a run's document as a person reads it: parameters one after the other, defaults included."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


def show_chunks(found: list[ChunkItem], *, as_json: bool) -> None:
    """Print chunks."""
    if as_json:
        print_json([chunk_json(chunk) for chunk in found])
        return
    table = Table("chunk", "status", "items", "attempts", "started", "ms", "error", box=None)
    for chunk in found:
        table.add_row(
            chunk.chunk_id,
            coloured(chunk.status),
            str(chunk.n_items),
            str(chunk.attempts),
            chunk.started_at or "-",
            str(chunk.duration_ms or "-"),
            chunk.error or chunk.last_error or "",
        )
    console.print(table if found else "No chunks.")


def chunk_json(chunk: ChunkItem) -> dict[str, Any]:
    """The chunk as a JSON document."""
    document = chunk.model_dump(exclude={"PK", "SK"}, exclude_none=True)
    return {"run_id": chunk.run_id, "chunk_id": chunk.chunk_id} | document


def coloured(status: str) -> str:
    """A status in its colour, as markup."""
    colours = {"completed": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "in_progress": "cyan"}
    colour = colours.get(status.lower())
    return f"[{colour}]{status}[/]" if colour else status
