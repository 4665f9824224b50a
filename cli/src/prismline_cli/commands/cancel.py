"""`prismline cancel`: cancel a run."""

from __future__ import annotations

import typer

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.finding import find_run
from prismline_cli.output import console, print_json
from prismline_client import Client


def cancel(run_id: RunId, as_json: AsJson = False) -> None:
    """Cancel a run. Chunks that have not started are skipped."""
    client = Client.open()
    whole_id = find_run(client, run_id).run_id
    client.cancel(whole_id)
    if as_json:
        print_json({"run_id": whole_id, "requested": "cancel"})
    else:
        console.print(f"Requested the cancellation of run {whole_id}.")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(cancel)
