"""`prismline up | down | status`: the system on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from prismline_cli.commands.options import AsJson, pairs
from prismline_cli.output import console, print_json, stderr
from prismline_cli.web_console import console_address
from prismline_deploy.failing import deploy_errors
from prismline_localstack import harness
from prismline_localstack.state import Status

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of state and logs.", envvar="PRISMLINE_HOME", show_default=".prismline"),
]


def up(
    home: HomeOption = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="one per core")] = None,
    service: Annotated[
        list[str] | None, typer.Option(help="Run only this service; may be repeated.", show_default="all")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Environment variable for the services, as NAME=VALUE."),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PYTHON]",
            help="Run a worker for this pool, whose functions run with the interpreter PYTHON; may be repeated.",
        ),
    ] = None,
    environment: Annotated[str, typer.Option(help="Part of every resource's name.")] = "local",
    functions: Annotated[
        bool, typer.Option("--functions", help="Run the services as Lambda functions, deployed as to AWS.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the emulator, deploy the stacks, and start the services."""
    settings = pairs(setting or [])
    pools = {name: python for name, _, python in (each.partition("=") for each in pool or [])}
    with deploy_errors():
        already = harness.is_up(home)
        with stderr.status("Starting ..."):
            state = harness.up(
                home,
                workers=workers,
                services=service,
                settings=settings,
                environment=environment,
                pools=pools,
                functions=functions,
            )
        now = harness.status(home)
    resumed = [] if already else state.resumed
    if as_json:
        print_json(now.model_dump(mode="json") | {"resumed": resumed})
        return
    console.print(f"{'Already up' if already else 'Up'} at {state.endpoint}.")
    for sentence in [] if already else state.moved:
        stderr.print(sentence, style="yellow", soft_wrap=True)
    if resumed:
        console.print(f"Resumed the runs that had not ended: {', '.join(resumed)}. See `prismline watch ID`.")
    _print_status(now)


def down(home: HomeOption = None, as_json: AsJson = False) -> None:
    """Stop the services and the emulator."""
    with deploy_errors(), stderr.status("Stopping ..."):
        ran = harness.down(home)
    if as_json:
        print_json({"stopped": ran})
    else:
        console.print("Stopped." if ran else "Nothing was running.")


def status(
    home: HomeOption = None,
    as_json: AsJson = False,
) -> None:
    """Show processes and queues."""
    with deploy_errors():
        now = harness.status(home)
    if as_json:
        print_json(now.model_dump(mode="json"))
    else:
        console.print(f"{now.phase.capitalize()} at {now.endpoint}.")
        _print_status(now)


def _print_status(now: Status) -> None:
    processes = Table("process", "service", "pid", "state", "restarts", "url")
    for process in now.processes:
        state = Text("running", style="green") if process.alive else Text("down", style="red")
        pid, restarts = str(process.pid or "-"), str(process.restarts)
        processes.add_row(process.name, process.service, pid, state, restarts, process.url or "")
    queues = Table("queue", "waiting", "in flight", "dead letters")
    for queue in now.queues:
        dead = Text(str(queue.dead_letters), style="red" if queue.dead_letters else "")
        queues.add_row(queue.name, str(queue.visible), str(queue.in_flight), dead)
    console.print(processes, queues)
    if now.api_url is not None:
        console.print(f"The console is at {console_address(now.api_url)}", soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (up, down, status):
        app.command()(command)
