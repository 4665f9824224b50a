"""The commands of `prismline`. Reading commands take `--json`; `output.ExitCode` says what exit codes mean.

What draws or reads results is imported by the commands that need it: it takes a second, and people at night do not
want to wait for `prismline failures`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from prismline_cli import (
    alerts_commands,
    captions_commands,
    deadletters_commands,
    demo_faults,
    gpu_commands,
    harness_commands,
)
from prismline_cli.connection import Connection, reachable
from prismline_cli.output import ExitCode, console, fail, print_json, stderr
from prismline_cli.runs import RunView, list_runs, load_run
from prismline_cli.submission import submit as submit_cube
from prismline_cli.watching import PICKED_UP_SECONDS
from prismline_cli.watching import watch as watch_run
from prismline_contracts import ChunkItem, ChunkStatus, Envelope, RunCancelRequested, RunItem, timestamp

app = typer.Typer(
    name="prismline",
    help="Decompose spectral cubes on queues, and never lose sight of a chunk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
harness_commands.register(app)
deadletters_commands.register(app)
alerts_commands.register(app)
captions_commands.register(app)
gpu_commands.register(app)
demo_faults.register(app)

RunId = Annotated[str, typer.Argument(help="The run's id, or the beginning of it.", metavar="ID")]


class ResultsForm(StrEnum):
    """What `results` writes."""

    PARQUET = "parquet"
    FITS = "fits"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


@app.command()
def submit(
    cube: Annotated[str, typer.Argument(help="A FITS file, or s3://BUCKET/KEY of one in Prismline's bucket.")],
    survey: Annotated[str, typer.Option(help="The survey that the cube belongs to.")],
    beta: Annotated[float | None, typer.Option(help="Persistence threshold in units of the noise.")] = None,
    max_refine_iter: Annotated[int | None, typer.Option(help="Most refinement iterations.")] = None,
    snr_min: Annotated[float | None, typer.Option(help="Least amplitude over noise of a component.")] = None,
    mf_snr_min: Annotated[float | None, typer.Option(help="Least matched-filter signal-to-noise.")] = None,
    f_sep: Annotated[float | None, typer.Option(help="Separation below which a pair is blended, in FWHM.")] = None,
    neg_thresh: Annotated[float | None, typer.Option(help="Depth of a negative dip, in units of noise.")] = None,
    decomposer: Annotated[str | None, typer.Option(help="What fits: gaussline (default) or phspectra.")] = None,
    preset: Annotated[str | None, typer.Option(help="How gaussline chooses the model: best or compatible.")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Spectra in a chunk; default: by what they cost.")] = None,
    tolerate: Annotated[float | None, typer.Option(help="Percentage of chunks that may fail.")] = None,
    job_id: Annotated[str | None, typer.Option(help="A name for the job.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Submitting again with the same key runs once.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch the run until it has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a cube. Prints the id of its run."""
    params = {
        "beta": beta,
        "max_refine_iter": max_refine_iter,
        "snr_min": snr_min,
        "mf_snr_min": mf_snr_min,
        "f_sep": f_sep,
        "neg_thresh": neg_thresh,
        "decomposer": decomposer,
        "preset": preset,
    }
    fields = {
        "survey": survey,
        "params": _given(params),
        "chunk_size": chunk_size,
        "tolerated_failure_percent": tolerate,
        "job_id": job_id,
        "idempotency_key": idempotency_key,
    }
    with reachable():
        connection = Connection.open()
        run_id = submit_cube(connection, cube, _given(fields))
        if not wait:
            print_json({"run_id": run_id}) if as_json else console.print(run_id)
            return
        view = watch_run(connection, run_id, appear_within=PICKED_UP_SECONDS)
    _show_run(view, as_json=as_json)


@app.command()
def runs(
    survey: Annotated[str | None, typer.Option(help="Only this survey's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest runs, newest first."""
    with reachable():
        views = list_runs(Connection.open(), survey, limit)
    if as_json:
        print_json([view.as_json() for view in views])
        return
    table = Table(Column("run", no_wrap=True), "survey", "status", "chunks", "failed", "spectra", "submitted", box=None)
    for view in views:
        row = view.as_json()
        table.add_row(
            view.run_id,
            row["survey"] or "-",
            _coloured(view.status),
            f"{view.completed + view.failed}/{view.total or '?'}",
            str(view.failed),
            str(row["n_spectra"] or "-"),
            row["created_at"] or "-",
        )
    console.print(table if views else "No runs.")


@app.command()
def run(run_id: RunId, as_json: AsJson = False) -> None:
    """Show one run. Exit code 1 if it failed or chunks of it did."""
    with reachable():
        view = _find(Connection.open(), run_id)
    _show_run(view, as_json=as_json)


@app.command()
def watch(run_id: RunId, as_json: AsJson = False) -> None:
    """Follow a run until it has ended. Exit code as `run`."""
    with reachable():
        connection = Connection.open()
        view = watch_run(connection, _find(connection, run_id).run_id)
    _show_run(view, as_json=as_json)


@app.command()
def chunks(
    run_id: RunId,
    status: Annotated[ChunkStatus | None, typer.Option(case_sensitive=False, help="Only those.")] = None,
    as_json: AsJson = False,
) -> None:
    """List a run's chunks."""
    with reachable():
        connection = Connection.open()
        found = list(connection.ledger.chunks(_item(_find(connection, run_id)).run_id, status=status))
    _show_chunks(found, as_json=as_json)


@app.command()
def stuck(
    run_id: RunId,
    minutes: Annotated[float, typer.Option(min=0, help="In progress for longer than this.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """List chunks whose worker began but never ended. Exit code 1 if there are any."""
    with reachable():
        connection = Connection.open()
        item = _item(_find(connection, run_id))
        after = timedelta(minutes=minutes)
        found = list(connection.ledger.stuck_chunks(item.run_id, now=datetime.now(UTC), after=after))
    _show_chunks(found, as_json=as_json)
    if found:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


@app.command()
def failures(run_id: RunId, as_json: AsJson = False) -> None:
    """Show why a run, or chunks of it, failed. Exit code 1 if anything did."""
    with reachable():
        connection = Connection.open()
        view = _find(connection, run_id)
        found = list(connection.ledger.chunks(view.run_id, status=ChunkStatus.FAILED)) if view.item else []
    error = view.state.error_message if view.state else None
    if as_json:
        print_json({"run_id": view.run_id, "error": error, "chunks": [_chunk_json(chunk) for chunk in found]})
    else:
        if error:
            console.print(f"run: {error}", style="red", markup=False, soft_wrap=True)
        for chunk in found:
            console.print(f"{chunk.chunk_id}: {chunk.error}", markup=False, soft_wrap=True)
        if not error and not found:
            console.print("Nothing failed.")
    if error or found:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


@app.command()
def cancel(run_id: RunId) -> None:
    """Cancel a run: chunks that have not started will not."""
    with reachable():
        connection = Connection.open()
        view = _find(connection, run_id)
        if view.status in {"completed", "failed", "cancelled"}:
            fail(f"Run {view.run_id} is {view.status} already.")
        transport = connection.transport
        request = RunCancelRequested(run_id=view.run_id, requested_at=timestamp())
        traceparent = view.state.traceparent if view.state else None
        transport.publish(Envelope.wrap(request, source=transport.source, traceparent=traceparent))
    console.print(f"Asked to cancel {view.run_id}.")


@app.command(name="results")
def download_results(
    run_id: RunId,
    to: Annotated[Path, typer.Option(help="A directory; created if need be.")],
    as_json: AsJson = False,
    form: Annotated[ResultsForm, typer.Option("--format", help="The dataset as it is, or maps.")] = ResultsForm.PARQUET,
    cubes: Annotated[bool, typer.Option("--cubes", help="With fits: the model and the residual, too.")] = False,
) -> None:
    """Download a run's Parquet files as a Hive-partitioned dataset, or write its maps as FITS files."""
    from prismline_cli import fits_results, results

    with reachable():
        connection = Connection.open()
        item = _item(_find(connection, run_id))
        with stderr.status("downloading"):
            if form is ResultsForm.FITS:
                paths = fits_results.write_maps(connection, item, to, cubes=cubes)
            else:
                paths = results.download(connection, item, to)
    if as_json:
        print_json({"run_id": item.run_id, "files": [str(path) for path in paths]})
    else:
        console.print(f"{len(paths)} files below {to}")


@app.command()
def plot(
    run_id: RunId,
    x: Annotated[int | None, typer.Option(min=0, help="Only the spectrum at this pixel ...")] = None,
    y: Annotated[int | None, typer.Option(min=0, help="... and this one.")] = None,
    to: Annotated[Path | None, typer.Option(help="The PNG file to write.")] = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnostics", help="What the fits leave over: residual autocorrelation and pulls.")
    ] = False,
) -> None:
    """Draw a run's maps and a gallery of its spectra, or one spectrum, with the fitted components."""
    if (x is None) != (y is None):
        fail("Give both --x and --y, or neither.")
    from prismline_cli import diagnostics, plotting

    with reachable():
        connection = Connection.open()
        item = _item(_find(connection, run_id))
        with stderr.status("drawing"):
            if diagnose:
                path = diagnostics.draw_run(connection, item, to or Path(f"{item.run_id}-diagnostics.png"))
            elif x is None or y is None:
                path = plotting.draw_run(connection, item, to or Path(f"{item.run_id}.png"))
            else:
                path = plotting.draw_spectrum(connection, item, x, y, to or Path(f"{item.run_id}-{x}-{y}.png"))
    console.print(str(path), soft_wrap=True)


@app.command()
def demo(
    cube: Annotated[Path | None, typer.Option(help="A FITS cube; default: a generated one with known truth.")] = None,
    survey: Annotated[str | None, typer.Option(help="The survey's name; default: from the file's name.")] = None,
    chunk_size: Annotated[int | None, typer.Option(min=1, help="Spectra in a chunk; default: 20 chunks.")] = None,
    to: Annotated[Path, typer.Option(help="Where the cube, the results and the picture go.")] = Path("demo-output"),
) -> None:
    """Start everything, decompose a cube, show what came of it, and shut down."""
    from prismline_cli.demo import demo as run_demo

    with reachable():
        ok = run_demo(cube, survey, chunk_size, to)
    if not ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


@app.command("demo-captions")
def demo_captions(
    to: Annotated[Path, typer.Option(help="Where the frames, the logs and the state go.")] = Path("demo-output"),
) -> None:
    """Caption a recording through a GPU outage: the alert, the mute, the captions."""
    from prismline_cli.demo_captions import demo_captions as run_demo

    with reachable():
        ok = run_demo(to)
    if not ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}


def _find(connection: Connection, run_id: str) -> RunView:
    """The run with this id, or the only one whose id begins with it."""
    view = load_run(connection, run_id)
    if view is None:
        matches = [other for other in list_runs(connection, None, 1000) if other.run_id.startswith(run_id)]
        if len(matches) != 1:
            fail(f"There is no run {run_id}." if not matches else f"{len(matches)} runs begin with {run_id}.")
        view = matches[0]
    return view


def _item(view: RunView) -> RunItem:
    if view.item is None:
        fail(f"Run {view.run_id} has no chunks: {view.state.error_message if view.state else 'it is being submitted'}")
    return view.item


def _show_run(view: RunView, *, as_json: bool) -> None:
    if as_json:
        print_json(view.as_json())
    else:
        table = Table(box=None, show_header=False)
        for name, value in view.as_json().items():
            if value not in (None, {}):
                table.add_row(name, _coloured(value) if name == "status" else str(value))
        console.print(table)
    if not view.ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)


def _show_chunks(found: list[ChunkItem], *, as_json: bool) -> None:
    if as_json:
        print_json([_chunk_json(chunk) for chunk in found])
        return
    table = Table("chunk", "status", "items", "attempts", "started", "ms", "error", box=None)
    for chunk in found:
        table.add_row(
            chunk.chunk_id,
            _coloured(chunk.status),
            str(chunk.n_items),
            str(chunk.attempts),
            chunk.started_at or "-",
            str(chunk.duration_ms or "-"),
            chunk.error or chunk.last_error or "",
        )
    console.print(table if found else "No chunks.")


def _chunk_json(chunk: ChunkItem) -> dict[str, Any]:
    document = chunk.model_dump(exclude={"PK", "SK"}, exclude_none=True)
    return {"run_id": chunk.run_id, "chunk_id": chunk.chunk_id} | document


def _coloured(status: str) -> str:
    colours = {"completed": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "in_progress": "cyan"}
    colour = colours.get(status.lower())
    return f"[{colour}]{status}[/]" if colour else status


def main() -> None:
    """Entry point of `prismline`."""
    app()


if __name__ == "__main__":
    main()
