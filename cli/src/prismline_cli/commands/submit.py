"""`prismline submit`: submit a cube, or the manifest of any workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prismline_cli.commands.options import AsJson, Estimate, IdempotencyKey, Tolerate, ToleratedFailures, Wait
from prismline_cli.connection import Connection
from prismline_cli.manifests import submit_manifest
from prismline_cli.output import console, fail, print_json, stderr
from prismline_cli.submission import check_file, check_survey, correlation_given, line_given
from prismline_cli.submission import submit as submit_cube
from prismline_cli.tables import show_run
from prismline_cli.watching import PICKED_UP_SECONDS
from prismline_cli.watching import watch as watch_run
from prismline_client import Client


def submit(
    cube: Annotated[
        str | None,
        typer.Argument(help="A cube: FITS (plain, .gz, .fz) or zipped Zarr. A file, or s3://BUCKET/KEY of an object."),
    ] = None,
    survey: Annotated[str | None, typer.Option(help="The survey that the cube belongs to.")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Submit this manifest, a JSON file of any workload, instead of a cube.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=FILE",
            help="Upload a file, and put its key into this field of the manifest. May be repeated.",
        ),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Persistence threshold in units of the noise.")] = None,
    max_refine_iter: Annotated[int | None, typer.Option(help="Maximum number of refinement iterations.")] = None,
    snr_min: Annotated[float | None, typer.Option(help="Minimum amplitude of a component, in units of noise.")] = None,
    mf_snr_min: Annotated[float | None, typer.Option(help="Minimum matched-filter signal-to-noise ratio.")] = None,
    f_sep: Annotated[float | None, typer.Option(help="Separation below which a pair is blended, in FWHM.")] = None,
    neg_thresh: Annotated[float | None, typer.Option(help="Depth of a negative dip, in units of noise.")] = None,
    line: Annotated[
        str | None,
        typer.Option(
            help="Fit lines that belong together as one component with a common velocity and width: n2h+_1-0, nh3_1-1,"
            " hcn_1-0, or a text file with an offset in km/s and a weight on each row."
        ),
    ] = None,
    optical_depth: Annotated[
        bool,
        typer.Option("--optical-depth", help="With --line: fit an optical depth of each component too."),
    ] = False,
    rest_frequency: Annotated[
        float | None,
        typer.Option(help="Rest frequency of the line in Hz, for an axis in frequency. Default: that of the header."),
    ] = None,
    decomposer: Annotated[
        str | None, typer.Option(help="The program that fits spectra: gaussline (default) or phspectra.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="How gaussline chooses the model: best or compatible.")] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="The noise, a standard deviation in the cube's unit: a number, a FITS map of the pixels, or a text"
            " file with a value for each channel. Default: estimated from each spectrum."
        ),
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(
            help="Correlation of the noise between channels: 'spectrum' (estimated from each), 'white' (none), or its"
            " values at lags 0, 1, ... as 1,0.5,0.1. Default: estimated once from the cube."
        ),
    ] = None,
    second_pass: Annotated[
        bool,
        typer.Option(
            "--second-pass",
            help="Fit spectra that disagree with their neighbours again. The cube must be uncompressed.",
        ),
    ] = False,
    baseline_order: Annotated[
        int | None,
        typer.Option(
            help="Order of a polynomial baseline, 0 to 3, that is fitted with the lines and subtracted. Default: none."
        ),
    ] = None,
    chunk_size: Annotated[
        int | None, typer.Option(help="Spectra per chunk. By default, the splitter chooses it from the cost of a fit.")
    ] = None,
    chunk_input: Annotated[
        str | None,
        typer.Option(help="Input of a chunk: copy (of its spectra), reference (to the cube), or auto (the faster)."),
    ] = None,
    tolerated_failure_percent: Annotated[float | None, typer.Option(help="Percentage of chunks that may fail.")] = None,
    tolerate: Tolerate = None,
    tolerated_failures: ToleratedFailures = None,
    job_id: Annotated[str | None, typer.Option(help="A name for the job.")] = None,
    idempotency_key: IdempotencyKey = None,
    estimate: Estimate = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a cube, or the manifest of any workload. Prints the id of its run."""
    params = {
        "beta": beta,
        "max_refine_iter": max_refine_iter,
        "snr_min": snr_min,
        "mf_snr_min": mf_snr_min,
        "f_sep": f_sep,
        "neg_thresh": neg_thresh,
        "decomposer": decomposer,
        "preset": preset,
        "correlation": None if correlation is None else correlation_given(correlation),
        "line": None if line is None else line_given(line),
        "optical_depth": optical_depth or None,
        "rest_frequency": rest_frequency,
        "second_pass": second_pass or None,
        "baseline_order": baseline_order,
    }
    fields = {
        "survey": survey,
        "params": _given(params),
        "chunk_size": chunk_size,
        "chunk_input": chunk_input,
        "tolerated_failure_percent": tolerate if tolerated_failure_percent is None else tolerated_failure_percent,
        "tolerated_failures": tolerated_failures,
        "job_id": job_id,
        "idempotency_key": idempotency_key,
    }
    given = _given(fields)
    if manifest is not None:
        if cube is not None or noise is not None or given.keys() - {"idempotency_key"}:
            fail("With --manifest, give only --file and --idempotency-key: all other settings are in the manifest.")
    elif cube is None or survey is None or file:
        fail("Give a cube and its --survey, or the --manifest of any workload, with a --file for each of its files.")
    else:
        check_survey(survey)
        check_file(cube, _given(params), chunk_input)
    if estimate:
        from prismline_cli import estimating  # noqa: PLC0415

        estimating.show_submission(manifest or cube or "", _given(params), chunk_size, as_json=as_json)
        return
    connection = Connection.open()
    if manifest is not None:
        run_id = submit_manifest(connection, manifest, file or [], idempotency_key)
    else:
        run_id = submit_cube(connection, cube or "", given, noise=noise)
    if not wait:
        print_json({"run_id": run_id}) if as_json else console.print(run_id)
        return
    stderr.print(f"Submitted run {run_id}.", soft_wrap=True)
    view = watch_run(Client.open(), run_id, appear_within=PICKED_UP_SECONDS)
    show_run(view, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(submit)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}
