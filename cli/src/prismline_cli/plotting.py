"""Fetch what a picture needs, and draw it."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from prismline_cli import diagnostics, picture, results
from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_cli.runs import RunView
from prismline_cli.titles import Title
from prismline_contracts import RunItem

#: Endings of the files that a picture can be written to.
FORMATS = (".png", ".pdf", ".svg")


def check_target(to: Path) -> None:
    """End the command with the reason if no picture can be written to `to`; asked before anything is fetched."""
    if to.suffix.lower() not in FORMATS:
        fail(f"{to} does not end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, so it is unclear what to write.")
    if to.is_dir():
        fail(f"{to} is a folder; give the name of a file in it.")
    if not to.parent.is_dir():
        fail(f"There is no folder {to.parent}; create it first.")


def draw_run(connection: Connection, view: RunView, run: RunItem, to: Path) -> Path:
    """Draw the run's maps and a gallery of its spectra into the file `to`."""
    found = _load(connection, run)
    pixels = picture.gallery_pixels(found.table)
    spectra = results.spectra(connection, run, pixels, found.geometry.nx)
    figure = picture.overview(found.table, found.geometry, spectra, title=title_of(view, found))
    return _save(figure, to)


def draw_spectrum(connection: Connection, view: RunView, run: RunItem, x: int, y: int, to: Path) -> Path:
    """Draw the spectrum at the pixel with its components into the file `to`."""
    found = _load(connection, run)
    nx, ny = found.geometry.nx, found.geometry.ny
    if not (0 <= x < nx and 0 <= y < ny):
        fail(f"The cube has no pixel x={x}, y={y}: x goes from 0 to {nx - 1} and y from 0 to {ny - 1}.")
    values = results.spectra(connection, run, [(x, y)], nx).get((x, y))
    if values is None:
        fail(f"The spectrum at x={x}, y={y} was not processed: its chunk has not completed (prismline chunks ID).")
    figure = picture.one_spectrum(found.table, found.geometry, (x, y), values, title=title_of(view, found))
    return _save(figure, to)


def draw_diagnostics(connection: Connection, view: RunView, run: RunItem, to: Path) -> Path:
    """Draw what the run's fits leave over into the file `to`."""
    found = _load(connection, run)
    pixels = picture.gallery_pixels(found.table, diagnostics.SAMPLE)
    try:
        spectra = results.spectra(connection, run, pixels, found.geometry.nx)
        seen = diagnostics.diagnose(found.table, spectra)
    except ValueError as error:
        fail(f"Run {run.run_id} has {error}.")
    return _save(diagnostics.draw(seen, title=title_of(view, found, "What the fits leave over: ")), to)


def title_of(view: RunView, found: results.Decomposition, prefix: str = "") -> Title:
    """What a picture of the run is of: object, survey, job and run, all parameters, and what the run lacks."""
    survey, document = view.item.survey if view.item else "", view.as_json()
    of = f"{found.geometry.object_name}, {survey}" if found.geometry.object_name else survey
    job = document["job_id"]
    heading = f"{prefix}{of}, run {view.run_id[:8]}"
    lines = [f"job {job}"] if job and job != view.run_id else []
    lines.append(" \u00b7 ".join(f"{name} {value}" for name, value in view.params.items()))
    return Title(heading, tuple(line for line in lines if line), tuple(view.warnings))


def _load(connection: Connection, run: RunItem) -> results.Decomposition:
    if run.jobs_completed == 0:
        fail(f"Run {run.run_id} has no completed chunk to draw.")
    return results.load(connection, run)


def _save(figure: Figure, to: Path) -> Path:
    try:
        return picture.save(figure, to)
    except OSError as error:
        fail(f"Cannot write {to}: {error.strerror or error}.")
