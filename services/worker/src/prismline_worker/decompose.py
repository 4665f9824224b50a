"""Fits Gaussian components to spectra with the decomposer that the job names, and makes a table of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_contracts.decomposition import NOT_FITTED, SpectrumStatus
from prismline_contracts.manifest import FitParams
from prismline_contracts.objects import LineProfile
from prismline_gaussline import kernel_available
from prismline_runtime.errors import PermanentError, TransientError
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.fit_process import FitError, FitProcess, FitterCrashError, FitterUnavailableError, FitTimeoutError
from prismline_worker.gaussline import decompose_in_two_passes, decompose_with_gaussline, decompose_with_line
from prismline_worker.schema import FIT_SCHEMA
from prismline_worker.surroundings import Surrounded


@dataclass(frozen=True)
class _Row:
    """The result for one spectrum. A component is (amplitude, mean, stddev)."""

    status: SpectrumStatus
    rms: float | None = None
    components: tuple[tuple[float, float, float], ...] = ()


def decompose(
    block: SpectraBlock,
    params: FitParams,
    *,
    fitter: FitProcess,
    budget_s: float | None = None,
    deadline: float | None = None,
    done: Callable[[int], None] = lambda n: None,  # noqa: ARG005
) -> pa.Table:
    """Decompose the spectra of `block` into a table of :data:`FIT_SCHEMA`, with a row for each spectrum.

    Without the noise of the block, the number in `params` is used. Without that the noise is estimated.

    A spectrum is `timed_out` if it takes longer than `budget_s` seconds or is not done at `deadline` (`time.monotonic`
    seconds). The slow lane fits such rows again. None means no limit. gaussline fits the whole block in one call and
    checks `deadline` only before it. If gaussline's kernel is not built, phspectra replaces it.

    done: is called after each call of the decomposer, with the number of spectra that the call has done.

    gaussline ignores channels that are not finite; phspectra reads them as 0.0. A spectrum without any finite channel
    is `blank`.

    Raises `PermanentError` if the noise is given and only phspectra is available, or if phspectra is needed and not
    installed. Raises `PermanentError` with the
    pixel if the kernel raises an exception or crashes, because the same spectrum would fail again. Raises
    `TransientError` if the fitting process cannot start or is killed from outside, for example by the out-of-memory
    killer.
    """
    block = _with_noise(block, params)
    if block.noise is not None and not (params.decomposer == "gaussline" and kernel_available()):
        raise PermanentError("A given noise needs gaussline with its kernel; phspectra estimates the noise by itself.")
    if params.baseline_order is not None and not kernel_available():
        raise PermanentError("A baseline needs gaussline's kernel, and this worker's gaussline lacks it.")
    if params.decomposer == "gaussline" and kernel_available():
        if deadline is None or time.monotonic() < deadline:
            table = decompose_with_gaussline(block, params, budget_s=budget_s)
            done(len(block.spectra))
            return table
        blank = ~np.isfinite(block.spectra).any(axis=1)
        return _table([_Row(SpectrumStatus.BLANK if b else SpectrumStatus.TIMED_OUT) for b in blank], block, params)
    rows = []
    if find_spec("phspectra") is None:
        raise PermanentError(
            "This worker has no phspectra: pip install 'prismline-worker[phspectra]', or build its image with "
            "--build-arg PHSPECTRA=yes."
        )
    for spectrum, x, y in zip(block.spectra, block.x, block.y, strict=True):
        with _errors_naming(f"the spectrum at x={x}, y={y}"):
            rows.append(_decompose_one(spectrum, params, fitter, budget_s, deadline))
        done(1)
    return _table(rows, block, params)


def decompose_lines(
    block: SpectraBlock,
    params: FitParams,
    line: LineProfile | None,
    *,
    deadline: float | None = None,
    done: Callable[[int], None] = lambda n: None,  # noqa: ARG005
) -> pa.Table:
    """As :func:`decompose`, but each component is the sum of the lines of `line`, and no spectrum is `timed_out`.

    Raises `TransientError` if the block is not done at `deadline`, and `PermanentError` without the profile of the
    line or without gaussline's kernel.
    """
    if line is None or not kernel_available():
        lacking = "the chunk's input" if line is None else "this worker's gaussline"
        raise PermanentError(f"A line needs its profile and gaussline's kernel, and {lacking} lacks it.")
    return decompose_with_line(_with_noise(block, params), params, line, deadline=deadline, done=done)


def decompose_image(around: Surrounded, params: FitParams, *, budget_s: float | None = None) -> pa.Table:
    """As :func:`decompose`, with a second pass. A row for each spectrum of the chunk, not for those around them.

    Raises `PermanentError` without gaussline's kernel.
    """
    if not kernel_available():
        raise PermanentError("A second pass needs gaussline's kernel, and this worker's gaussline lacks it.")
    image = _with_noise(around.image, params)
    table = decompose_in_two_passes(image, around.shape, params, budget_s=budget_s)
    return table.take(pa.array(range(around.own.start, around.own.stop), pa.int64()))


def _with_noise(block: SpectraBlock, params: FitParams) -> SpectraBlock:
    """The block with the noise that the parameters give as a number, if it has none."""
    if block.noise is None and isinstance(params.noise, float):
        return replace(block, noise=np.array([[params.noise]]))
    if block.noise is None and isinstance(params.noise, str):
        raise PermanentError(f"The chunk's input lacks the noise of {params.noise}; submit the cube again.")
    return block


@contextmanager
def _errors_naming(spectrum: str) -> Iterator[None]:
    try:
        yield
    except (FitError, FitterCrashError) as error:
        raise PermanentError(f"Fitting {spectrum} failed: {error}.") from error
    except FitterUnavailableError as error:
        raise TransientError(f"Could not fit {spectrum}: {error}.") from error


def _decompose_one(
    spectrum: NDArray[np.floating],
    params: FitParams,
    fitter: FitProcess,
    budget_s: float | None,
    deadline: float | None,
) -> _Row:
    finite = np.isfinite(spectrum)
    if not finite.any():
        return _Row(SpectrumStatus.BLANK)
    if deadline is not None and time.monotonic() >= deadline:
        return _Row(SpectrumStatus.TIMED_OUT)
    filled = np.where(finite, spectrum, 0.0).astype(np.float64)
    try:
        fit = fitter.fit(filled, phspectra_params(params), budget_s=budget_s, deadline=deadline)
    except FitTimeoutError:
        return _Row(SpectrumStatus.TIMED_OUT)
    status = SpectrumStatus.FITTED if fit.components else SpectrumStatus.EMPTY
    return _Row(status, fit.rms, tuple(fit.components))


#: The parameters that phspectra's `fit_gaussians` takes.
_PHSPECTRA_PARAMS = {"beta", "max_refine_iter", "snr_min", "mf_snr_min", "f_sep", "neg_thresh"}


def phspectra_params(params: FitParams) -> dict[str, float]:
    """The arguments of phspectra's `fit_gaussians`."""
    return params.model_dump(include=_PHSPECTRA_PARAMS)


def _table(rows: list[_Row], block: SpectraBlock, params: FitParams) -> pa.Table:
    columns: dict[str, Any] = {
        "x": np.asarray(block.x, dtype=np.int32),
        "y": np.asarray(block.y, dtype=np.int32),
        "beta": np.full(len(rows), params.beta),
        "rms": [row.rms for row in rows],
        "min_persistence": [None if row.rms is None else params.beta * row.rms for row in rows],
        "n_components": [NOT_FITTED if row.status is SpectrumStatus.TIMED_OUT else len(row.components) for row in rows],
        "component_amplitudes": [[amplitude for amplitude, _, _ in row.components] for row in rows],
        "component_means": [[mean for _, mean, _ in row.components] for row in rows],
        "component_stddevs": [[stddev for _, _, stddev in row.components] for row in rows],
        "status": [row.status.value for row in rows],
        "decomposer": [None if row.rms is None else "phspectra" for row in rows],
    }
    unknown = {field.name: pa.nulls(len(rows), field.type) for field in FIT_SCHEMA if field.name not in columns}
    return pa.table(columns | unknown, schema=FIT_SCHEMA)
