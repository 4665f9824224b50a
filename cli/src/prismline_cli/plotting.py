"""Fetch the data for a picture, and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from prismline_cli import comparison_picture, decomposition_picture, diagnostics, results
from prismline_cli.comparison import Comparison, compare, mismatch
from prismline_cli.output import fail
from prismline_cli.runs import RunView
from prismline_cli.titles import Title
from prismline_client import Client

#: Suffixes of the files that a picture can be written to.
FORMATS = (".png", ".pdf", ".svg")


def check_target(to: Path) -> None:
    """End the command with the reason if no picture can be written to `to`. Call it before data are fetched."""
    if to.suffix.lower() not in FORMATS:
        fail(f"{to} does not end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, so it is unclear what to write.")
    if to.is_dir():
        fail(f"{to} is a folder; give the name of a file in it.")
    if not to.parent.is_dir():
        fail(f"There is no folder {to.parent}; create it first.")


def draw_run(client: Client, view: RunView, to: Path) -> Path:
    """Draw the run's maps and a gallery of its spectra into the file `to`."""
    found = _load(client, view)
    pixels = decomposition_picture.gallery_pixels(found.table)
    fetched = results.spectra(client, view.run_id, pixels)
    spectra = {pixel: fetched[pixel] for pixel in pixels if pixel in fetched}
    figure = decomposition_picture.overview(found.table, found.geometry, spectra, title=title_of(view, found))
    return _save(figure, to)


def draw_spectrum(client: Client, view: RunView, x: int, y: int, to: Path) -> Path:
    """Draw the spectrum at the pixel with its components into the file `to`."""
    found = _load(client, view)
    nx, ny = found.geometry.nx, found.geometry.ny
    if not (0 <= x < nx and 0 <= y < ny):
        fail(f"The cube has no pixel x={x}, y={y}: x goes from 0 to {nx - 1} and y from 0 to {ny - 1}.")
    values = results.spectra(client, view.run_id, [(x, y)]).get((x, y))
    if values is None:
        fail(f"The spectrum at x={x}, y={y} was not processed: its chunk has not completed (prismline chunks ID).")
    figure = decomposition_picture.one_spectrum(
        found.table, found.geometry, (x, y), values, title=title_of(view, found)
    )
    return _save(figure, to)


def draw_diagnostics(client: Client, view: RunView, to: Path) -> Path:
    """Draw the residuals of the run's fits into the file `to`."""
    found = _load(client, view)
    pixels = decomposition_picture.gallery_pixels(found.table, diagnostics.SAMPLE)
    try:
        spectra = results.spectra(client, view.run_id, pixels)
        seen = diagnostics.diagnose(found.table, spectra, found.geometry.line)
    except ValueError as error:
        fail(f"Run {view.run_id} has {error}.")
    return _save(diagnostics.draw(seen, title=title_of(view, found, "Residuals of the fits: ")), to)


def draw_comparison(client: Client, views: tuple[RunView, RunView], to: Path) -> tuple[Comparison, Path]:
    """Compare two runs of one cube, and draw the comparison into the file `to`."""
    first, second = (_load(client, view) for view in views)
    if why := mismatch(first.geometry, second.geometry):
        fail(f"The cubes of the two runs cannot be compared: {why}.")
    found = compare(first.table, second.table, first.geometry, second.geometry.line)
    pixels = [(pixel.x, pixel.y) for pixel in found.pixels[: comparison_picture.SPECTRA] if pixel.difference != 0.0]
    values = results.spectra(client, views[0].run_id, pixels)
    spectra = {
        pixel: (
            values[pixel],
            decomposition_picture.spectrum_at(first.table, pixel, values[pixel]).components,
            decomposition_picture.spectrum_at(second.table, pixel, values[pixel]).components,
        )
        for pixel in pixels
        if pixel in values
    }
    titles = title_of(views[0], first), title_of(views[1], second)
    differing = [f"{name} {one} and {other}" for name, (one, other) in differing_params(*views).items()]
    warnings = [f"{view.run_id[:8]}: {warning}" for view in views for warning in view.run.warnings]
    names = views[0].run_id[:8], views[1].run_id[:8]
    other = names[1] if views[0].run.name == views[1].run.name else titles[1].heading
    lines = *titles[0].lines, f"Parameters that differ: {', '.join(differing) or 'none'}"
    title = Title(f"{titles[0].heading} and {other}", lines, tuple(warnings))
    return found, _save(comparison_picture.draw(found, spectra, names, title=title), to)


def differing_params(first: RunView, second: RunView) -> dict[str, list[Any]]:
    """The parameters that differ between the runs, with both values."""
    one, other = first.run.params, second.run.params
    pairs = {name: [one.get(name), other.get(name)] for name in {**one, **other}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def title_of(view: RunView, found: results.Decomposition, prefix: str = "") -> Title:
    """The title of a picture of the run: object, survey, job, run, all parameters, and what is missing."""
    survey, document = view.run.name, view.as_json()
    of = f"{found.geometry.object_name}, {survey}" if found.geometry.object_name else survey
    job = document["job_id"]
    heading = f"{prefix}{of}, run {view.run_id[:8]}"
    lines = [f"job {job}"] if job and job != view.run_id else []
    lines.append(" \u00b7 ".join(f"{name} {value}" for name, value in view.run.params.items()))
    return Title(heading, tuple(line for line in lines if line), tuple(view.run.warnings))


def _load(client: Client, view: RunView) -> results.Decomposition:
    if view.completed == 0:
        fail(f"Run {view.run_id} has no completed chunk to draw.")
    return results.load(client, view.run_id)


def _save(figure: Figure, to: Path) -> Path:
    try:
        return decomposition_picture.save(figure, to)
    except OSError as error:
        fail(f"Cannot write {to}: {error.strerror or error}.")
