"""Compare two decompositions of one cube: counts, distributions, and the pixels that differ most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_cli.decomposition_picture import Maps, maps
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube import DisplayAxis, flat_components, gaussians, is_thick, single_gaussians

Values = NDArray[np.float64]
#: The lines of which each component of the two runs is the sum. None: a component is one Gaussian.
_Lines = tuple[LineProfile | None, LineProfile | None]

#: Two models are different decompositions if their difference, in units of the noise, is more than this. With white
#: noise, the data distinguish them at this many standard deviations.
DISTINCT = 3.0

#: Percentiles that describe a distribution: the median, and those one standard deviation from it if it is normal.
_PERCENTILES = (16.0, 50.0, 84.0)

_LOOKED_AT = ("fitted", "empty")


@dataclass(frozen=True)
class Counts:
    """Numbers of pixels of one run by status, and the number of its components."""

    fitted: int
    empty: int
    blank: int
    timed_out: int
    not_processed: int
    components: int


@dataclass(frozen=True)
class Spread:
    """The 16th, 50th and 84th percentile of `n` values. NaN if there are no values."""

    n: int
    p16: float
    median: float
    p84: float

    @classmethod
    def of(cls, values: Values) -> Spread:
        """The spread of the finite `values`."""
        known = values[np.isfinite(values)]
        low, median, high = np.percentile(known, _PERCENTILES) if known.size else (math.nan,) * 3
        return cls(known.size, float(low), float(median), float(high))


@dataclass(frozen=True)
class PixelDifference:
    """A pixel that both runs fitted, with or without components.

    `difference` is the root of the integral, over the channels, of the squared difference of the two models, in units
    of the noise. With white noise, it is the significance at which the data distinguish the models.
    """

    x: int
    y: int
    longitude: float | None
    latitude: float | None
    difference: float
    components: tuple[int, int]
    #: Integrated intensity, in the cube's unit times the axis's.
    integrated: tuple[float, float]
    #: Coordinate of the strongest component; None where there is none.
    strongest: tuple[float | None, float | None]


@dataclass(frozen=True)
class Comparison:
    """Two runs of one cube. Pairs are (first run, second run)."""

    geometry: CubeGeometry
    #: The lines of which each component of a run is the sum. None: a component is one Gaussian.
    lines: _Lines
    counts: tuple[Counts, Counts]
    #: Values of each quantity, by its name with unit: of components, or of spectra.
    values: dict[str, tuple[Values, Values]]
    maps: tuple[Maps, Maps]
    #: Pixels that both runs fitted, in descending order of their difference.
    pixels: list[PixelDifference]

    @property
    def identical(self) -> int:
        """Number of pixels for which both runs have exactly the same components."""
        return sum(pixel.difference == 0.0 for pixel in self.pixels)

    @property
    def distinct(self) -> int:
        """Number of pixels whose two models differ by more than `DISTINCT` times the noise."""
        return sum(pixel.difference > DISTINCT for pixel in self.pixels)


def mismatch(first: CubeGeometry, second: CubeGeometry) -> str | None:
    """Why two cubes cannot be compared, as a part of a sentence. None if they can be compared."""
    for name, what in (("nx", "columns"), ("ny", "rows"), ("n_channels", "channels"), ("bunit", "as unit")):
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            return f"one has {one} {what} and the other {other}"
    ends = [(axis.at(0), axis.at(first.n_channels - 1)) for axis in map(DisplayAxis.of, (first, second))]
    step = abs(DisplayAxis.of(first).step)
    if not np.allclose(ends[0], ends[1], rtol=0.0, atol=1e-3 * step):
        return f"one goes from {ends[0][0]:g} to {ends[0][1]:g} and the other from {ends[1][0]:g} to {ends[1][1]:g}"
    return None


def compare(
    first: pa.Table, second: pa.Table, geometry: CubeGeometry, second_line: LineProfile | None = None
) -> Comparison:
    """Compare two decompositions of the cube that `geometry` describes.

    second_line: the lines of each component of `second`. Those of `first` are in `geometry`.
    """
    lines = geometry.line, second_line
    tables, found = (first, second), (maps(first, geometry), maps(second, geometry))
    n_pixels = geometry.ny * geometry.nx
    return Comparison(
        geometry,
        lines,
        (_counts(first, n_pixels), _counts(second, n_pixels)),
        _values(tables, found, geometry),
        found,
        _pixels(tables, found, geometry, lines),
    )


def as_json(found: Comparison, runs: Sequence[str], differing: Mapping[str, Sequence[Any]], top: int) -> dict[str, Any]:
    """`found` as a JSON document with the `top` pixels that differ most. NaN becomes null.

    `differing` has the parameters that are not the same, (first run's, second run's) by name.
    """
    return {
        "runs": list(runs),
        "params": {name: list(pair) for name, pair in differing.items()},
        "counts": [asdict(counts) for counts in found.counts],
        "distributions": {
            name: [{key: _number(value) for key, value in asdict(Spread.of(each)).items()} for each in pair]
            for name, pair in found.values.items()
        },
        "pixels": {"compared": len(found.pixels), "identical": found.identical, "distinct": found.distinct},
        "most_different": [
            {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(pixel).items()}
            | {"difference": _number(pixel.difference)}
            for pixel in found.pixels[:top]
            if pixel.difference != 0.0
        ],
    }


def model_distance(first: Values, second: Values) -> float:
    """Root of the integral, over the channels, of the squared difference of two sums of Gaussians (k, 3).

    The integral of the product of two Gaussians has a closed form, so the channels are not needed.
    """
    both = np.concatenate([first, second])
    amplitude = np.concatenate([first[:, 0], -second[:, 0]])
    mean, variance = both[:, 1], both[:, 2] ** 2
    sums = variance[:, None] + variance[None, :]
    overlap = np.sqrt(2.0 * math.pi * variance[:, None] * variance[None, :] / sums)
    overlap *= np.exp(-0.5 * (mean[:, None] - mean[None, :]) ** 2 / sums)
    return math.sqrt(max(0.0, float(amplitude @ overlap @ amplitude)))


def _distance(models: tuple[Values, Values], lines: _Lines, n_channels: int) -> float:
    """As :func:`model_distance`, for components (k, 4) with an optical depth, and with `lines`."""
    if not any(map(is_thick, models)):
        return model_distance(single_gaussians(models[0], lines[0]), single_gaussians(models[1], lines[1]))
    # Curves with an optical depth have no closed form: the integral is the sum over a grid, four points a channel.
    grid = np.arange(4 * n_channels) / 4.0
    first, second = (gaussians(model, grid, line).sum(axis=0) for model, line in zip(models, lines, strict=True))
    return math.sqrt(float(((first - second) ** 2).sum()) / 4.0)


def _counts(table: pa.Table, n_pixels: int) -> Counts:
    status = np.asarray(table["status"].to_pylist(), dtype=object)
    number = {name: int((status == name).sum()) for name in ("fitted", "empty", "blank", "timed_out")}
    components = int(np.maximum(table["n_components"].to_numpy(), 0).sum())
    return Counts(**number, not_processed=n_pixels - len(table), components=components)


def _values(
    tables: Sequence[pa.Table], found: Sequence[Maps], geometry: CubeGeometry
) -> dict[str, tuple[Values, Values]]:
    axis = DisplayAxis.of(geometry)
    signal, width = geometry.bunit or "unit of the cube", axis.unit or "unit of the axis"
    pairs: dict[str, list[Values]] = {}
    for table, each in zip(tables, found, strict=True):
        _, amplitude, mean, stddev = flat_components(table)
        quality = np.array(table["chi2_reduced"].to_pylist(), dtype=np.float64)
        for name, values in (
            (f"amplitude ({signal})", amplitude),
            (f"{axis.name.lower()} ({width})", axis.at(mean)),
            (f"width ({width})", stddev * abs(axis.step)),
            ("components of a spectrum", each.n_components.ravel()),
            (f"noise ({signal})", np.array(table["rms"].to_pylist(), dtype=np.float64)),
            ("reduced chi-square", quality),
        ):
            pairs.setdefault(name, []).append(np.asarray(values, dtype=np.float64))
    return {name: (first, second) for name, (first, second) in pairs.items()}


def _pixels(
    tables: Sequence[pa.Table],
    found: Sequence[Maps],
    geometry: CubeGeometry,
    lines: _Lines,
) -> list[PixelDifference]:
    columns = [_by_pixel(table, geometry) for table in tables]
    pixels = []
    for index in sorted(columns[0].keys() & columns[1].keys()):
        (one, rms, sky), (other, other_rms, _) = (column[index] for column in columns)
        y, x = divmod(index, geometry.nx)
        noise = np.nanmean([rms, other_rms]) if np.isfinite([rms, other_rms]).any() else math.nan
        same = lines[0] == lines[1] and np.array_equal(one, other, equal_nan=True)
        distance = 0.0 if same else _distance((one, other), lines, geometry.n_channels) / noise
        strongest = tuple(_number(each.strongest[y, x]) for each in found)
        pixels.append(
            PixelDifference(
                x, y, *sky, float(distance), (len(one), len(other)),
                (float(found[0].integrated[y, x]), float(found[1].integrated[y, x])), (strongest[0], strongest[1]),
            )
        )  # fmt: skip
    return sorted(pixels, key=lambda pixel: -pixel.difference if math.isfinite(pixel.difference) else 0.0)


def _by_pixel(
    table: pa.Table, geometry: CubeGeometry
) -> dict[int, tuple[Values, float, tuple[float | None, float | None]]]:
    """Components (k, 4), noise and celestial coordinates of the fitted pixels, by y * nx + x.

    The fourth column has optical depths, NaN where there are none.
    """
    names = [
        *("component_amplitudes", "component_means", "component_stddevs", "component_optical_depths"),
        *("longitude", "latitude"),
    ]
    columns = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in names]
    found = {}
    for x, y, rms, status, amplitude, mean, stddev, depth, longitude, latitude in zip(
        *(table[name].to_pylist() for name in ("x", "y", "rms", "status")), *columns, strict=True
    ):
        if status in _LOOKED_AT:
            known = depth or [math.nan] * len(amplitude)
            components = np.array([amplitude, mean, stddev, known], dtype=np.float64).T.reshape(-1, 4)
            noise = math.nan if rms is None else rms
            found[y * geometry.nx + x] = components, noise, (longitude, latitude)
    return found


def _number(value: float) -> float | None:
    return value if isinstance(value, int) else float(value) if math.isfinite(value) else None
