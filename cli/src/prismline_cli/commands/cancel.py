"""`prismline cancel`: cancel a run."""

from __future__ import annotations

import typer

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import find_run
from prismline_cli.output import console, fail, print_json
from prismline_contracts.base import timestamp
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunCancelRequested
from prismline_ledger import ActionName


def cancel(run_id: RunId, as_json: AsJson = False) -> None:
    """Cancel a run. Chunks that have not started are skipped."""
    connection = Connection.open()
    view = find_run(connection, run_id)
    if (reason := view.refusal(ActionName.CANCEL)) is not None:
        fail(reason)
    transport = connection.transport
    seen = view.item.uncancelled_at if view.item and view.goes_on else None
    request = RunCancelRequested(run_id=view.run_id, requested_at=timestamp(), uncancelled_at=seen)
    traceparent = view.state.traceparent if view.state else None
    transport.publish(Envelope.wrap(request, source=transport.source, traceparent=traceparent))
    if as_json:
        print_json({"run_id": view.run_id, "requested": "cancel"})
    else:
        console.print(f"Requested the cancellation of run {view.run_id}.")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(cancel)
