"""Decompose a batch of spectra in one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import doubles, numbers, whole_number
from .axis import SpectralAxis
from .noise import LAGS
from .params import Params, Preset
from .table import Decomposition, Flag

try:
    from . import _kernel as _loaded
except ImportError:
    _kernel: ModuleType | None = None
else:
    _kernel = _loaded

#: Codes of the presets in the kernel.
_PRESET_CODES = {Preset.BEST: 0, Preset.COMPATIBLE: 1}

#: Type of each column the kernel returns, where it is not float64.
_COLUMN_TYPES = {"flags": np.uint32, "component_flags": np.uint32, "n_components": np.int32}

#: The kernel's codes for `correlation`: by name, and for a correlation that the caller gives.
_CORRELATION_CODES, _CORRELATION_GIVEN = {"white": 0, "estimate": 1}, 2

#: White noise that the kernel adds to a correlation, as a fraction of its variance.
_CORRELATION_FLOOR = 0.05

#: Longest spectrum the kernel takes, channels.
_CHANNELS_LIMIT = 1 << 26

#: Instruction sets of the kernel, by name; "auto" takes the widest one of this machine.
INSTRUCTION_SETS = {"auto": 0, "baseline": 1, "avx2": 2, "avx512": 3}


class NoDataWarning(UserWarning):
    """Every spectrum of a batch is blank. The reason is usually a mistake in the call, not an empty cube."""


def kernel_available() -> bool:
    """Whether the C kernel was built. Without it :func:`decompose` calls phspectra, which is far slower."""
    return _kernel is not None


def decompose(
    spectra: ArrayLike,
    params: Params | Mapping[str, object] | None = None,
    *,
    noise: ArrayLike | None = None,
    noise_is_shape: bool = False,
    correlation: str | ArrayLike = "estimate",
    starts: Sequence[ArrayLike] | None = None,
    axis: SpectralAxis | None = None,
    threads: int = 1,
    instruction_set: str = "auto",
) -> Decomposition:
    """Decompose each spectrum of a batch into a sum of Gaussians.

    One call processes the whole batch in C without the GIL. The same spectrum gives the same bits at any number of
    threads and in any batch, on one machine, unless it has the flag TIME_LIMIT; another instruction set rounds
    differently. An exception of a signal handler, such as KeyboardInterrupt, ends the call.

    Parameters
    ----------
    spectra:
        Shape (n, channels), of any byte order and layout. Float32 and float64 are taken as they are, integers become
        float64. Channels that are not finite or masked (``numpy.ma``) are blank: they have weight zero. For an array of
        three axes, such as a cube, use :func:`decompose_cube`.
    params:
        :class:`Params`, or a mapping of its fields. Default: the defaults of :class:`Params`.
    noise:
        Standard deviation of the noise in the unit of the spectra, in any shape that broadcasts to (n, channels): one
        number, one for each channel, one for each spectrum (n, 1), or all. Channels where it is masked, or not positive
        and finite, are blank. None: estimated from each spectrum.
    noise_is_shape:
        Whether ``noise`` describes only how the noise varies, for example along the spectrum. Its scale is then
        estimated from each spectrum.
    correlation:
        Correlation of the noise of neighbouring channels. ``"estimate"``: estimated from each spectrum. ``"white"``:
        none. Otherwise the values at lags 0, 1, ... (the first one is 1, at least two; lags above seven are not used),
        for example from :func:`estimate_correlation` of a whole cube. They must be positive definite, if only with the
        white noise of five percent that the kernel adds.
    starts:
        Components (k, 3) of each spectrum: amplitude, mean and width. These are fitted, and those that do not pass the
        thresholds are dropped. There is no search for others. Only for the preset ``best``, and only with the kernel.
    axis:
        The spectral axis. With it, the table also has means and widths in physical units.
    threads:
        Threads of the kernel, 1 to 256.
    instruction_set:
        One of :data:`INSTRUCTION_SETS`; for tests and comparison.

    Raises
    ------
    ValueError
        For invalid arguments: a shape that is not (n, channels), a type that is not a number, a parameter out of range.
        Never because of the data: a batch in which no spectrum has data gives a NoDataWarning.
    ImportError
        If neither the kernel nor phspectra is installed.
    """
    settings = params if isinstance(params, Params) else Params.from_mapping({} if params is None else params)
    threads = whole_number(threads, "threads", 1, 256)
    if not isinstance(instruction_set, str) or instruction_set not in INSTRUCTION_SETS:
        raise ValueError(f"instruction_set must be one of {', '.join(INSTRUCTION_SETS)}, not {instruction_set!r}")
    if not isinstance(noise_is_shape, (bool, np.bool_)):
        raise ValueError(f"noise_is_shape must be true or false, not {noise_is_shape!r}")
    if axis is not None and not isinstance(axis, SpectralAxis):
        raise ValueError(f"axis must be a SpectralAxis, not {axis!r}")
    array = _as_batch(spectra)
    sigma = None if noise is None else _as_noise(noise, array.shape)
    if _kernel is None:
        if starts is not None:
            raise ValueError("starts need the C kernel, which was not built")
        if settings.baseline_order is not None:
            raise ValueError("baseline_order needs the C kernel, which was not built")
        _warn_without_kernel()
        from .fallback import decompose_with_phspectra  # noqa: PLC0415 - phspectra is optional

        return _warned(decompose_with_phspectra(array, settings, sigma, axis))
    mode, lags = _correlation_mode(correlation)
    columns = _kernel.decompose(
        array,
        *array.shape,
        array.dtype == np.float32,
        *_noise_buffer(sigma, noise_is_shape),
        mode,
        lags,
        *_start_buffers(starts, array.shape, settings),
        (
            settings.beta,
            settings.snr_min,
            settings.mf_snr_min,
            settings.f_sep,
            settings.neg_thresh,
            -1.0 if settings.fwhm_min is None else settings.fwhm_min,
            settings.time_budget_s,
            settings.max_refine_iter,
            settings.max_components,
            _PRESET_CODES[settings.preset],
            -1 if settings.baseline_order is None else settings.baseline_order,
            settings.second_start,
        ),
        threads,
        INSTRUCTION_SETS[instruction_set],
    )
    arrays: dict[str, Any] = {
        name: np.frombuffer(data, _COLUMN_TYPES.get(name, np.float64)) for name, data in columns.items()
    }
    return _warned(Decomposition(**arrays, axis=axis))


def _warned(table: Decomposition) -> Decomposition:
    """Return ``table``. Warn if none of its spectra has data."""
    if len(table) and (table.flags & Flag.NO_DATA).all():
        warnings.warn(
            f"none of the {len(table)} spectra has five channels with data: nothing was fitted. Spectra have the shape "
            "(n, channels); cube_spectra() makes it from a cube and finds the spectral axis.",
            NoDataWarning,
            stacklevel=3,
        )
    return table


def _as_batch(spectra: ArrayLike) -> NDArray[np.float32] | NDArray[np.float64]:
    array = numbers(spectra, "spectra")
    if array.ndim != 2 or array.shape[1] == 0:
        advice = "; decompose_cube takes an array (channels, ny, nx)" if array.ndim == 3 else ""
        raise ValueError(
            f"spectra must have the shape (n, channels) with at least one channel, not {array.shape}{advice}"
        )
    if array.shape[1] > _CHANNELS_LIMIT:
        raise ValueError(f"spectra have {array.shape[1]} channels; the kernel takes up to {_CHANNELS_LIMIT}")
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.itemsize not in (4, 8):
        raise ValueError(f"spectra must be float32, float64 or integers, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _as_noise(noise: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The noise as a float64 array. Axes of length one broadcast over the batch."""
    array = doubles(noise, "noise")
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"noise of shape {array.shape} does not broadcast to the spectra's {shape}") from None
    return np.ascontiguousarray(array.reshape((1,) * (2 - array.ndim) + array.shape))


def _correlation_mode(correlation: str | ArrayLike) -> tuple[int, NDArray[np.float64] | None]:
    """The correlation in the kernel's form: its mode and the lags. Raises ValueError if it is not a correlation."""
    if isinstance(correlation, str):
        if correlation not in _CORRELATION_CODES:
            raise ValueError(f"correlation must be 'estimate', 'white' or lags, not {correlation!r}")
        return _CORRELATION_CODES[correlation], None
    lags = np.ascontiguousarray(doubles(correlation, "correlation"))
    if lags.ndim != 1 or len(lags) < 1 or not np.isfinite(lags).all() or lags[0] != 1.0 or (np.abs(lags) > 1.0).any():
        raise ValueError("a given correlation is a row of lags from -1 to 1, the first one (lag zero) 1")
    if not lags[1:].any():
        return _CORRELATION_CODES["white"], None
    used = lags[:LAGS]
    distances = np.abs(np.subtract.outer(range(len(used)), range(len(used))))
    if np.linalg.eigvalsh(used[distances])[0] <= -_CORRELATION_FLOOR:
        raise ValueError(f"no noise has the given correlation {used.tolist()}: it is not positive definite")
    return _CORRELATION_GIVEN, lags


def _noise_buffer(
    sigma: NDArray[np.float64] | None, is_shape: bool
) -> tuple[NDArray[np.float64] | None, bool, int, int]:
    """The noise in the kernel's form: buffer, whether it is a shape, and strides of row and channel in items.

    A stride is zero where the noise broadcasts.
    """
    if sigma is None:
        return None, False, 0, 0
    rows, channels = sigma.shape
    return sigma, is_shape, 0 if rows == 1 else channels, 0 if channels == 1 else 1


def _start_buffers(
    starts: Sequence[ArrayLike] | None, shape: tuple[int, ...], settings: Params
) -> tuple[NDArray[np.float64] | None, NDArray[np.int64] | None]:
    """The starts in the kernel's form: components (m, 3), and the index of each spectrum's first one, (n + 1,)."""
    if starts is None:
        return None, None
    if settings.preset is not Preset.BEST:
        raise ValueError("starts are for the preset 'best'")
    if not isinstance(starts, (Sequence, np.ndarray)) or len(starts) != shape[0]:
        raise ValueError(f"starts must be a sequence of components (k, 3) for each of the {shape[0]} spectra")
    rows = [doubles(start, f"starts[{i}]") for i, start in enumerate(starts)]
    rows = [row.reshape(0, 3) if row.size == 0 else row for row in rows]
    wrong = next((i for i, row in enumerate(rows) if row.ndim != 2 or row.shape[1] != 3), None)
    if wrong is not None:
        raise ValueError(f"starts[{wrong}] must have the shape (k, 3), not {rows[wrong].shape}")
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    return np.concatenate([*rows, np.zeros((1, 3))]), offsets  # one extra row, so that the buffer is never empty


@cache
def _warn_without_kernel() -> None:
    """Warn, once in each process."""
    warnings.warn(
        "prismline-gaussline was installed without its C kernel and uses phspectra, which is thousands of times "
        "slower. Install a C compiler (gcc or clang) and Python's headers, then install it again from the folder of "
        "its sources: pip install --force-reinstall --no-deps FOLDER",
        RuntimeWarning,
        stacklevel=3,
    )
