"""Fits a block of spectra with gaussline, in one call."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_contracts.decomposition import NOT_FITTED, SpectrumStatus
from prismline_contracts.manifest import FitParams
from prismline_contracts.objects import CubeGeometry
from prismline_gaussline import Decomposition, Flag, NoDataWarning, Params, decompose
from prismline_runtime.errors import PermanentError
from prismline_worker.chunk_file import Spectra
from prismline_worker.schema import FIT_SCHEMA

#: Time budget of a spectrum, in seconds, that stands for no budget.
NO_BUDGET_S = 86_400.0

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


def decompose_with_gaussline(block: Spectra, params: FitParams, *, budget_s: float | None = None) -> pa.Table:
    """A table of :data:`FIT_SCHEMA` with a row for each spectrum. Its metadata has the assumptions about the noise.

    The noise of the block broadcasts to the shape of its spectra. None: gaussline estimates it, and so the
    correlation if the parameters have none. A spectrum that takes longer than `budget_s` seconds is `timed_out`.

    Raises `PermanentError` if the correlation is none that noise can have.
    """
    given = params.model_dump(exclude={"decomposer", "noise", "correlation"})
    settings = Params(**given, time_budget_s=budget_s or NO_BUDGET_S)
    correlation = "estimate" if params.correlation in (None, "spectrum") else params.correlation
    try:
        found = decompose(block.spectra, settings, noise=block.noise, correlation=correlation)
    except ValueError as error:
        raise PermanentError(f"gaussline refuses the parameters: {error}.") from error
    return _table(found, block.x, block.y, params.beta)


def with_correlation(params: FitParams, geometry: CubeGeometry | None) -> FitParams:
    """The parameters with the correlation of the whole cube's noise, unless they have one.

    Without either it is estimated from each spectrum: the splitter is of an older release, or its sample had too few
    channels without lines.
    """
    if params.correlation is not None or geometry is None:
        return params
    return params.model_copy(update={"correlation": geometry.noise_correlation})


def _table(found: Decomposition, x: NDArray[np.integer], y: NDArray[np.integer], beta: float) -> pa.Table:
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
        "min_persistence": beta * found.rms,
        "chi2_reduced": found.chi2_reduced,
        "aicc": found.aicc,
    }
    columns = {
        "x": pa.array(x, pa.int32()),
        "y": pa.array(y, pa.int32()),
        "beta": np.full(len(found), beta),
        "n_components": pa.array(np.where(late, NOT_FITTED, counts), pa.int32()),
        "status": status,
        "flags": flags,
        "decomposer": pa.array(np.full(len(found), "gaussline", dtype=object), mask=~fitted),
    }
    columns |= {name: pa.array(values, mask=late | np.isnan(values)) for name, values in numbers.items()}
    columns |= {
        name: pa.ListArray.from_arrays(offsets, pa.array(getattr(found, column)[kept]))
        for name, column in _COMPONENT_COLUMNS.items()
    }
    return pa.table(columns, schema=FIT_SCHEMA.with_metadata(found.metadata()))
