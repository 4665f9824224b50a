"""The demonstration: decompose a cube on this machine, from the FITS file to the maps."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.compute as pc
from astropy.io import fits
from rich.table import Table

from prismline_cli import downloading, plotting, results
from prismline_cli.connection import Connection
from prismline_cli.output import console, fail, stderr
from prismline_cli.runs import RunView
from prismline_cli.submission import check_survey, submit
from prismline_cli.watching import PICKED_UP_SECONDS, watch
from prismline_cli.web_console import console_address
from prismline_client import Client
from prismline_localstack import harness
from prismline_localstack.demos import DemoResult, synthetic
from prismline_localstack.state import API

#: Number of chunks of a demonstration. More chunks than necessary make its progress visible.
DEMO_CHUNKS = 20
#: Only cubes of at most this many spectra are cut into more chunks than necessary.
SMALL_CUBE = 10_000
#: Seconds between two checks whether a system that is kept for the console still runs.
KEPT_LOOK_SECONDS = 0.5


def demo(cube: Path | None, survey: str | None, chunk_size: int | None, to: Path, *, keep: bool = False) -> DemoResult:
    """Run the demonstration. It succeeds if every chunk completes. A system that ran before keeps running.

    keep: continue to serve the console until the user presses Ctrl-C.
    """
    to.mkdir(parents=True, exist_ok=True)
    if cube is None:
        cube = to / "demo-cube.fits"
        synthetic.make_cube(cube)
        console.print(f"Generated {cube}: 40 x 50 spectra with known components.")
    elif not cube.is_file():
        fail(f"{cube} is a directory, not a FITS file." if cube.is_dir() else f"There is no file {cube}.")
    survey = survey or cube.stem
    check_survey(survey)
    was_up = harness.is_up()
    if not was_up:
        with stderr.status("starting an AWS emulator and the services"):
            harness.up()
    try:
        view = _decompose(cube, survey, chunk_size, to)
        if was_up or keep:
            address = console_address(harness.load_state().url(API), view.run_id)
            console.print(f"The console shows the run at {address}", soft_wrap=True)
        if keep and not was_up:
            console.print("Press Ctrl-C to shut down.")
            with suppress(KeyboardInterrupt):
                while harness.is_up():
                    time.sleep(KEPT_LOOK_SECONDS)
    finally:
        if not was_up:
            with stderr.status("shutting down"):
                harness.down()
    return DemoResult(view.ok, view.run_id)


def _decompose(cube: Path, survey: str, chunk_size: int | None, to: Path) -> RunView:
    connection = Connection.open()
    began = time.monotonic()
    fields = {"survey": survey} | ({"chunk_size": size} if (size := chunk_size or _chunk_size(cube)) else {})
    run_id = submit(connection, str(cube), fields)
    console.print(f"Submitted run {run_id} of survey {survey}.", soft_wrap=True)
    client = Client.open()
    view = watch(client, run_id, appear_within=PICKED_UP_SECONDS)
    seconds = time.monotonic() - began
    if not view.opened or view.completed == 0:
        reason = view.run.error or "the status service has recorded no reason"
        console.print(f"The run failed: {reason}", markup=False)
        return view
    with stderr.status("drawing"):
        files = downloading.download(client, run_id, to)
        decomposition = results.load(client, run_id)
        picture = plotting.draw_run(client, view, to / f"{survey}.png")
    components = pc.sum(pc.max_element_wise(decomposition.table["n_components"], 0)).as_py()
    table = Table(box=None, show_header=False)
    for name, value in (
        ("run", run_id),
        ("status", view.run.status),
        ("spectra", f"{len(decomposition.table)}"),
        ("components", f"{components}"),
        ("chunks", f"{view.completed} completed, {view.failed} failed"),
        ("input of a chunk", _input_of(connection, run_id)),
        ("time", f"{seconds:.1f} s, {len(decomposition.table) / seconds:.0f} spectra/s from upload to Parquet"),
        ("dataset", f"{files[0].parents[2]} ({len(files)} Parquet files)"),
        ("picture", str(picture)),
        ("see it again", f"prismline up && prismline open {run_id}"),
    ):
        table.add_row(name, value)
    console.print(table)
    return view


def _input_of(connection: Connection, run_id: str) -> str:
    """A description of the chunk input that the splitter chose."""
    referring = any(chunk.reference is not None for chunk in connection.ledger.chunks(run_id))
    return (
        "a reference to the cube: workers read its bytes" if referring else "a copy of its spectra (small cube, or .gz)"
    )


def _chunk_size(cube: Path) -> int | None:
    """Number of spectra per chunk with which a small cube gives about `DEMO_CHUNKS` chunks. None: the splitter chooses.

    The function guesses that the longest axis is the spectral one. A wrong guess only changes the steps of the bar.
    """
    try:
        header = fits.getheader(cube)
    except (OSError, KeyError):
        return None
    lengths = sorted(int(header[f"NAXIS{n}"]) for n in range(1, int(header["NAXIS"]) + 1))
    n_spectra = math.prod(lengths[:-1])
    return math.ceil(n_spectra / DEMO_CHUNKS) if 0 < n_spectra <= SMALL_CUBE else None
