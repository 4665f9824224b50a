"""Find what an id on the command line means."""

from __future__ import annotations

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.runs import RunView, list_runs, load_run
from prismline_contracts import RunItem


def find_run(connection: Connection, run_id: str) -> RunView:
    """The run with this id, or the only one whose id begins with it."""
    view = load_run(connection, run_id)
    if view is None:
        matches = [other for other in list_runs(connection, None, 1000) if other.run_id.startswith(run_id)]
        if len(matches) != 1:
            fail(f"There is no run {run_id}." if not matches else f"{len(matches)} runs begin with {run_id}.")
        view = matches[0]
    return view


def item_of(view: RunView) -> RunItem:
    """The run's item in the ledger; ends the command with the reason if there is none."""
    if view.item is None:
        fail(f"Run {view.run_id} has no chunks: {view.state.error_message if view.state else 'it is being submitted'}")
    return view.item
