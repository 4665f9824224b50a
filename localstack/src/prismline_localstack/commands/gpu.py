"""`prismline gpu up | down | status`."""

from __future__ import annotations

import typer

from prismline_cli.commands.options import AsJson
from prismline_cli.connection import Connection
from prismline_cli.output import console, print_json
from prismline_localstack.gpu import gpu_status, start_gpu, stop_gpu


def up_command(as_json: AsJson = False) -> None:
    """Start a GPU instance, unless there is one. On AWS the group of services/worker/gpu.yaml starts it."""
    instances = start_gpu(Connection.open())
    if as_json:
        print_json({"instance_ids": instances})
        return
    waits = "GPU: the group starts an instance; `prismline gpu status` shows when it runs."
    console.print(f"GPU up: {', '.join(instances)}." if instances else waits)


def down_command(as_json: AsJson = False) -> None:
    """Terminate the GPU instances. Captions wait; on AWS the group starts an instance again when some do."""
    stopped = stop_gpu(Connection.open())
    if as_json:
        print_json({"instance_ids": stopped})
        return
    console.print(f"GPU down: {', '.join(stopped)} terminated." if stopped else "GPU down: no instance was running.")


def status_command(
    as_json: AsJson = False,
) -> None:
    """Show a GPU instance, and whether its model answers."""
    status = gpu_status(Connection.open())
    print_json({"up": status.up} | status._asdict()) if as_json else console.print(str(status), soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the group `gpu` to `app`."""
    group = typer.Typer(help="Start and stop the GPU that captions need.", no_args_is_help=True)
    group.command("up")(up_command)
    group.command("down")(down_command)
    group.command("status")(status_command)
    app.add_typer(group, name="gpu")
