"""The components in the rows of a decomposition: as flat arrays, as curves, and as one value for each spectrum.

A table is an Arrow table with the columns of `prismline_contracts.decomposition`. Only functions of tables need
pyarrow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.decomposition import BASELINE_COLUMNS, SpectrumStatus
from prismline_contracts.maps import MapName
from prismline_contracts.objects import LineProfile
from prismline_cube.axis import DisplayAxis

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]

_LISTS = ("component_amplitudes", "component_means", "component_stddevs")
#: Areas of the components. Rows of phspectra have none.
_FLUXES = "component_fluxes"

#: The columns that each map is made from. The map of the chunks' states is made from the ledger.
MAP_COLUMNS: dict[MapName, tuple[str, ...]] = {
    MapName.INTEGRATED: ("status", _LISTS[0], _LISTS[2], _FLUXES),
    MapName.COMPONENTS: ("status", "n_components"),
    MapName.CENTROID: (*_LISTS, _FLUXES),
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


def map_values(table: pa.Table, name: MapName, axis: DisplayAxis) -> Floats:
    """The value of each row of `table` in a map, in the units of the cube and of `axis`; NaN where there is none.

    table: has at least the columns that `MAP_COLUMNS` names.
    """
    if name in _PLAIN:
        values = _numbers(table, _PLAIN[name])
    else:
        row, amplitude, others = _flat(table, MAP_COLUMNS[name])
        if _FLUXES in MAP_COLUMNS[name]:
            others[_FLUXES] = _areas(table, row, amplitude * others["component_stddevs"] * _ROOT_TAU)
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

    A fourth column of `components` is the optical depth, NaN for lines that are optically thin.

    line: the lines of which each component is the sum. None: a component is one Gaussian.
    """
    amplitude, mean, stddev = (components[:, [column]] for column in range(3))
    if line is None:
        curves: Floats = amplitude * np.exp(-0.5 * ((channels - mean) / stddev) ** 2)
        return curves
    offsets, weights = np.array(line.offsets)[:, None, None], np.array(line.weights)[:, None, None]
    profile: Floats = (weights * np.exp(-0.5 * ((channels - mean - offsets) / stddev) ** 2)).sum(axis=0)
    if is_thick(components):
        depth = components[:, [3]]
        thin = ~(depth > 0.0)  # also where it is NaN
        known = np.where(thin, 1.0, depth)
        profile = np.where(thin, profile, -np.expm1(-known * profile) / known)
    summed: Floats = amplitude * profile
    return summed


def baselines(table: pa.Table, channels: Floats) -> Floats:
    """The fitted baseline of each row of the table at `channels` (n,), shape (rows, n).

    It is zero where none was fitted, and for a table of an older version.
    """
    found = np.zeros((len(table), len(channels)))
    for power, name in enumerate(BASELINE_COLUMNS):
        if name in table.column_names:
            values = np.array(table[name].to_pylist(), dtype=np.float64)
            found += np.nan_to_num(values)[:, None] * channels**power
    return found


def is_thick(components: Floats) -> bool:
    """Whether one of the components (k, 3) or (k, 4) has an optical depth."""
    return components.shape[1] > 3 and bool((components[:, 3] > 0.0).any())


def single_gaussians(components: Floats, line: LineProfile | None = None) -> Floats:
    """The Gaussians (m, 3) that the components (k, 3) are sums of. Without `line` these are the components.

    Components with an optical depth are no such sums: see `is_thick`.
    """
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


def _areas(table: pa.Table, row: NDArray[np.int64], of_gaussians: Floats) -> Floats:
    """The area of every component, in channels: that of the table, or of a Gaussian where the table has none."""
    import pyarrow.compute as pc  # noqa: PLC0415

    fluxes = table[_FLUXES].combine_chunks()
    known = np.asarray(fluxes.is_valid().to_numpy(zero_copy_only=False))[row]
    areas = of_gaussians.copy()
    areas[known] = pc.list_flatten(fluxes).to_numpy()
    return areas


def _of_components(
    name: MapName, row: NDArray[np.int64], amplitude: Floats, others: dict[str, Floats], axis: DisplayAxis, n: int
) -> Floats:
    """The value of each of `n` rows, computed from its components. Without components: 0 for an integral, else NaN."""
    if name is MapName.INTEGRATED:
        return np.asarray(np.bincount(row, others[_FLUXES] * abs(axis.step), n), dtype=np.float64)
    values = np.full(n, np.nan)
    if name is MapName.CENTROID:
        areas = others[_FLUXES]
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
