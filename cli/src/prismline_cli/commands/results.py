"""`prismline results | plot`: the results of a run as files and as pictures.

Each command imports the modules that draw or read results itself. The imports take a second, and a person on call does
not want to wait for `prismline failures`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.connection import Connection
from prismline_cli.finding import consists_of, find_run, item_of
from prismline_cli.output import console, fail, print_json, stderr
from prismline_cli.pictures import picture_of
from prismline_client import Client
from prismline_contracts.manifest import DEFAULT_WORKLOAD


class ResultsForm(StrEnum):
    """The form of the files that `results` writes."""

    PARQUET = "parquet"
    FITS = "fits"


def download_results(
    run_id: RunId,
    to: Annotated[Path, typer.Option(help="The folder to write to. It is created if it does not exist.")],
    as_json: AsJson = False,
    form: Annotated[
        ResultsForm, typer.Option("--format", help="Parquet files as the workers wrote them, or FITS maps.")
    ] = ResultsForm.PARQUET,
    cubes: Annotated[
        bool, typer.Option("--cubes", help="With fits: also write cubes of the model and the residual.")
    ] = False,
) -> None:
    """Download the outputs of a run (for spectra, a Hive-partitioned dataset), or write its maps as FITS files."""
    from prismline_cli import downloading, fits_results, flatness  # noqa: PLC0415

    client = Client.open()
    view = find_run(client, run_id)
    consists_of(view.run.unit, view)
    with stderr.status("downloading"):
        if form is ResultsForm.FITS:
            paths = fits_results.write_maps(client, view, to, cubes=cubes)
        elif view.calls_function:
            from prismline_cli.function_results import write_rows  # noqa: PLC0415

            paths = [write_rows(client, view.run_id, to)]
        else:
            paths = downloading.download(client, view.run_id, to)
        warning = None if view.calls_function else flatness.warning_of(paths)
    if as_json:
        files = [str(path) for path in paths]
        print_json({"run_id": view.run_id, "files": files, "warnings": [warning] if warning else []})
    else:
        console.print(f"{len(paths)} files below {to}")
        if warning:
            console.print(warning)


def plot(
    run_id: RunId,
    x: Annotated[int | None, typer.Option(min=0, help="Draw only the spectrum at this x ...")] = None,
    y: Annotated[int | None, typer.Option(min=0, help="... and this y.")] = None,
    to: Annotated[Path | None, typer.Option(help="The file to write: .png, .pdf or .svg.")] = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnostics", help="Draw the residuals of the fits: autocorrelation and pulls.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Draw a run. For spectra: maps and a gallery, or one spectrum, with the fitted components."""
    if (x is None) != (y is None):
        fail("Give both --x and --y, or neither.")
    if diagnose and x is not None:
        fail("Give --diagnostics or a pixel, not both: diagnostics cover the whole run.")
    from prismline_cli import plotting  # noqa: PLC0415

    if to is not None:
        plotting.check_target(to)
    client = Client.open()
    view = find_run(client, run_id)
    consists_of(view.run.unit, view)
    with stderr.status("drawing"):
        if diagnose:
            path = plotting.draw_diagnostics(client, view, to or Path(f"{view.run_id}-diagnostics.png"))
        elif x is not None and y is not None:
            path = plotting.draw_spectrum(client, view, x, y, to or Path(f"{view.run_id}-{x}-{y}.png"))
        elif view.run.workload == DEFAULT_WORKLOAD:
            path = plotting.draw_run(client, view, to or Path(f"{view.run_id}.png"))
        else:
            draw, connection = picture_of(view.run.workload), Connection.open()
            path = draw(connection, view, item_of(connection, view), to or Path(f"{view.run_id}.png"))
    if as_json:
        print_json({"run_id": view.run_id, "files": [str(path)]})
    else:
        console.print(str(path), soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("results")(download_results)
    app.command()(plot)
