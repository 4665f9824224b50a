"""`prismline map`: a function over a list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson, Estimate, IdempotencyKey, ToleratedFailures, Wait
from prismline_cli.output import ExitCode, console, print_json, stderr
from prismline_cli.watching import PICKED_UP_SECONDS
from prismline_cli.watching import watch as watch_run
from prismline_client import Client


def map_function(
    function: Annotated[str, typer.Argument(help="module:function of the present folder, or a registered name.")],
    items: Annotated[
        Path, typer.Argument(help="The list: a file with one JSON value a line, or .csv or .parquet with rows.")
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A parameter of the function, as JSON or text. May be repeated."),
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="The group that the run belongs to. Default: the function's name.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="With --wait: the folder of the results. Default: named after the run.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="The interpreter of the function's environment. Default: that of this command.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="The pool whose workers call the function. Default: the common workers.")
    ] = None,
    max_items: Annotated[int | None, typer.Option(min=1, help="Take at most this many items.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="Most items at a time.")] = None,
    tolerated_failure_percent: Annotated[float | None, typer.Option(help="Percentage of items that may fail.")] = None,
    tolerated_failures: ToleratedFailures = None,
    idempotency_key: IdempotencyKey = None,
    estimate: Estimate = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Call a function for each item of a list. With --wait, write a row for each item to a Parquet file."""
    from prismline_cli import estimating, function_results, mapping  # noqa: PLC0415
    from prismline_cli.tables import show_run  # noqa: PLC0415

    client, local = Client.open(), mapping.here(python)
    with stderr.status("loading the function"):
        workload = mapping.describe(function, local)
    if estimate:
        estimating.show(estimating.of_list(items, workload, max_items), as_json=as_json)
        return
    params = mapping.params_of(param or [], workload)
    options = {
        "code": workload.code,
        "pool": pool,
        "max_items": max_items,
        "max_concurrency": max_concurrency,
        "tolerated_failure_percent": tolerated_failure_percent,
        "tolerated_failures": tolerated_failures,
    }
    given = {name: value for name, value in options.items() if value is not None}
    mapping.register(client, workload, local)
    run_id = client.map(function, items, name=survey, params=params, key=idempotency_key, **given).run_id
    if not wait:
        print_json({"run_id": run_id}) if as_json else console.print(run_id)
        return
    stderr.print(f"Submitted run {run_id}.", soft_wrap=True)
    view = watch_run(client, run_id, appear_within=PICKED_UP_SECONDS)
    files = []
    if view.opened:
        folder = to or mapping.default_folder(view.run.name, run_id)
        files.append(str(function_results.write_rows(client, run_id, folder)))
    if as_json:
        print_json(view.as_json() | {"files": files})
        if not view.ok:
            raise typer.Exit(ExitCode.FAILED_CHUNKS)
        return
    stderr.print(*(f"The results are in {file}." for file in files), soft_wrap=True)
    show_run(view, as_json=False)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("map")(map_function)
