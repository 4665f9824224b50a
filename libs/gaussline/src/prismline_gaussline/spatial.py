"""A second pass over a decomposed cube: neighbouring pixels see nearly the same gas.

Like the spatial phases of GaussPy+ (Riener et al. 2019), it refits the spectra whose components disagree with their
neighbours', from the neighbours' components. It keeps the model with the least
chi-square + COST * components + SUPPORT * disagreement. The disagreement is the number of components that the model and
a neighbour do not share, averaged over the neighbours. So a component that every neighbour has costs nothing if it
passes the thresholds, and one that no neighbour has must lower chi-square by COST + SUPPORT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import doubles, numbers, whole_number
from .batch import decompose
from .params import Params
from .table import COMPONENT_COLUMNS, SPECTRUM_COLUMNS, Decomposition

Components = NDArray[np.float64]

#: Cost in chi-square of a component, and of a disagreement in one component with all neighbours.
_COST, _SUPPORT = 10.0, 10.0

#: A spectrum is fitted again if it disagrees with at least this many of its neighbours.
_DISAGREEING = 2

#: The pass tries to leave a component out if more than this fraction of the neighbours lack it.
_LACKING = 0.5


def refit_from_neighbours(
    spectra: ArrayLike,
    table: Decomposition,
    shape: tuple[int, int],
    params: Params | Mapping[str, object] | None = None,
    *,
    rounds: int = 2,
    noise: ArrayLike | None = None,
    **how: Any,
) -> Decomposition:
    """``table`` with the spectra that disagree with their neighbours fitted again.

    ``spectra`` (n, channels) are those of an image of ``shape`` (ny, nx), row by row, and ``table`` is the result of
    ``decompose(spectra, params, noise=noise, **how)`` with the preset ``best``. Each of the ``rounds`` uses the eight
    neighbours' results of the round before. So a spectrum's result depends only on the pixels within ``rounds`` of it:
    parts of a cube with such a margin give the same bits. Raises ValueError if the numbers of spectra do not agree, and
    for arguments that ``decompose`` refuses.
    """
    array = numbers(spectra, "spectra")
    rounds = whole_number(rounds, "rounds", 0, 1000)
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise ValueError(f"shape must be (ny, nx), not {shape!r}")
    if array.ndim != 2 or len(array) != len(table) or len(table) != shape[0] * shape[1]:
        raise ValueError(f"{array.shape} spectra, {len(table)} rows and an image of {shape} are not the same spectra")
    sigma = None if noise is None else doubles(noise, "noise")
    by_row = sigma is not None and sigma.ndim == 2 and len(sigma) == len(table)
    there = np.isfinite(array)
    if sigma is not None:
        there &= (sigma > 0.0) & np.isfinite(sigma)
    channels = there.sum(axis=1)
    settings = params if isinstance(params, Params) else Params.from_mapping({} if params is None else params)
    terms = 0 if settings.baseline_order is None else settings.baseline_order + 1
    for _ in range(rounds):
        models = _models(table)
        neighbours = _neighbours(shape, np.isfinite(table.chi2_reduced))
        rows, starts = _trials(models, neighbours)
        if not rows:
            break
        trial = decompose(
            array[rows], params, noise=sigma[rows] if by_row and sigma is not None else sigma, starts=starts, **how
        )
        source = _chosen(table, trial, rows, models, neighbours, channels, terms)
        if not source:
            break
        table = _merged(table, trial, source)
    return table


def _models(table: Decomposition) -> list[Components]:
    rows = np.stack((table.amplitude, table.mean, table.stddev), axis=1)
    return np.split(rows, table.offsets[1:-1]) if len(table) else []


def _neighbours(shape: tuple[int, int], fitted: NDArray[np.bool_]) -> list[list[int]]:
    """The up to eight fitted neighbours of each pixel; none for a pixel that was not fitted."""
    ny, nx = shape
    result: list[list[int]] = []
    for y in range(ny):
        for x in range(nx):
            around = [
                v * nx + u for v in range(max(y - 1, 0), min(y + 2, ny)) for u in range(max(x - 1, 0), min(x + 2, nx))
            ]
            here = y * nx + x
            result.append([i for i in around if i != here and fitted[i]] if fitted[here] else [])
    return result


def _lacking(model: Components, other: Components) -> NDArray[np.bool_]:
    """Which components of ``model`` have none in ``other`` within a width, the narrower's."""
    if len(other) == 0:
        return np.ones(len(model), dtype=bool)
    distance = np.abs(model[:, None, 1] - other[None, :, 1])
    return np.asarray((distance > np.minimum(model[:, None, 2], other[None, :, 2])).all(axis=1))


def _disagreement(model: Components, other: Components) -> int:
    """The number of components that one model has and the other lacks."""
    return int(_lacking(model, other).sum() + _lacking(other, model).sum())


def _trials(models: list[Components], neighbours: list[list[int]]) -> tuple[list[int], list[Components]]:
    """Spectra to fit again, and the models to start from.

    The starts are each neighbour's model that disagrees, the same with the spectrum's components that the neighbour
    lacks, and the spectrum's own model without a component that most neighbours lack.
    """
    rows: list[int] = []
    starts: list[Components] = []
    for i, around in enumerate(neighbours):
        others = [models[j] for j in around if _disagreement(models[i], models[j])]
        if len(others) < _DISAGREEING:
            continue
        own = [models[i][_lacking(models[i], other)] for other in others]
        others += [np.concatenate((other, more)) for other, more in zip(others, own, strict=True) if len(more)]
        lacking = np.mean([_lacking(models[i], models[j]) for j in around], axis=0) > _LACKING
        others += [np.delete(models[i], k, axis=0) for k in np.flatnonzero(lacking)]
        rows += [i] * len(others)
        starts += others
    return rows, starts


def _chosen(
    table: Decomposition,
    trial: Decomposition,
    rows: list[int],
    models: list[Components],
    neighbours: list[list[int]],
    channels: NDArray[np.int64],
    terms: int,
) -> dict[int, int]:
    """Spectrum -> row of ``trial`` with its best model, if that is better than its own."""
    own, tried = _chi_square(table, channels, terms), _chi_square(trial, channels[rows], terms)
    best: dict[int, float] = {}
    source: dict[int, int] = {}
    for row, (i, model) in enumerate(zip(rows, _models(trial), strict=True)):
        around = [models[j] for j in neighbours[i]]
        if i not in best:
            best[i] = own[i] + _price(models[i], around)
        price = tried[row] + _price(model, around)
        if price < best[i]:
            best[i], source[i] = price, row
    return source


def _chi_square(table: Decomposition, channels: NDArray[np.int64], terms: int) -> NDArray[np.float64]:
    """Chi-square of fits whose baseline has so many coefficients."""
    return np.asarray(table.chi2_reduced * (channels - 3 * table.n_components - terms))


def _price(model: Components, around: list[Components]) -> float:
    return _COST * len(model) + _SUPPORT * float(np.mean([_disagreement(model, other) for other in around]))


def _merged(table: Decomposition, trial: Decomposition, source: dict[int, int]) -> Decomposition:
    """``table`` with the rows of ``source`` replaced by those of ``trial``."""
    pick = np.arange(len(table))
    pick[list(source)] = len(table) + np.array(list(source.values()))
    first = np.concatenate((table.offsets[:-1], len(table.mean) + trial.offsets[:-1]))[pick]
    columns = {name: np.concatenate((getattr(table, name), getattr(trial, name)))[pick] for name in SPECTRUM_COLUMNS}
    counts = columns["n_components"]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.repeat(first, counts) + within
    columns |= {
        name: np.concatenate((getattr(table, name), getattr(trial, name)))[chosen] for name in COMPONENT_COLUMNS
    }
    return replace(table, **columns)  # type: ignore[arg-type]
