"""Evaluates tables of components as models: the sums of Gaussians that they describe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import doubles, whole_number
from .hyperfine import HyperfineDecomposition
from .table import BASELINE_COLUMNS, Decomposition

#: Most values that are computed at a time, so that memory does not depend on the number of components.
_BLOCK_VALUES = 1 << 22

#: Names of the columns amplitude, mean, width and optical depth in an Arrow table of ``to_arrow()``, and in a file of
#: Prismline. A table may lack the last one.
_ARROW_COLUMNS = (
    ("amplitude", "mean", "stddev", "optical_depth"),
    ("component_amplitudes", "component_means", "component_stddevs", "component_optical_depths"),
)


def evaluate(
    table: Decomposition | Any,
    channels: int | ArrayLike,
    *,
    lines: tuple[ArrayLike, ArrayLike] | None = None,
    baseline: bool = True,
) -> NDArray[np.float64]:
    """The model of every spectrum of ``table``: the sum of its components and its baseline, in their unit.

    ``table`` is a :class:`Decomposition`, an Arrow table of :meth:`Decomposition.to_arrow`, or one read from a Parquet
    file of Prismline. ``channels`` is the number of channels, or the channels at which to evaluate, counted from zero;
    they need not be integers. ``lines`` has the offsets, in channels, and the weights of the lines of which each
    component is the sum, for example those of ``line`` in the geometry of a file of Prismline; a
    :class:`~prismline_gaussline.hyperfine.HyperfineDecomposition` has its own. Without them a component is one
    Gaussian. If the table has optical depths, the sum is ``amplitude / tau * (1 - exp(-tau * profile))``. With
    ``baseline`` false, the model is without the baseline that ``baseline_order`` fits. Returns the shape
    (n, len(channels)), float64; a spectrum without components and baseline is zero. Raises ValueError if the table has
    no columns of components.
    """
    at = _channels(channels)
    if isinstance(table, HyperfineDecomposition):
        return table.model(at)
    offsets, weights = _lines(lines)
    n, owner, (amplitude, mean, stddev, depth) = _components(table)
    model = np.zeros((n, len(at)))
    block = max(1, _BLOCK_VALUES // max(len(at), 1))
    for start in range(0, len(owner), block):
        rows = slice(start, start + block)
        profile = np.zeros((len(owner[rows]), len(at)))
        for offset, weight in zip(offsets, weights, strict=True):
            z = (at - offset - mean[rows, None]) / stddev[rows, None]
            profile += weight * np.exp(-0.5 * z**2)
        thick = depth[rows] > 0.0  # not where it is NaN
        tau = depth[rows][thick, None]
        profile[thick] = -np.expm1(-tau * profile[thick]) / tau
        np.add.at(model, owner[rows], amplitude[rows, None] * profile)
    return model + _baselines(table, at) if baseline else model


def _baselines(table: Decomposition | Any, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """The baseline of each spectrum, (n, len(at)); zero where none was fitted. An Arrow table may lack its columns."""
    if isinstance(table, Decomposition):
        coefficients = table.baseline()
    elif set(BASELINE_COLUMNS) <= set(table.column_names):
        columns = [table.column(name).to_pylist() for name in BASELINE_COLUMNS]
        coefficients = np.array(columns, dtype=np.float64).reshape(len(BASELINE_COLUMNS), -1).T
    else:
        return np.zeros((table.num_rows, len(at)))
    powers = at ** np.arange(len(BASELINE_COLUMNS))[:, None]
    return np.asarray(np.nan_to_num(coefficients) @ powers)


def _lines(lines: tuple[ArrayLike, ArrayLike] | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if lines is None:
        return np.zeros(1), np.ones(1)
    if not isinstance(lines, tuple) or len(lines) != 2:
        raise ValueError(f"lines must be a tuple of offsets and weights, not {lines!r}")
    offsets, weights = doubles(lines[0], "the offsets of lines"), doubles(lines[1], "the weights of lines")
    if offsets.ndim != 1 or offsets.shape != weights.shape:
        raise ValueError(f"lines need an offset and a weight each, not the shapes {offsets.shape} and {weights.shape}")
    return offsets, weights


def _channels(channels: int | ArrayLike) -> NDArray[np.float64]:
    if isinstance(channels, int):
        return np.arange(whole_number(channels, "channels", 0, 1 << 32), dtype=np.float64)
    at = doubles(channels, "channels")
    if at.ndim != 1:
        raise ValueError(f"channels must be their number, or have the shape (channels,), not {at.shape}")
    return at


def _components(table: Decomposition | Any) -> tuple[int, NDArray[np.int64], list[NDArray[np.float64]]]:
    """The number of spectra, the spectrum of each component, and amplitude, mean, width and optical depth of each.

    The optical depth is NaN where there is none.
    """
    if isinstance(table, Decomposition):
        owner = np.repeat(np.arange(len(table)), table.n_components)
        return len(table), owner, [table.amplitude, table.mean, table.stddev, np.full(len(owner), np.nan)]
    names = next((names for names in _ARROW_COLUMNS if set(names[:3]) <= set(table.column_names)), None)
    if names is None:
        first, second = (", ".join(names[:3]) for names in _ARROW_COLUMNS)
        raise ValueError(f"the table has no columns {first} or {second}")
    amplitudes = table.column(names[0]).to_pylist()
    counts = [len(values or ()) for values in amplitudes]
    columns = [amplitudes, *(table.column(name).to_pylist() for name in names[1:] if name in table.column_names)]
    flat = [
        np.array([each for row, n in zip(column, counts, strict=True) for each in row or [np.nan] * n], np.float64)
        for column in columns
    ]
    if len(flat) == len(names) - 1:
        flat.append(np.full(sum(counts), np.nan))
    return table.num_rows, np.repeat(np.arange(table.num_rows), counts), flat
