"""The components in the rows of a decomposition: as flat arrays, as curves, and as one value for each spectrum.

A table is an Arrow table with the columns of `prismline_contracts.decomposition`. Only functions of tables need
pyarrow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.decomposition import SpectrumStatus
from prismline_contracts.maps import MapName
from prismline_contracts.objects import LineProfile
from prismline_cube.axis import SpectralAxis

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]

_LISTS = ("component_amplitudes", "component_means", "component_stddevs")

#: The columns that each map is made from. The map of the chunks' states is made from the ledger.
MAP_COLUMNS: dict[MapName, tuple[str, ...]] = {
    MapName.INTEGRATED: ("status", _LISTS[0], _LISTS[2]),
    MapName.COMPONENTS: ("status", "n_components"),
    MapName.CENTROID: _LISTS,
    MapName.VELOCITY: _LISTS[:2],
    MapName.WIDTH: (_LISTS[0], _LISTS[2]),
    MapName.RMS: ("rms",),
    MapName.CHI2: ("chi2_reduced",),
    MapName.FLAGS: ("flags",),
}

#: Maps whose value is a column.
_PLAIN = {
    MapName.COMPONENTS: "n_components",
    MapName.RMS: "rms",
    MapName.CHI2: "chi2_reduced",
    MapName.FLAGS: "flags",
}
#: Maps that also have a value where a processed spectrum has no component. Unprocessed spectra have none.
_LOOKED_AT = (MapName.INTEGRATED, MapName.COMPONENTS)

_ROOT_TAU = math.sqrt(2 * math.pi)


def map_values(table: pa.Table, name: MapName, axis: SpectralAxis) -> Floats:
    """The value of each row of `table` in a map, in the units of the cube and of `axis`; NaN where there is none.

    table: has at least the columns that `MAP_COLUMNS` names.
    """
    if name in _PLAIN:
        values = _numbers(table, _PLAIN[name])
    else:
        row, amplitude, others = _flat(table, MAP_COLUMNS[name])
        values = _of_components(name, row, amplitude, others, axis, len(table))
    if name in _LOOKED_AT:
        values = np.where(looked_at(table), values, np.nan)
    return values


def looked_at(table: pa.Table) -> NDArray[np.bool_]:
    """Whether each spectrum was processed: fitted, or found empty."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    known = pc.is_in(table["status"], pa.array([SpectrumStatus.FITTED.value, SpectrumStatus.EMPTY.value]))
    found: NDArray[np.bool_] = known.to_numpy()
    return found


def flat_components(table: pa.Table) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Row of the table, amplitude, mean and stddev (in channels) of every component."""
    row, amplitude, others = _flat(table, _LISTS)
    return row, amplitude, others["component_means"], others["component_stddevs"]


def gaussians(components: Floats, channels: Floats, line: LineProfile | None = None) -> Floats:
    """The components (k, 3), each amplitude, mean and stddev, at `channels` (n,), shape (k, n).

    line: the lines of which each component is the sum. None: a component is one Gaussian.
    """
    amplitude, mean, stddev = (components[:, [column]] for column in range(3))
    if line is None:
        curves: Floats = amplitude * np.exp(-0.5 * ((channels - mean) / stddev) ** 2)
        return curves
    offsets, weights = np.array(line.offsets)[:, None, None], np.array(line.weights)[:, None, None]
    summed: Floats = amplitude * (weights * np.exp(-0.5 * ((channels - mean - offsets) / stddev) ** 2)).sum(axis=0)
    return summed


def single_gaussians(components: Floats, line: LineProfile | None = None) -> Floats:
    """The Gaussians (m, 3) that the components (k, 3) are sums of. Without `line` these are the components."""
    if line is None:
        return components
    offsets, weights = np.array(line.offsets), np.array(line.weights)
    split = np.repeat(components, len(offsets), axis=0)
    split[:, 0] *= np.tile(weights, len(components))
    split[:, 1] += np.tile(offsets, len(components))
    return split


def _flat(table: pa.Table, names: tuple[str, ...]) -> tuple[NDArray[np.int64], Floats, dict[str, Floats]]:
    """The row and the amplitude of every component, and the other lists among `names` by name."""
    import pyarrow.compute as pc  # noqa: PLC0415

    lists = {name: table[name].combine_chunks() for name in names if name in _LISTS}
    row = pc.list_parent_indices(lists[_LISTS[0]]).to_numpy()
    flat = {name: pc.list_flatten(column).to_numpy() for name, column in lists.items()}
    return row, flat.pop(_LISTS[0]), flat


def _of_components(
    name: MapName, row: NDArray[np.int64], amplitude: Floats, others: dict[str, Floats], axis: SpectralAxis, n: int
) -> Floats:
    """The value of each of `n` rows, computed from its components. Without components: 0 for an integral, else NaN."""
    if name is MapName.INTEGRATED:
        areas = amplitude * others["component_stddevs"] * (_ROOT_TAU * abs(axis.step))
        return np.asarray(np.bincount(row, areas, n), dtype=np.float64)
    values = np.full(n, np.nan)
    if name is MapName.CENTROID:
        areas = amplitude * others["component_stddevs"]
        total = np.bincount(row, areas, n)
        means = np.bincount(row, areas * others["component_means"], n)
        np.divide(means, total, out=values, where=total > 0)
        return np.asarray(axis.at(values))
    strongest = _strongest(row, amplitude)
    if name is MapName.VELOCITY:
        values[row[strongest]] = axis.at(others["component_means"][strongest])
    else:
        values[row[strongest]] = others["component_stddevs"][strongest] * abs(axis.step)
    return values


def _strongest(row: NDArray[np.int64], amplitude: Floats) -> NDArray[np.intp]:
    """Index of the component with the largest amplitude of each row that has components; `row` ascends."""
    if not len(row):
        return np.array([], np.intp)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    largest = np.maximum.reduceat(amplitude, starts)
    found = np.flatnonzero(amplitude == np.repeat(largest, np.diff(starts, append=len(row))))
    return found[np.flatnonzero(np.diff(row[found], append=-1))]  # of equal ones, the last


def _numbers(table: pa.Table, name: str) -> Floats:
    import pyarrow as pa  # noqa: PLC0415

    column = table[name].cast(pa.float64()).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
