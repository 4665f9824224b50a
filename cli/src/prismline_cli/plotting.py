"""Fetch what a picture needs, and draw it."""

from __future__ import annotations

from pathlib import Path

from prismline_cli import picture, results
from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts import RunItem


def draw_run(connection: Connection, run: RunItem, to: Path) -> Path:
    """Draw the run's maps and a gallery of its spectra into the PNG file `to`."""
    found = _load(connection, run)
    pixels = picture.gallery_pixels(found.table)
    spectra = results.spectra(connection, run, pixels, found.geometry.nx)
    title = f"{run.survey}, run {run.run_id[:8]}"
    return picture.save(picture.overview(found.table, found.geometry, spectra, title=title), to)


def draw_spectrum(connection: Connection, run: RunItem, x: int, y: int, to: Path) -> Path:
    """Draw the spectrum at the pixel with its components into the PNG file `to`."""
    found = _load(connection, run)
    values = results.spectra(connection, run, [(x, y)], found.geometry.nx).get((x, y))
    if values is None:
        fail(f"Run {run.run_id} has no completed spectrum at x={x}, y={y}.")
    title = f"{run.survey}, x={x}, y={y}"
    return picture.save(picture.one_spectrum(found.table, found.geometry, (x, y), values, title=title), to)


def _load(connection: Connection, run: RunItem) -> results.Decomposition:
    if run.jobs_completed == 0:
        fail(f"Run {run.run_id} has no completed chunk to draw.")
    return results.load(connection, run)
