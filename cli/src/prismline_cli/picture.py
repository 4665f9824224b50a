"""Pictures of a decomposition: maps of what was found, and spectra with their components."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from astropy import units
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from prismline_contracts import CubeGeometry

Pixel = tuple[int, int]
"""Column x and row y of a spectrum, from 0."""

Map = NDArray[np.float64]
"""Shape (ny, nx), NaN where there is no value."""

#: Spectra in the gallery: three rows of three.
GALLERY = 9

#: Dots per inch, and width in inches: 1,600 pixels.
DPI, WIDTH_IN = 125, 12.8

#: Inches: the width of a map, which is also its greatest height, and its least height; the title, the labels and the
#: legend around the maps; a row of the gallery.
_MAP_IN, _LEAST_MAP_IN, _AROUND_MAPS_IN, _GALLERY_ROW_IN = 3.3, 1.5, 1.5, 1.85

#: Maps more oblong than this are stretched to fill their frame: square pixels would make them a line.
_MOST_OBLONG = 4.0

#: Ticks are these multiples of a power of ten apart.
_ROUND_STEPS = [1, 2, 5, 10]

#: Percentile of the numbers of components that gets the last colour of its own: a few failed fits find many.
_COUNT_PERCENTILE = 99.0

#: Numbers of components that the colour bar names.
_COUNT_TICKS = 10

#: A component is drawn where it is higher than this part of its amplitude; its tails would hide the others' baseline.
_DRAWN_PART = 0.005

#: Pixels without data, without components, and out of time.
_BLANK, _EMPTY, _TIMED_OUT = "#d6d6d6", "#ffffff", "#4fd8ff"

#: A spectrum, the sum of its components, and the components in turn: Okabe and Ito's colours, which the colour-blind
#: tell apart (https://jfly.uni-koeln.de/color/).
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

_AXIS_NAMES = {
    "VRAD": "Velocity",
    "VOPT": "Velocity",
    "VELO": "Velocity",
    "FELO": "Velocity",
    "FREQ": "Frequency",
    "WAVE": "Wavelength",
    "AWAV": "Wavelength",
}

#: The unit in which a quantity is shown; others stay as the header has them.
_SHOWN_UNITS = (units.km / units.s, units.GHz)


@dataclass(frozen=True)
class SpectralAxis:
    """The spectral axis of a cube in the unit that a person reads: `name` in `unit`, km/s for velocities."""

    name: str
    unit: str
    #: Coordinate of channel 0, and the step from a channel to the next.
    start: float
    step: float

    @classmethod
    def of(cls, geometry: CubeGeometry) -> SpectralAxis:
        """The axis that `geometry` describes."""
        unit, factor = geometry.cunit, 1.0
        try:
            parsed = units.Unit(geometry.cunit)
        except ValueError:  # a header may hold anything; then the axis is labelled with it
            parsed = units.dimensionless_unscaled
        for shown in _SHOWN_UNITS:
            if parsed.is_equivalent(shown):
                unit, factor = shown.to_string("fits").replace("km s-1", "km/s"), float(parsed.to(shown))
        start = geometry.crval + (1 - geometry.crpix) * geometry.cdelt
        name = _AXIS_NAMES.get(geometry.ctype[:4].upper(), geometry.ctype or "Spectral axis")
        return cls(name, unit, start * factor, geometry.cdelt * factor)

    def at(self, channel: Any) -> Any:
        """The coordinate of `channel`, a number or an array, from 0."""
        return self.start + self.step * np.asarray(channel)

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Maps:
    """What a decomposition found, over the sky. NaN where there is no data."""

    #: Sum of the areas of a spectrum's Gaussians, in the cube's unit times the spectral axis's.
    integrated: Map
    #: Number of components; 0 where nothing was found.
    n_components: Map
    #: Coordinate of the strongest component; NaN also where nothing was found.
    strongest: Map
    #: True where the fit ran out of time.
    timed_out: NDArray[np.bool_]


@dataclass(frozen=True)
class Spectrum:
    """A spectrum (channels,) and its components (k, 3): amplitude, mean and stddev in channels."""

    pixel: Pixel
    values: NDArray[np.floating]
    components: NDArray[np.float64]
    rms: float | None
    status: str


def maps(table: pa.Table, geometry: CubeGeometry) -> Maps:
    """The maps of the decomposition `table`; what the table lacks, because its chunk failed, is without data."""
    axis = SpectralAxis.of(geometry)
    shape = (geometry.ny, geometry.nx)
    y, x = table["y"].to_numpy(), table["x"].to_numpy()
    status = np.asarray(table["status"].to_pylist(), dtype=object)
    looked_at = np.isin(status, ["fitted", "empty"])
    row, amplitude, mean, stddev = _flat_components(table)

    areas = amplitude * stddev * math.sqrt(2 * math.pi) * abs(axis.step)
    integrated = np.full(shape, np.nan)
    integrated[y[looked_at], x[looked_at]] = np.bincount(row, areas, len(table))[looked_at]
    n_components = np.full(shape, np.nan)
    n_components[y[looked_at], x[looked_at]] = table["n_components"].to_numpy()[looked_at]
    strongest = np.full(shape, np.nan)
    order = np.argsort(amplitude, kind="stable")  # of one pixel's values, the last one assigned stays
    strongest[y[row[order]], x[row[order]]] = axis.at(mean[order])
    timed_out = np.zeros(shape, dtype=bool)
    timed_out[y[status == "timed_out"], x[status == "timed_out"]] = True
    return Maps(integrated, n_components, strongest, timed_out)


def gallery_pixels(table: pa.Table, n: int = GALLERY) -> list[Pixel]:
    """The pixels of `n` spectra that stand for all: evenly spaced in the order of components, then of brightness."""
    row, amplitude, _, stddev = _flat_components(table)
    areas = np.bincount(row, amplitude * stddev, len(table))
    counts = table["n_components"].to_numpy()
    order = np.lexsort((areas, counts))
    candidates = order[counts[order] > 0]
    places = np.unique((np.arange(0.5, n) / n * len(candidates)).astype(int)) if len(candidates) else np.array([], int)
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    return [(int(x[index]), int(y[index])) for index in candidates[places]]


def overview(
    table: pa.Table, geometry: CubeGeometry, spectra: Mapping[Pixel, NDArray[np.floating]], *, title: str
) -> Figure:
    """The maps of `table` and, below, the `spectra` (channels,) with their components, 1,600 pixels wide."""
    with matplotlib.rc_context(STYLE):
        axis, found = SpectralAxis.of(geometry), maps(table, geometry)
        shown = [spectrum_at(table, pixel, values) for pixel, values in spectra.items()]
        rows = math.ceil(len(shown) / 3)
        map_in = min(_MAP_IN, max(_LEAST_MAP_IN, _MAP_IN * geometry.ny / geometry.nx))
        heights = [map_in + _AROUND_MAPS_IN, rows * _GALLERY_ROW_IN] if rows else [map_in + _AROUND_MAPS_IN]
        figure = Figure((WIDTH_IN, sum(heights)), DPI, layout="constrained")
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        parts[0].suptitle(title)
        _draw_maps(parts[0], found, axis, geometry, [spectrum.pixel for spectrum in shown])
        if shown:
            _draw_gallery(parts[1], shown, axis, geometry)
        return figure


def one_spectrum(
    table: pa.Table, geometry: CubeGeometry, pixel: Pixel, values: NDArray[np.floating], *, title: str
) -> Figure:
    """The spectrum `values` (channels,) at `pixel` with its components, and what they leave over.

    Raises `LookupError` if `table` has no row for the pixel.
    """
    with matplotlib.rc_context(STYLE):
        axis, spectrum = SpectralAxis.of(geometry), spectrum_at(table, pixel, values)
        figure = Figure((WIDTH_IN * 0.75, 5.6), DPI, layout="constrained")
        figure.suptitle(title)
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_spectrum(upper, spectrum, axis)
        upper.set_title(_describe(spectrum), loc="left", fontweight="normal")
        upper.set_ylabel(_quantity(geometry.bunit))
        upper.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
        coordinates = axis.at(np.arange(len(values)))
        residual = values - gaussians(spectrum.components, np.arange(len(values), dtype=float)).sum(axis=0)
        lower.step(coordinates, residual, where="mid", color=_DATA, linewidth=1.0)
        lower.axhline(0.0, color=_SUM, linewidth=0.7)
        if spectrum.rms is not None:
            lower.axhspan(-spectrum.rms, spectrum.rms, color=_COMPONENTS[0], alpha=0.15, linewidth=0)
            lower.set_title("Residual, and the noise (band)", loc="left", fontweight="normal")
        lower.set_xlabel(axis.label)
        lower.set_ylabel(geometry.bunit)
        lower.margins(x=0)
        return figure


def save(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path` as PNG."""
    figure.savefig(path, format="png", facecolor="white")
    return path


def _draw_maps(part: Any, found: Maps, axis: SpectralAxis, geometry: CubeGeometry, marked: list[Pixel]) -> None:
    panels = part.subplots(1, 3)
    area = " ".join(unit for unit in (geometry.bunit, axis.unit) if unit)
    no_data = np.isnan(found.n_components) & ~found.timed_out
    for panel, values, colours, name, unit in (
        (panels[0], found.integrated, "inferno", "Integrated intensity", area),
        (panels[1], found.n_components, "", "Number of components", ""),
        (panels[2], found.strongest, "plasma", f"{axis.name} of the strongest component", axis.unit),
    ):
        background = np.where(no_data, 0.0, np.where(found.timed_out, 2.0, 1.0))
        oblong = max(geometry.nx, geometry.ny) > _MOST_OBLONG * min(geometry.nx, geometry.ny)
        frame: dict[str, Any] = {
            "origin": "lower",
            "interpolation": "nearest",
            "aspect": "auto" if oblong else "equal",
        }
        panel.imshow(background, cmap=ListedColormap([_BLANK, _EMPTY, _TIMED_OUT]), vmin=0, vmax=2, **frame)
        scale = {"cmap": colormaps[colours]} if colours else _count_scale(values)
        image = panel.imshow(np.ma.masked_invalid(values), **scale, **frame)
        bar = part.colorbar(image, cax=panel.inset_axes((1.03, 0.0, 0.05, 1.0)))
        if colours:
            bar.locator = MaxNLocator(6, steps=_ROUND_STEPS)
        else:
            _name_counts(bar, values)
        bar.outline.set_linewidth(0.5)
        bar.set_label(unit)
        # over a map that is narrower than its title, the title has room to either side
        panel.set_title(name, loc="left" if geometry.nx >= geometry.ny else "center")
        panel.set_xlabel("x (pixel)")
        for pixels in (panel.xaxis, panel.yaxis):
            pixels.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=_ROUND_STEPS))
        panel.spines[:].set_visible(True)
    panels[0].set_ylabel("y (pixel)")
    for number, (x, y) in enumerate(marked, start=1):
        panels[0].annotate(
            str(number),
            (x, y),
            ha="center",
            va="center",
            fontsize=7,
            color="black",
            bbox={"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "black", "linewidth": 0.5},
        )
    _draw_map_legend(part, no_data, found)


def _draw_map_legend(part: Any, no_data: NDArray[np.bool_], found: Maps) -> None:
    meanings = (
        (_BLANK, "no data", no_data.any()),
        (_EMPTY, "no component", (found.n_components == 0).any()),
        (_TIMED_OUT, "out of time, to be fitted again", found.timed_out.any()),
    )
    handles = [
        Patch(facecolor=colour, edgecolor="#808080", linewidth=0.5, label=label)
        for colour, label, present in meanings
        if present
    ]
    if handles:
        part.legend(handles=handles, loc="outside lower right", ncols=len(handles), handlelength=1.0, handleheight=1.0)


def _most_counted(counts: Map) -> int:
    """The number of components that gets the last colour; higher ones share it."""
    known = counts[~np.isnan(counts)]
    return max(1, math.ceil(np.percentile(known, _COUNT_PERCENTILE))) if known.size else 1


def _count_scale(counts: Map) -> dict[str, Any]:
    """A colour for each number of components."""
    most = _most_counted(counts)
    return {"cmap": colormaps["viridis"].resampled(most + 1), "norm": BoundaryNorm(np.arange(-0.5, most + 1), most + 1)}


def _name_counts(bar: Colorbar, counts: Map) -> None:
    most = _most_counted(counts)
    ticks = list(range(most, -1, -max(1, math.ceil((most + 1) / _COUNT_TICKS))))
    more = "\u2265 " if np.nanmax(counts, initial=0) > most else ""
    bar.set_ticks(ticks, labels=[f"{more}{most}", *map(str, ticks[1:])])
    bar.ax.minorticks_off()


def _draw_gallery(part: Any, shown: list[Spectrum], axis: SpectralAxis, geometry: CubeGeometry) -> None:
    panels = part.subplots(math.ceil(len(shown) / 3), 3, sharex=True, squeeze=False)
    for number, (panel, spectrum) in enumerate(zip(panels.flat, shown, strict=False), start=1):
        _draw_spectrum(panel, spectrum, axis)
        panel.yaxis.set_major_locator(MaxNLocator(4, steps=_ROUND_STEPS))
        panel.set_title(f"{number}   {_describe(spectrum)}", loc="left", fontsize=9, fontweight="normal")
    for panel in list(panels.flat)[len(shown) :]:
        panel.set_visible(False)
    for column in range(min(3, len(shown))):
        lowest = panels[(len(shown) - 1 - column) // 3, column]
        lowest.set_xlabel(axis.label)
        lowest.tick_params(labelbottom=True)
    part.supylabel(_quantity(geometry.bunit), fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    part.legend(handles, labels, loc="outside lower right", ncols=len(labels))


def _draw_spectrum(panel: Axes, spectrum: Spectrum, axis: SpectralAxis) -> None:
    channels = np.arange(len(spectrum.values), dtype=float)
    fine = np.linspace(0.0, max(len(channels) - 1, 0), 8 * len(channels))
    curves = gaussians(spectrum.components, fine)
    panel.step(axis.at(channels), spectrum.values, where="mid", color=_DATA, linewidth=0.9, label="spectrum")
    for number, (curve, (amplitude, *_)) in enumerate(zip(curves, spectrum.components, strict=True)):
        drawn = np.where(curve > _DRAWN_PART * amplitude, curve, np.nan)
        colour = _COMPONENTS[number % len(_COMPONENTS)]
        label = "components" if number == 0 else None
        panel.fill_between(axis.at(fine), drawn, color=colour, alpha=0.28, linewidth=0)
        panel.plot(axis.at(fine), drawn, color=colour, linewidth=1.1, label=label)
    if len(curves):
        panel.plot(axis.at(fine), curves.sum(axis=0), color=_SUM, linewidth=1.3, label="sum")
    panel.axhline(0.0, color=_DATA, linewidth=0.5)
    panel.margins(x=0)
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=_ROUND_STEPS))


def gaussians(components: NDArray[np.float64], channels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The components (k, 3) at `channels` (n,), shape (k, n)."""
    amplitude, mean, stddev = (components[:, [column]] for column in range(3))
    curves: NDArray[np.float64] = amplitude * np.exp(-0.5 * ((channels - mean) / stddev) ** 2)
    return curves


def spectrum_at(table: pa.Table, pixel: Pixel, values: NDArray[np.floating]) -> Spectrum:
    """The row of `table` for the pixel, with its `values`. Raises `LookupError` if there is none."""
    here = table.filter(pc.and_(pc.equal(table["x"], pixel[0]), pc.equal(table["y"], pixel[1])))
    if len(here) == 0:
        raise LookupError(f"There is no result for x={pixel[0]}, y={pixel[1]}.")
    row = here.slice(0, 1).to_pylist()[0]
    columns = [row["component_amplitudes"], row["component_means"], row["component_stddevs"]]
    return Spectrum(pixel, values, np.array(columns, dtype=float).T, row["rms"], row["status"])


def _describe(spectrum: Spectrum) -> str:
    x, y = spectrum.pixel
    n = len(spectrum.components)
    what = {"blank": "no data", "timed_out": "out of time"}.get(
        spectrum.status, f"{n or 'no'} component{'' if n == 1 else 's'}"
    )
    return f"x = {x}, y = {y}:  {what}"


def _quantity(bunit: str) -> str:
    return f"Intensity ({bunit})" if bunit else "Intensity"


def _flat_components(
    table: pa.Table,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Row of the table, amplitude, mean and stddev of every component."""
    row = pc.list_parent_indices(table["component_amplitudes"].combine_chunks()).to_numpy()
    amplitude, mean, stddev = (
        pc.list_flatten(table[f"component_{name}"]).to_numpy() for name in ("amplitudes", "means", "stddevs")
    )
    return row, amplitude, mean, stddev
