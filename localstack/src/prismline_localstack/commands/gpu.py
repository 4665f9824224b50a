"""`prismline gpu up | down | status`."""

from __future__ import annotations

import typer

from prismline_cli.commands.options import AsJson
from prismline_cli.connection import Connection
from prismline_cli.output import console, print_json
from prismline_localstack.gpu import gpu_status, start_gpu, stop_gpu


def up_command(as_json: AsJson = False) -> None:
    """Start the GPU instance in the emulator."""
    instance_id = start_gpu(Connection.open())
    print_json({"instance_ids": [instance_id]}) if as_json else console.print(f"GPU up: {instance_id}.")


def down_command(as_json: AsJson = False) -> None:
    """Terminate the GPU instance in the emulator. Captions wait until it is up again."""
    stopped = stop_gpu(Connection.open())
    if as_json:
        print_json({"instance_ids": stopped})
        return
    console.print(f"GPU down: {', '.join(stopped)} terminated." if stopped else "GPU down: no instance was running.")


def status_command(
    as_json: AsJson = False,
) -> None:
    """Show the GPU instance, and whether its model answers."""
    status = gpu_status(Connection.open())
    print_json({"up": status.up} | status._asdict()) if as_json else console.print(str(status), soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the group `gpu` to `app`."""
    group = typer.Typer(help="Start and stop the GPU that captions need, in the emulator.", no_args_is_help=True)
    group.command("up")(up_command)
    group.command("down")(down_command)
    group.command("status")(status_command)
    app.add_typer(group, name="gpu")
