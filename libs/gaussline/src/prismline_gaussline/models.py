"""Evaluates tables of components as models: the sums of Gaussians that they describe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .hyperfine import HyperfineDecomposition
from .inputs import doubles, whole_number
from .table import Decomposition

#: Most values that are computed at a time, so that memory does not depend on the number of components.
_BLOCK_VALUES = 1 << 22

#: Names of the columns amplitude, mean and width in an Arrow table of ``to_arrow()``, and in a file of Prismline.
_ARROW_COLUMNS = (
    ("amplitude", "mean", "stddev"),
    ("component_amplitudes", "component_means", "component_stddevs"),
)


def evaluate(
    table: Decomposition | Any, channels: int | ArrayLike, *, lines: tuple[ArrayLike, ArrayLike] | None = None
) -> NDArray[np.float64]:
    """The model of every spectrum of ``table``: the sum of its components, in the unit of the amplitudes.

    ``table`` is a :class:`Decomposition`, an Arrow table of :meth:`Decomposition.to_arrow`, or one read from a Parquet
    file of Prismline. ``channels`` is the number of channels, or the channels at which to evaluate, counted from zero;
    they need not be integers. ``lines`` has the offsets, in channels, and the weights of the lines of which each
    component is the sum, for example those of ``line`` in the geometry of a file of Prismline; a
    :class:`~prismline_gaussline.hyperfine.HyperfineDecomposition` has its own. Without them a component is one
    Gaussian. Returns the shape (n, len(channels)), float64; a spectrum without components is zero.
    Raises ValueError if the table has no columns of components.
    """
    at = _channels(channels)
    if isinstance(table, HyperfineDecomposition):
        return table.model(at)
    offsets, weights = _lines(lines)
    n, owner, (amplitude, mean, stddev) = _components(table)
    model = np.zeros((n, len(at)))
    block = max(1, _BLOCK_VALUES // max(len(at), 1))
    for start in range(0, len(owner), block):
        rows = slice(start, start + block)
        for offset, weight in zip(offsets, weights, strict=True):
            z = (at - offset - mean[rows, None]) / stddev[rows, None]
            np.add.at(model, owner[rows], weight * amplitude[rows, None] * np.exp(-0.5 * z**2))
    return model


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
    """The number of spectra, the spectrum of each component, and amplitude, mean and width of each."""
    if isinstance(table, Decomposition):
        owner = np.repeat(np.arange(len(table)), table.n_components)
        return len(table), owner, [table.amplitude, table.mean, table.stddev]
    names = next((names for names in _ARROW_COLUMNS if set(names) <= set(table.column_names)), None)
    if names is None:
        raise ValueError(f"the table has no columns {', '.join(_ARROW_COLUMNS[0])} or {', '.join(_ARROW_COLUMNS[1])}")
    columns = [table.column(name).to_pylist() for name in names]
    owner = np.repeat(np.arange(table.num_rows), [len(values or ()) for values in columns[0]])
    flat = [np.array([value for values in column for value in values or ()], dtype=np.float64) for column in columns]
    return table.num_rows, owner, flat
