"""`prismline runs | run | watch`: list runs, show and follow one."""

from __future__ import annotations

from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson, RunId, Survey
from prismline_cli.finding import find_run
from prismline_cli.output import console, print_json
from prismline_cli.runs import list_runs
from prismline_cli.tables import runs_table, show_run
from prismline_cli.watching import watch as watch_run
from prismline_client import Client


def runs(
    survey: Survey = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest runs, newest first."""
    views = list_runs(Client.open(), survey, limit)
    if as_json:
        print_json([view.as_json() for view in views])
        return
    console.print(runs_table(views, console.width) if views else "No runs.")


def run(run_id: RunId, as_json: AsJson = False) -> None:
    """Show one run. Exit code 1 if the run or one of its chunks failed."""
    view = find_run(Client.open(), run_id)
    show_run(view, as_json=as_json)


def watch(run_id: RunId, as_json: AsJson = False) -> None:
    """Follow a run until it has ended. Exit code 1 if the run or one of its chunks failed."""
    client = Client.open()
    view = watch_run(client, find_run(client, run_id).run_id)
    show_run(view, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (runs, run, watch):
        app.command()(command)
