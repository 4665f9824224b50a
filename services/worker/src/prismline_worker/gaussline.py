"""Fits spectra with gaussline: a block in one call, or hyperfine groups in parts of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_contracts.decomposition import BASELINE_COLUMNS, NOT_FITTED, SpectrumStatus
from prismline_contracts.manifest import FitParams
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_gaussline import (
    Decomposition,
    Flag,
    NoDataWarning,
    Params,
    SpectralAxis,
    decompose,
    kernel_available,
    refit_from_neighbours,
)
from prismline_gaussline.hyperfine import HyperfineGroup, fit_hyperfine
from prismline_runtime.errors import PermanentError, TransientError
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.schema import FIT_SCHEMA

#: Time budget of a spectrum, in seconds, that stands for no budget.
NO_BUDGET_S = 86_400.0
#: Spectra whose hyperfine groups are fitted before the deadline is checked again: a fraction of a second.
PART_SPECTRA = 64
#: Rounds of the second pass, and pixels around a spectrum on which its result depends.
MARGIN = 2

# A chunk without any data is not an error: its rows are `blank`, and the run counts them.
warnings.simplefilter("ignore", NoDataWarning)

#: Component columns of the output, and gaussline's names for them.
_COMPONENT_COLUMNS = {
    "component_amplitudes": "amplitude",
    "component_means": "mean",
    "component_stddevs": "stddev",
    "component_amplitude_errors": "amplitude_err",
    "component_mean_errors": "mean_err",
    "component_stddev_errors": "stddev_err",
    "component_fluxes": "flux",
    "component_flux_errors": "flux_err",
}
#: The same for columns that only groups of lines with an optical depth have. They are null in other tables.
_DEPTH_COLUMNS = {"component_optical_depths": "optical_depth", "component_optical_depth_errors": "optical_depth_err"}


def decompose_with_gaussline(block: SpectraBlock, params: FitParams, *, budget_s: float | None = None) -> pa.Table:
    """A table of :data:`FIT_SCHEMA` with a row for each spectrum. Its metadata has the assumptions about the noise.

    The noise of the block broadcasts to the shape of its spectra. None: gaussline estimates it. It estimates the level
    of each spectrum if the noise is a shape, and the correlation if the parameters have none. A spectrum that takes
    longer than `budget_s` seconds is `timed_out`.

    Raises `PermanentError` if the correlation is none that noise can have.
    """
    with _refusals():
        found = decompose(
            block.spectra,
            _settings(params, budget_s),
            noise=block.noise,
            noise_is_shape=block.noise_is_shape,
            correlation=_correlation(params),
        )
    return _table(found, block.x, block.y, params)


def decompose_in_two_passes(
    block: SpectraBlock, shape: tuple[int, int], params: FitParams, *, budget_s: float | None = None
) -> pa.Table:
    """As :func:`decompose_with_gaussline`, for an image of `shape` (ny, nx), row by row.

    Spectra that disagree with their neighbours are fitted again. What a spectrum becomes depends on `MARGIN` rows and
    columns around it.
    """
    settings, noise, correlation = _settings(params, budget_s), block.noise, _correlation(params)
    with _refusals():
        found = decompose(
            block.spectra, settings, noise=noise, noise_is_shape=block.noise_is_shape, correlation=correlation
        )
        found = refit_from_neighbours(
            block.spectra,
            found,
            shape,
            settings,
            rounds=MARGIN,
            noise=noise,
            noise_is_shape=block.noise_is_shape,
            correlation=correlation,
        )
    return _table(found, block.x, block.y, params)


def decompose_with_line(
    block: SpectraBlock,
    params: FitParams,
    line: LineProfile,
    *,
    deadline: float | None = None,
    done: Callable[[int], None] = lambda n: None,  # noqa: ARG005
) -> pa.Table:
    """A table of :data:`FIT_SCHEMA` whose components are groups of lines: `line` says which.

    No spectrum is `timed_out`: a fit takes a bounded number of steps. done: is called with the number of spectra of
    each part that is fitted.

    Raises `TransientError` if the block is not done at `deadline` (`time.monotonic` seconds), and `PermanentError` if
    the correlation is none that noise can have.
    """
    group = HyperfineGroup(line.name or "the table", tuple(line.offsets), tuple(line.weights))
    channels = SpectralAxis(0.0, 1.0, "km/s")  # the offsets of the profile are in channels
    settings, correlation = _settings(params, None), _correlation(params)
    parts: list[pa.Table] = []
    for first in range(0, len(block.spectra), PART_SPECTRA):
        if deadline is not None and time.monotonic() >= deadline:
            raise TransientError("The chunk's lines were not fitted in time; submit the cube with smaller chunks.")
        part = block.rows(slice(first, first + PART_SPECTRA))
        with _refusals():
            found = fit_hyperfine(
                part.spectra,
                group,
                channels,
                settings,
                noise=part.noise,
                noise_is_shape=part.noise_is_shape,
                correlation=correlation,
                optical_depth=bool(params.optical_depth),
            )
        parts.append(_table(found, part.x, part.y, params))
        done(len(parts[-1]))
    numbers = [(len(part), part.schema.metadata) for part in parts]
    means = {name: sum(n * float(each[name]) for n, each in numbers) / len(block.spectra) for name in numbers[0][1]}
    return pa.concat_tables(parts).replace_schema_metadata({name: str(value) for name, value in means.items()})


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise PermanentError(f"gaussline refuses the parameters: {error}.") from error


def _settings(params: FitParams, budget_s: float | None) -> Params:
    given = params.model_dump(include=set(Params.__dataclass_fields__))
    return Params(**given, time_budget_s=budget_s or NO_BUDGET_S)


def _correlation(params: FitParams) -> str | list[float]:
    return "estimate" if params.correlation in (None, "spectrum") else params.correlation


def with_correlation(params: FitParams, geometry: CubeGeometry | None) -> FitParams:
    """The parameters with the correlation of the whole cube's noise, unless they have one.

    Without either it is estimated from each spectrum: the splitter is of an older release, or its sample had too few
    channels without lines.
    """
    if params.correlation is not None or geometry is None:
        return params
    return params.model_copy(update={"correlation": geometry.noise_correlation})


def with_noise_shape(block: SpectraBlock, params: FitParams, geometry: CubeGeometry | None) -> SpectraBlock:
    """The block with the shape of the whole cube's noise, unless it or the parameters have a noise.

    Only gaussline uses it. The level of each spectrum is still estimated.
    """
    shape = None if geometry is None else geometry.noise_shape
    given = block.noise is not None or params.noise is not None
    if shape is None or given or params.decomposer == "phspectra" or not kernel_available():
        return block
    n_channels = block.spectra.shape[1]
    levels = np.array(shape)[np.arange(n_channels) * len(shape) // n_channels]
    return replace(block, noise=levels[None, :], noise_is_shape=True)


def _table(found: Decomposition, x: NDArray[np.integer], y: NDArray[np.integer], params: FitParams) -> pa.Table:
    flags = found.flags.astype(np.int32)
    late = flags & Flag.TIME_LIMIT != 0
    counts = np.where(late, 0, found.n_components)
    fitted = ~late & (flags & Flag.NO_DATA == 0)
    kept = np.repeat(~late, found.n_components)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    status = np.full(len(found), SpectrumStatus.EMPTY.value, dtype=object)
    status[counts > 0] = SpectrumStatus.FITTED.value
    status[flags & Flag.NO_DATA != 0] = SpectrumStatus.BLANK.value
    status[late] = SpectrumStatus.TIMED_OUT.value
    numbers = {
        "rms": found.rms,
        "min_persistence": params.beta * found.rms,
        "chi2_reduced": found.chi2_reduced,
        "aicc": found.aicc,
    }
    columns = {
        "x": pa.array(x, pa.int32()),
        "y": pa.array(y, pa.int32()),
        "beta": np.full(len(found), params.beta),
        "n_components": pa.array(np.where(late, NOT_FITTED, counts), pa.int32()),
        "status": status,
        "flags": flags,
        "decomposer": pa.array(np.full(len(found), params.decomposer, dtype=object), mask=~fitted),
    }
    if params.baseline_order is not None:
        numbers |= {name: getattr(found, name) for name in BASELINE_COLUMNS[: params.baseline_order + 1]}
    columns |= {name: pa.array(values, mask=late | np.isnan(values)) for name, values in numbers.items()}
    columns |= {
        name: pa.ListArray.from_arrays(offsets, pa.array(getattr(found, column)[kept]))
        for name, column in (_COMPONENT_COLUMNS | (_DEPTH_COLUMNS if params.optical_depth else {})).items()
    }
    columns |= {field.name: pa.nulls(len(found), field.type) for field in FIT_SCHEMA if field.name not in columns}
    return pa.table(columns, schema=FIT_SCHEMA.with_metadata(found.metadata()))
