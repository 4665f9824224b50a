"""Draw maps as panels of a picture. A panel has sky coordinates where the cube has them, a colour scale that ignores
outliers, and a colour for each reason why a pixel has no value.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.wcs import WCS
from matplotlib import colormaps
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from prismline_contracts.objects import CubeGeometry

Map = NDArray[np.float64]
"""Shape (ny, nx), NaN where there is no value."""

#: Ticks are these multiples of a power of ten apart.
ROUND_STEPS = [1, 2, 5, 10]

#: Maps with a larger ratio of the sides than this are stretched to fill their frame: square pixels would make a line.
_MOST_OBLONG = 4.0

#: A colour scale spans these percentiles of the values. Where there are values beyond, either end is extended by up to
#: this fraction of the span. Without the limit, a few failed fits with extreme values would take all the colours.
_PERCENTILES, _MARGIN = (1.0, 99.0), 0.25

#: Percentile of the numbers of components that gets the last colour of its own. A few failed fits have many components.
_COUNT_PERCENTILE = 99.0

#: Numbers of components that the colour bar names.
_COUNT_TICKS = 10

#: Ticks along one axis of a map on the sky.
_SKY_TICKS = 4

_SKY_NAMES = {
    "GLON": "Galactic longitude",
    "GLAT": "Galactic latitude",
    "RA": "Right ascension",
    "DEC": "Declination",
    "ELON": "Ecliptic longitude",
    "ELAT": "Ecliptic latitude",
}


class PixelKind(IntEnum):
    """Why a pixel has a value or none. The number is the index into :data:`_COLOURS`."""

    BLANK = 0
    EMPTY = 1
    TIMED_OUT = 2
    UNPROCESSED = 3
    FITTED = 4


#: The colour of each kind of pixel where a map has no value for it.
_COLOURS = ("#d6d6d6", "#ffffff", "#4fd8ff", "#f0c987", "#ffffff")

_MEANINGS = {
    PixelKind.UNPROCESSED: "not processed",
    PixelKind.BLANK: "blank in the cube",
    PixelKind.EMPTY: "no component",
    PixelKind.TIMED_OUT: "out of time, to be fitted again",
}


@dataclass(frozen=True)
class Scale:
    """A colour scale from `low` to `high`, and how many of the `total` values lie `below` and `above` it."""

    low: float
    high: float
    below: int = 0
    above: int = 0
    total: int = 0

    @property
    def clipped(self) -> float:
        """The fraction of the values that lies outside, 0 to 1."""
        return (self.below + self.above) / self.total if self.total else 0.0

    @property
    def extend(self) -> str:
        """matplotlib's name for the ends of the colour bar that have an arrow."""
        return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[bool(self.below), bool(self.above)]


def robust_scale(*maps: Map, symmetric: bool = False) -> Scale:
    """One scale for all values of `maps` that ignores outliers. With `symmetric`, zero is in the middle."""
    values = np.concatenate([values[np.isfinite(values)] for values in maps]) if maps else np.array([])
    if not values.size:
        return Scale(-1.0, 1.0) if symmetric else Scale(0.0, 1.0)
    if symmetric:
        size = np.abs(values)
        reach = _reach(0.0, float(np.percentile(size, _PERCENTILES[1])), 0.0, float(size.max()))[1]
        low, high = -reach, reach
    else:
        inner = np.percentile(values, _PERCENTILES)
        low, high = _reach(float(inner[0]), float(inner[1]), float(values.min()), float(values.max()))
    if low == high:
        low, high = low - 0.5, high + 0.5
    return Scale(low, high, int((values < low).sum()), int((values > high).sum()), values.size)


def _reach(inner_low: float, inner_high: float, least: float, most: float) -> tuple[float, float]:
    margin = _MARGIN * (inner_high - inner_low) or (most - least)
    return max(least, inner_low - margin), min(most, inner_high + margin)


def sky_of(geometry: CubeGeometry) -> WCS | None:
    """The celestial coordinates of the maps. None if the cube has no readable ones."""
    if geometry.celestial is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sky = WCS(fits.Header(geometry.celestial))
            sky.wcs.set()
        except Exception:  # the exceptions of wcslib for invalid coordinates are not documented
            return None
    return sky if sky.naxis == 2 and sky.has_celestial else None


def map_panels(part: Any, rows: int, columns: int, geometry: CubeGeometry) -> NDArray[Any]:
    """Panels (rows, columns) for maps. The axes are sky coordinates, or pixels if there are none."""
    sky = sky_of(geometry)
    panels: NDArray[Any] = part.subplots(rows, columns, squeeze=False, subplot_kw={"projection": sky} if sky else {})
    for (row, column), panel in np.ndenumerate(panels):
        outer = row == rows - 1, column == 0
        if sky is None:
            _pixel_axes(panel, *outer)
        else:
            _sky_axes(panel, sky, geometry, *outer)
    return panels


def _pixel_axes(panel: Any, lowest: bool, first: bool) -> None:
    panel.set_xlabel("x (pixel)" if lowest else "")
    panel.set_ylabel("y (pixel)" if first else "")
    for pixels in (panel.xaxis, panel.yaxis):
        pixels.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=ROUND_STEPS))
    panel.spines[:].set_visible(True)


def _sky_axes(panel: Any, sky: WCS, geometry: CubeGeometry, lowest: bool, first: bool) -> None:
    lengths = geometry.nx, geometry.ny
    for number, (coordinate, shown) in enumerate(zip(panel.coords, (lowest, first), strict=True)):
        kind = sky.wcs.ctype[number].split("-")[0]
        name = _SKY_NAMES.get(kind, kind)
        if kind in ("RA", "DEC"):
            name = f"{name} ({sky.wcs.radesys.strip() or 'ICRS'})"
        else:
            span = abs(sky.wcs.get_cdelt()[number]) * lengths[number]
            decimals = max(0, math.ceil(-math.log10(span / _SKY_TICKS))) if span else 0
            coordinate.set_major_formatter("d." + "d" * decimals if decimals else "d")
            name = f"{name} (deg)"
            coordinate.set_format_unit("deg", decimal=True, show_decimal_unit=False)
        coordinate.set_axislabel(name if shown else "", minpad=0.6)
        coordinate.set_auto_axislabel(False)
        coordinate.set_ticks(number=_SKY_TICKS)
        coordinate.set_ticklabel(exclude_overlapping=True)


def draw_map(
    panel: Any,
    values: Map,
    kinds: NDArray[np.int_],
    *,
    name: str,
    unit: str,
    colours: str,
    scale: Scale,
) -> None:
    """Draw `values` with a colour bar. Where there is no value, `kinds` (of :class:`PixelKind`) gives the colour."""
    image = _draw(panel, values, kinds, cmap=colormaps[colours], vmin=scale.low, vmax=scale.high)
    bar = _bar(panel, image, extend=scale.extend)
    bar.locator = MaxNLocator(6, steps=ROUND_STEPS)
    bar.set_label(unit)
    _name(panel, values, name)


def draw_counts(panel: Any, counts: Map, kinds: NDArray[np.int_], *, name: str, most: int | None = None) -> None:
    """Draw numbers of components, each in its own colour. Numbers above `most` share the last colour."""
    most = most_counted(counts) if most is None else most
    norm = BoundaryNorm(np.arange(-0.5, most + 1), most + 1)
    bar = _bar(panel, _draw(panel, counts, kinds, cmap=colormaps["viridis"].resampled(most + 1), norm=norm))
    ticks = list(range(most, -1, -max(1, math.ceil((most + 1) / _COUNT_TICKS))))
    more = "\u2265 " if np.nanmax(counts, initial=0) > most else ""
    bar.set_ticks(ticks, labels=[f"{more}{most}", *map(str, ticks[1:])])
    bar.ax.minorticks_off()
    _name(panel, counts, name)


def most_counted(*counts: Map) -> int:
    """The number of components that gets the last colour. Higher numbers share it."""
    known = np.concatenate([values[~np.isnan(values)] for values in counts])
    return max(1, math.ceil(np.percentile(known, _COUNT_PERCENTILE))) if known.size else 1


def clipped_note(scales: Sequence[tuple[str, Scale]]) -> str:
    """One sentence: the percentage of the values that lies outside each colour scale. Empty if all lie inside."""
    beyond = [f"{name} {scale.clipped:.1%}" for name, scale in scales if scale.clipped]
    return f"Pixels beyond the ends of a colour scale: {', '.join(beyond)}." if beyond else ""


def draw_legend(part: Any, kinds: NDArray[np.int_], note: str = "") -> None:
    """Draw the legend: the colours and numbers of the pixels without a value, and `note`."""
    handles = [
        Patch(facecolor=_COLOURS[kind], edgecolor="#808080", linewidth=0.5, label=f"{meaning} ({count:,})")
        for kind, meaning in _MEANINGS.items()
        if (count := int((kinds == kind).sum()))
    ]
    if handles or note:
        part.legend(
            handles=handles,
            loc="outside lower right",
            ncols=max(1, len(handles)),
            handlelength=1.0,
            handleheight=1.0,
            title=note or None,
            title_fontsize=8,
            alignment="right",
        )


def kinds_of_both(first: NDArray[np.int_], second: NDArray[np.int_]) -> NDArray[np.int_]:
    """Combine the kinds of two maps of one field: the more serious reason counts."""
    order = (PixelKind.UNPROCESSED, PixelKind.BLANK, PixelKind.TIMED_OUT, PixelKind.EMPTY)
    either = [(first == kind) | (second == kind) for kind in order]
    return np.select(either, order, PixelKind.FITTED)


def _draw(panel: Any, values: Map, kinds: NDArray[np.int_], **scale: Any) -> Any:
    ny, nx = values.shape
    oblong = max(nx, ny) > _MOST_OBLONG * min(nx, ny)
    frame: dict[str, Any] = {"origin": "lower", "interpolation": "nearest", "aspect": "auto" if oblong else "equal"}
    panel.imshow(kinds, cmap=ListedColormap(_COLOURS), vmin=0, vmax=len(_COLOURS) - 1, **frame)
    return panel.imshow(np.ma.masked_invalid(values), **scale, **frame)


def _bar(panel: Any, image: Any, **options: Any) -> Colorbar:
    bar: Colorbar = panel.figure.colorbar(image, cax=panel.inset_axes((1.03, 0.0, 0.05, 1.0)), **options)
    bar.outline.set_linewidth(0.5)
    return bar


def _name(panel: Any, values: Map, name: str) -> None:
    # a title that is wider than its map is centred, so that it extends to both sides
    ny, nx = values.shape
    panel.set_title(name, loc="left" if nx >= ny else "center")
