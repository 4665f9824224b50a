"""`prismline prune`: delete runs that have ended, with their objects."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from prismline_cli.commands.options import AsJson
from prismline_cli.connection import Connection
from prismline_cli.finding import match
from prismline_cli.output import console, fail, print_json
from prismline_cli.pruning import Belongings, Pruning, StoredRun, ended_at, stored_runs
from prismline_contracts.base import now

#: Units of an age.
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def prune(
    run_id: Annotated[
        list[str] | None,
        typer.Argument(help="Runs to delete: their ids, or the beginnings of them.", metavar="[ID]..."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Delete all runs that ended longer ago than this, such as 12h, 30d or 8w."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete runs that have ended: items, inputs, outputs, and sources that no other run uses. Dead letters stay."""
    if bool(run_id) == (older_than is not None):
        fail("Give either runs or --older-than.")
    age = None if older_than is None else parse_age(older_than)
    if as_json and not (yes or dry_run):
        fail("With --json the command does not ask before it deletes: give --yes or --dry-run.")
    connection = Connection.open()
    pruning = Pruning(connection)
    found = pruning.belongings(_chosen(connection, run_id or [], age))
    if not as_json:
        _show(found)
    if found and not dry_run:
        if not yes and not typer.confirm("Delete them?", err=True):
            fail("Nothing was deleted.")
        for belongings in found:
            pruning.delete(belongings)
    if as_json:
        runs = [{"run_id": each.view.run_id, "objects": len(each.objects), "bytes": each.size} for each in found]
        print_json({"dry_run": dry_run, "bytes": sum(each.size for each in found), "runs": runs})
    else:
        size = sum(each.size for each in found) / 1e6
        console.print(f"{'Would free' if dry_run else 'Freed'} {size:.1f} MB of {len(found)} runs.")


def parse_age(text: str) -> timedelta:
    """Parse an age like `30d`. Ends the command with the reason if it is not one."""
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if match is None:
        fail(f"{text!r} is not an age: give a number and h, d or w, as in 30d.")
    return int(match[1]) * UNITS[match[2]]


def _chosen(connection: Connection, given: list[str], age: timedelta | None) -> list[StoredRun]:
    if age is not None:
        ended = ((run, ended_at(run)) for run in stored_runs(connection))
        return [run for run, moment in ended if moment is not None and now() - moment > age]
    known = {run.run_id: run for run in stored_runs(connection)}
    chosen = {run_id: known[run_id] for run_id in (match(each, known, what="run") for each in given)}
    for run in chosen.values():
        if ended_at(run) is None:
            fail(f"Run {run.run_id} has not ended: nothing was deleted. `prismline run {run.run_id}` shows it.")
    return list(chosen.values())


def _show(found: list[Belongings]) -> None:
    table = Table("run", "survey", "status", "ended", "objects", "MB", box=None)
    for each in found:
        state = each.view.state
        ended = state.completed_at or state.updated_at
        table.add_row(
            each.view.run_id, state.survey or "-", state.status, ended, str(len(each.objects)), f"{each.size / 1e6:.1f}"
        )
    if found:
        console.print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(prune)
