"""`prismline open`: open the console in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson
from prismline_cli.finding import find_run
from prismline_cli.output import ExitCode, console, fail, print_json
from prismline_cli.web_console import console_address
from prismline_client import Client, find_url


def open_command(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, or its beginning.", show_default="the list of runs")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Open the console in the browser, and print its address."""
    url = find_url()
    if not url:
        fail(
            "The console's address is not known. Start a system with `prismline up`, or set PRISMLINE_API_URL.",
            ExitCode.UNREACHABLE,
        )
    run_id = None if run is None else find_run(Client.open(), run).run_id
    address = console_address(url, run_id)
    opened = not no_browser and webbrowser.open(address)
    if as_json:
        print_json({"url": address, "opened": opened})
    else:
        console.print(address, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("open")(open_command)
