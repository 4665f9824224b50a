"""`prismline up | down | status | logs`: the system on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from prismline_cli.commands.options import AsJson
from prismline_cli.output import ExitCode, console, fail, stderr
from prismline_localstack import harness
from prismline_localstack.errors import HarnessError
from prismline_localstack.state import Status

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of state and logs.", envvar="PRISMLINE_HOME", show_default=".prismline"),
]


@contextmanager
def _running() -> Iterator[None]:
    """Turn what the harness raises into a sentence and an exit code."""
    try:
        yield
    except HarnessError as error:
        fail(str(error), ExitCode.UNREACHABLE)


def _pairs(values: list[str]) -> dict[str, str]:
    """`NAME=VALUE` arguments."""
    for value in values:
        if value.find("=") < 1:
            raise typer.BadParameter(f"{value} is not NAME=VALUE.")
    return dict(value.split("=", 1) for value in values)


def up(
    home: HomeOption = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="one a core")] = None,
    service: Annotated[
        list[str] | None, typer.Option(help="Run only this service; may be repeated.", show_default="all")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Environment variable for the services.")
    ] = None,
    environment: Annotated[str, typer.Option(help="Part of every resource's name.")] = "local",
) -> None:
    """Start emulator and services; deploy the stacks."""
    settings = _pairs(setting or [])
    with _running():
        already = harness.is_up(home)
        with stderr.status("Starting ..."):
            state = harness.up(home, workers=workers, services=service, settings=settings, environment=environment)
        console.print(f"{'Already up' if already else 'Up'} at {state.endpoint}.")
        if state.resumed and not already:
            console.print(f"Runs that had not ended go on: {', '.join(state.resumed)}. See `prismline watch ID`.")
        _print_status(harness.status(home))


def down(home: HomeOption = None) -> None:
    """Stop services and emulator."""
    with _running():
        with stderr.status("Stopping ..."):
            ran = harness.down(home)
        console.print("Stopped." if ran else "Nothing was running.")


def status(
    home: HomeOption = None,
    as_json: AsJson = False,
) -> None:
    """Show processes and queues."""
    with _running():
        now = harness.status(home)
    if as_json:
        typer.echo(now.model_dump_json(indent=2))
    else:
        console.print(f"{now.phase.capitalize()} at {now.endpoint}.")
        _print_status(now)


def logs(
    service: Annotated[
        str | None, typer.Argument(help="A service or one of its processes.", show_default="all")
    ] = None,
    home: HomeOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the system stops.")] = False,
) -> None:
    """Show what the processes wrote."""
    with _running():
        for line in harness.logs(home, service, follow=follow):
            typer.echo(f"{line.process} | {line.text}")


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


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (up, down, status, logs):
        app.command()(command)
