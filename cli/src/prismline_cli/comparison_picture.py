"""The picture of a comparison: maps of both runs and of their differences, distributions, and the pixels that differ
most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from prismline_cli import decomposition_picture, panels
from prismline_cli.comparison import Comparison, PixelDifference
from prismline_cli.panels import ROUND_STEPS, Map, draw_counts, draw_map, most_counted, robust_scale
from prismline_cli.titles import Title
from prismline_cube import DisplayAxis, gaussians

#: Number of pixels, those that differ most, whose spectra are drawn, and number of spectra in a row.
SPECTRA, _IN_A_ROW = 6, 3

#: Inches: labels around a row of maps, the legend below them, a row of distributions, and of spectra.
_AROUND_MAP_IN, _LEGEND_IN, _HISTOGRAM_IN, _SPECTRA_IN = 0.75, 0.6, 2.1, 1.85

_BINS = 40

#: Colours of the first run, the second run and the spectra. Colour-blind readers can tell them apart (Okabe and Ito).
_FIRST, _SECOND, _DATA = "#0072b2", "#d55e00", "#9a9a9a"


def draw(
    found: Comparison,
    spectra: Mapping[
        decomposition_picture.Pixel, tuple[NDArray[np.floating], NDArray[np.float64], NDArray[np.float64]]
    ],
    names: tuple[str, str],
    *,
    title: Title,
) -> Figure:
    """Draw the comparison `found`.

    spectra: by pixel, the spectrum (channels,) and the components (k, 3) of both runs. names: the names of the runs.
    The maps of a quantity share one colour scale. The scale of their difference, second minus first, has zero in the
    middle.
    """
    with matplotlib.rc_context(decomposition_picture.STYLE):
        rows = math.ceil(len(spectra) / _IN_A_ROW)
        heights = [
            3 * (decomposition_picture.map_height_in(found.geometry) + _AROUND_MAP_IN) + _LEGEND_IN,
            _HISTOGRAM_IN,
        ]
        if rows:
            heights.append(rows * _SPECTRA_IN)
        figure, parts = decomposition_picture.titled_figure(title, decomposition_picture.WIDTH_IN, heights)
        _draw_maps(parts[0], found, names, list(spectra))
        _draw_distributions(parts[1], found, names)
        if rows:
            _draw_spectra(parts[2], found, spectra, names)
        return figure


def _draw_maps(part: Any, found: Comparison, names: tuple[str, str], marked: list[decomposition_picture.Pixel]) -> None:
    axis, (first, second) = DisplayAxis.of(found.geometry), found.maps
    kinds = first.kinds, second.kinds, panels.kinds_of_both(first.kinds, second.kinds)
    rows = panels.map_panels(part, 3, 3, found.geometry)
    area = " ".join(unit for unit in (found.geometry.bunit, axis.unit) if unit)
    scales = []
    for row, (name, unit, colours, pair) in enumerate(
        (
            ("integrated intensity", area, "inferno", (first.integrated, second.integrated)),
            ("components", "", "", (first.n_components, second.n_components)),
            (f"{axis.name.lower()} of the strongest", axis.unit, "plasma", (first.strongest, second.strongest)),
        )
    ):
        both, change = robust_scale(*pair), robust_scale(pair[1] - pair[0], symmetric=True)
        for panel, values, kind, run in zip(rows[row], pair, kinds, names, strict=False):
            label = f"{name[0].upper()}{name[1:]}: {run}"
            if colours:
                draw_map(panel, values, kind, name=label, unit=unit, colours=colours, scale=both)
            else:
                draw_counts(panel, values, kind, name=label, most=most_counted(*pair))
        difference: Map = pair[1] - pair[0]
        draw_map(
            rows[row][2], difference, kinds[2], name="Second minus first", unit=unit, colours="RdBu_r", scale=change
        )
        scales += [(name, both)] if colours else []
        scales.append((f"difference of {name}", change))
    for number, (x, y) in enumerate(marked, start=1):
        decomposition_picture.mark(rows[0][2], number, x, y)
    panels.draw_legend(part, kinds[2], panels.clipped_note(scales))


def _draw_distributions(part: Any, found: Comparison, names: tuple[str, str]) -> None:
    shown = [name for name in found.values if not name.startswith(("components", "noise"))]
    plots = part.subplots(1, len(shown), squeeze=False)[0]
    for plot, name in zip(plots, shown, strict=True):
        scale = robust_scale(*found.values[name])
        edges = np.linspace(scale.low, scale.high, _BINS + 1)
        for values, run, colour in zip(found.values[name], names, (_FIRST, _SECOND), strict=True):
            known = values[np.isfinite(values)]
            plot.hist(np.clip(known, scale.low, scale.high), edges, histtype="step", color=colour, label=run)
        plot.set_xlabel(name[0].upper() + name[1:])
        plot.xaxis.set_major_locator(MaxNLocator(5, steps=ROUND_STEPS))
    plots[0].set_ylabel("Number")
    handles, labels = plots[0].get_legend_handles_labels()
    part.legend(handles, labels, loc="outside upper right", ncols=2)


def _draw_spectra(part: Any, found: Comparison, spectra: Mapping[Any, Any], names: tuple[str, str]) -> None:
    axis = DisplayAxis.of(found.geometry)
    by_pixel = {(pixel.x, pixel.y): pixel for pixel in found.pixels}
    plots = part.subplots(math.ceil(len(spectra) / _IN_A_ROW), _IN_A_ROW, sharex=True, squeeze=False)
    for number, (plot, (pixel, (values, *models))) in enumerate(zip(plots.flat, spectra.items(), strict=False), 1):
        fine = np.linspace(0.0, max(len(values) - 1, 0), 4 * len(values))
        plot.step(axis.at(np.arange(len(values))), values, where="mid", color=_DATA, linewidth=0.8)
        for components, run, colour, line in zip(models, names, (_FIRST, _SECOND), found.lines, strict=True):
            model = gaussians(components, fine, line).sum(axis=0)
            plot.plot(axis.at(fine), model, color=colour, linewidth=1.2, label=run)
        plot.set_title(f"{number}   {_describe(by_pixel[pixel])}", loc="left", fontsize=9, fontweight="normal")
        plot.margins(x=0)
        plot.set_xlabel(axis.label if number > len(spectra) - _IN_A_ROW else "")
    for plot in list(plots.flat)[len(spectra) :]:
        plot.set_visible(False)
    part.supylabel(found.geometry.bunit, fontsize=9)


def _describe(pixel: PixelDifference) -> str:
    first, second = pixel.components
    return f"x = {pixel.x}, y = {pixel.y}:  {first} and {second} components, difference {pixel.difference:.1f}"
