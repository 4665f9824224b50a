"""Pictures of a decomposition: maps of what was found, and spectra with their components."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from prismline_cli import panels, titles
from prismline_cli.panels import ROUND_STEPS, Map, PixelKind, draw_counts, draw_map, robust_scale
from prismline_cli.titles import Title
from prismline_contracts.decomposition import BASELINE_COLUMNS
from prismline_contracts.maps import MapName
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube import DisplayAxis, flat_components, gaussians, map_values

Pixel = tuple[int, int]
"""Column x and row y of a spectrum, from 0."""

#: Spectra in the gallery: three rows of three.
GALLERY = 9

#: Dots per inch, and width in inches: 1,600 pixels.
DPI, WIDTH_IN = 125, 12.8

#: Inches: the width and maximum height of a map, and its minimum height; the labels and the legend around the maps;
#: a row of the gallery; a picture of one spectrum without its title.
MAP_IN, LEAST_MAP_IN, _AROUND_MAPS_IN, _GALLERY_ROW_IN = 3.3, 1.5, 1.35, 1.85
_SPECTRUM_WIDTH_IN, _SPECTRUM_HEIGHT_IN = 9.6, 5.2

#: A component is drawn where it is higher than this fraction of its amplitude. Its tails would hide other components.
_DRAWN_PART = 0.005

#: Colours of a spectrum, of the sum of its components, and of the components in turn. Colour-blind readers can tell
#: them apart (Okabe and Ito, https://jfly.uni-koeln.de/color/).
_DATA, _SUM = "#9a9a9a", "#1a1a1a"
_COMPONENTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.direction": "out",
    "ytick.direction": "out",
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "legend.frameon": False,
}

_KINDS = {
    "fitted": PixelKind.FITTED,
    "empty": PixelKind.EMPTY,
    "blank": PixelKind.BLANK,
    "timed_out": PixelKind.TIMED_OUT,
}


@dataclass(frozen=True)
class Maps:
    """The results of a decomposition as maps. NaN where there is no value; `kinds` has the reason."""

    #: Sum of the areas of a spectrum's Gaussians, in the cube's unit times the spectral axis's.
    integrated: Map
    #: Number of components; 0 where nothing was found.
    n_components: Map
    #: Coordinate of the strongest component; NaN also where nothing was found.
    strongest: Map
    #: `PixelKind` of each pixel, shape (ny, nx). A pixel that `table` has no row for was not processed.
    kinds: NDArray[np.int_]


@dataclass(frozen=True)
class Spectrum:
    """A spectrum (channels,) and its components (k, 3): amplitude, mean and stddev in channels.

    A fourth column of the components has their optical depths, if the run has any.
    """

    pixel: Pixel
    values: NDArray[np.floating]
    components: NDArray[np.float64]
    rms: float | None
    status: str
    #: Coefficients of the fitted baseline, by power of the channel.
    baseline: NDArray[np.float64]
    #: Celestial longitude and latitude, degrees; None where they are not known.
    sky: tuple[float, float] | None = None

    def baseline_at(self, channels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The baseline at `channels`; zero if none was fitted."""
        return np.polynomial.Polynomial(self.baseline)(channels)


def maps(table: pa.Table, geometry: CubeGeometry) -> Maps:
    """The maps of the decomposition `table`. Pixels whose chunk has not completed are marked."""
    axis = DisplayAxis.of(geometry)
    shape = (geometry.ny, geometry.nx)
    y, x = table["y"].to_numpy(), table["x"].to_numpy()
    status = np.asarray(table["status"].to_pylist(), dtype=object)
    found = []
    for shown in (MapName.INTEGRATED, MapName.COMPONENTS, MapName.VELOCITY):
        values = np.full(shape, np.nan)
        values[y, x] = map_values(table, shown, axis)
        found.append(values)
    kinds = np.full(shape, PixelKind.UNPROCESSED, dtype=np.int_)
    for name, kind in _KINDS.items():
        kinds[y[status == name], x[status == name]] = kind
    return Maps(found[0], found[1], found[2], kinds)


def gallery_pixels(table: pa.Table, n: int = GALLERY) -> list[Pixel]:
    """The pixels of `n` typical spectra: evenly spaced when sorted by number of components, then by brightness."""
    row, amplitude, _, stddev = flat_components(table)
    areas = np.bincount(row, amplitude * stddev, len(table))
    counts = table["n_components"].to_numpy()
    order = np.lexsort((areas, counts))
    candidates = order[counts[order] > 0]
    places = np.unique((np.arange(0.5, n) / n * len(candidates)).astype(int)) if len(candidates) else np.array([], int)
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    return [(int(x[index]), int(y[index])) for index in candidates[places]]


def overview(
    table: pa.Table, geometry: CubeGeometry, spectra: Mapping[Pixel, NDArray[np.floating]], *, title: Title
) -> Figure:
    """The maps of `table` and, below, the `spectra` (channels,) with their components, 1,600 pixels wide."""
    with matplotlib.rc_context(STYLE):
        axis, found = DisplayAxis.of(geometry), maps(table, geometry)
        shown = [spectrum_at(table, pixel, values) for pixel, values in spectra.items()]
        rows = math.ceil(len(shown) / 3)
        heights = [map_height_in(geometry) + _AROUND_MAPS_IN, *([rows * _GALLERY_ROW_IN] if rows else [])]
        figure, parts = titled_figure(title, WIDTH_IN, heights)
        _draw_maps(parts[0], found, axis, geometry, [spectrum.pixel for spectrum in shown])
        if shown:
            _draw_gallery(parts[1], shown, axis, geometry)
        return figure


def one_spectrum(
    table: pa.Table, geometry: CubeGeometry, pixel: Pixel, values: NDArray[np.floating], *, title: Title
) -> Figure:
    """The spectrum `values` (channels,) at `pixel` with its components, and the residual.

    Raises `LookupError` if `table` has no row for the pixel.
    """
    with matplotlib.rc_context(STYLE):
        axis, spectrum = DisplayAxis.of(geometry), spectrum_at(table, pixel, values)
        figure, (part,) = titled_figure(title, _SPECTRUM_WIDTH_IN, [_SPECTRUM_HEIGHT_IN])
        upper, lower = part.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_spectrum(upper, spectrum, axis, geometry.line)
        upper.set_title(_describe(spectrum), loc="left", fontweight="normal")
        upper.set_ylabel(_quantity(geometry.bunit))
        upper.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
        channels = np.arange(len(values), dtype=float)
        residual = values - spectrum.baseline_at(channels)
        residual -= gaussians(spectrum.components, channels, geometry.line).sum(axis=0)
        lower.step(axis.at(channels), residual, where="mid", color=_DATA, linewidth=1.0)
        lower.axhline(0.0, color=_SUM, linewidth=0.7)
        if spectrum.rms is not None:
            lower.axhspan(-spectrum.rms, spectrum.rms, color=_COMPONENTS[0], alpha=0.15, linewidth=0)
            lower.set_title("Residual, and the noise (band)", loc="left", fontweight="normal")
        lower.set_xlabel(axis.label)
        lower.set_ylabel(geometry.bunit)
        lower.margins(x=0)
        return figure


def titled_figure(title: Title, width_in: float, heights_in: Sequence[float]) -> tuple[Figure, list[Any]]:
    """Make a figure with `title` above parts (subfigures) of these heights. Return the figure and its parts."""
    heights = [titles.height_in(title, width_in), *heights_in]
    figure = Figure((width_in, sum(heights)), DPI, layout="constrained")
    parts = list(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    titles.draw(parts[0], title, width_in)
    return figure, parts[1:]


def map_height_in(geometry: CubeGeometry) -> float:
    """The height of a map of the cube, in inches."""
    return min(MAP_IN, max(LEAST_MAP_IN, MAP_IN * geometry.ny / geometry.nx))


def save(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path`. The suffix of the name chooses PNG, PDF or SVG."""
    figure.savefig(path, format=path.suffix.removeprefix(".").lower(), facecolor="white")
    return path


def _draw_maps(part: Any, found: Maps, axis: DisplayAxis, geometry: CubeGeometry, marked: list[Pixel]) -> None:
    first, second, third = panels.map_panels(part, 1, 3, geometry)[0]
    area = " ".join(unit for unit in (geometry.bunit, axis.unit) if unit)
    integrated, strongest = robust_scale(found.integrated), robust_scale(found.strongest)
    where = f"{axis.name} of the strongest component"
    draw_map(
        first, found.integrated, found.kinds,
        name="Integrated intensity", unit=area, colours="inferno", scale=integrated,
    )  # fmt: skip
    draw_counts(second, found.n_components, found.kinds, name="Number of components")
    draw_map(third, found.strongest, found.kinds, name=where, unit=axis.unit, colours="plasma", scale=strongest)
    for number, (x, y) in enumerate(marked, start=1):
        mark(first, number, x, y)
    note = panels.clipped_note([("integrated intensity", integrated), (axis.name.lower(), strongest)])
    panels.draw_legend(part, found.kinds, note)


def mark(panel: Any, number: int, x: int, y: int) -> None:
    """Put `number` in a circle on a pixel of a map."""
    circle = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "black", "linewidth": 0.5}
    panel.annotate(str(number), (x, y), ha="center", va="center", fontsize=7, color="black", bbox=circle)


def _draw_gallery(part: Any, shown: list[Spectrum], axis: DisplayAxis, geometry: CubeGeometry) -> None:
    plots = part.subplots(math.ceil(len(shown) / 3), 3, sharex=True, squeeze=False)
    for number, (panel, spectrum) in enumerate(zip(plots.flat, shown, strict=False), start=1):
        _draw_spectrum(panel, spectrum, axis, geometry.line)
        panel.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND_STEPS))
        panel.set_title(f"{number}   {_describe(spectrum)}", loc="left", fontsize=9, fontweight="normal")
    for panel in list(plots.flat)[len(shown) :]:
        panel.set_visible(False)
    for column in range(min(3, len(shown))):
        lowest = plots[(len(shown) - 1 - column) // 3, column]
        lowest.set_xlabel(axis.label)
        lowest.tick_params(labelbottom=True)
    part.supylabel(_quantity(geometry.bunit), fontsize=9)
    handles, labels = plots.flat[0].get_legend_handles_labels()
    part.legend(handles, labels, loc="outside lower right", ncols=len(labels))


def _draw_spectrum(panel: Axes, spectrum: Spectrum, axis: DisplayAxis, line: LineProfile | None) -> None:
    channels = np.arange(len(spectrum.values), dtype=float)
    fine = np.linspace(0.0, max(len(channels) - 1, 0), 8 * len(channels))
    curves, below = gaussians(spectrum.components, fine, line), spectrum.baseline_at(fine)
    panel.step(axis.at(channels), spectrum.values, where="mid", color=_DATA, linewidth=0.9, label="spectrum")
    for number, curve in enumerate(curves):
        drawn = np.where(curve > _DRAWN_PART * curve.max(), curve, np.nan)
        colour = _COMPONENTS[number % len(_COMPONENTS)]
        label = "components" if number == 0 else None
        panel.fill_between(axis.at(fine), below + drawn, below, color=colour, alpha=0.28, linewidth=0)
        panel.plot(axis.at(fine), below + drawn, color=colour, linewidth=1.1, label=label)
    if len(curves) or below.any():
        label = "sum with the baseline" if below.any() else "sum"
        panel.plot(axis.at(fine), below + curves.sum(axis=0), color=_SUM, linewidth=1.3, label=label)
    panel.axhline(0.0, color=_DATA, linewidth=0.5)
    panel.margins(x=0)
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=ROUND_STEPS))


def spectrum_at(table: pa.Table, pixel: Pixel, values: NDArray[np.floating]) -> Spectrum:
    """The row of `table` for the pixel, with its `values`. Raises `LookupError` if there is none."""
    here = table.filter(pc.and_(pc.equal(table["x"], pixel[0]), pc.equal(table["y"], pixel[1])))
    if len(here) == 0:
        raise LookupError(f"There is no result for x={pixel[0]}, y={pixel[1]}.")
    row = here.slice(0, 1).to_pylist()[0]
    columns = [row["component_amplitudes"], row["component_means"], row["component_stddevs"]]
    if depths := row.get("component_optical_depths"):
        columns.append(depths)
    sky = row.get("longitude"), row.get("latitude")
    known = None if sky[0] is None or sky[1] is None else (sky[0], sky[1])
    baseline = np.array([row.get(name) or 0.0 for name in BASELINE_COLUMNS])
    return Spectrum(pixel, values, np.array(columns, dtype=float).T, row["rms"], row["status"], baseline, known)


def _describe(spectrum: Spectrum) -> str:
    x, y = spectrum.pixel
    n = len(spectrum.components)
    what = {"blank": "blank in the cube", "timed_out": "out of time, to be fitted again"}.get(
        spectrum.status, f"{n or 'no'} component{'' if n == 1 else 's'}"
    )
    sky = f" ({spectrum.sky[0]:.4f}\u00b0, {spectrum.sky[1]:+.4f}\u00b0)" if spectrum.sky else ""
    return f"x = {x}, y = {y}{sky}:  {what}"


def _quantity(bunit: str) -> str:
    return f"Intensity ({bunit})" if bunit else "Intensity"
