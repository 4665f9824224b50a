"""The noise of a whole cube: its correlation between channels, and how its level varies along the spectrum.

:func:`prismline_gaussline.decompose` estimates the correlation from each spectrum alone. If many spectra come from one
backend, these functions estimate it once from all of them, far more precisely.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import doubles

#: Lags that the kernel uses: zero to seven channels.
LAGS = 8

#: How signal is found, as in the kernel: this many smoothing passes of the B3 spline (three give a width of 4.6
#: channels), the threshold in sigmas of the smoothed spectrum, and the channels to add on either side.
_SIGNAL_PASSES, _SIGNAL_CLIP, _SIGNAL_MARGIN = 3, 3.5, 4

#: Sigma of a normal distribution divided by its median absolute deviation.
_MAD_TO_SIGMA = 1.4826

#: A smaller correlation has no visible effect and counts as none.
_LEAST_CORRELATION = 0.02

#: Width in channels of the running median that smooths the noise's shape.
_SHAPE_WINDOW = 5


def estimate_correlation(spectra: ArrayLike, noise: ArrayLike | None = None) -> NDArray[np.float64]:
    """Correlation of the noise at lags 0 to 7 channels, for ``decompose(correlation=...)``. Shape (8,), the first is 1.

    It is the mean product of channels without signal, each spectrum in units of its own noise, over ``spectra`` (n,
    channels). Channels that are not finite, or masked, are ignored. ``noise`` broadcasts to the spectra and gives its
    shape if it varies along them; its scale does not matter. Raises ValueError if there are too few channels without
    signal.
    """
    x = _scaled(spectra)
    if noise is not None:
        sigma = doubles(noise, "noise")
        try:
            sigma = np.broadcast_to(sigma, x.shape)
        except ValueError:
            raise ValueError(f"noise of shape {sigma.shape} does not broadcast to the spectra's {x.shape}") from None
        with np.errstate(all="ignore"):
            x = _scaled(np.where(sigma > 0.0, x / sigma, np.nan))
    quiet = _quiet(x)
    x[~quiet] = 0.0
    counts = quiet.sum(axis=1)
    power = (x**2).sum(axis=1) / np.maximum(counts, 1)
    used = (counts >= 8 * LAGS) & (power > 0.0)
    if not used.any():
        raise ValueError("no spectrum has enough channels without signal to estimate the correlation of its noise")
    x, quiet = x[used] / np.sqrt(power[used, None]), quiet[used]
    channels = x.shape[1]
    lags = np.zeros(LAGS)
    for lag in range(min(LAGS, channels)):
        pairs = (quiet[:, : channels - lag] & quiet[:, lag:]).sum()
        lags[lag] = (x[:, : channels - lag] * x[:, lag:]).sum() / max(pairs, 1)
    lags /= lags[0]
    lags[np.abs(lags) < _LEAST_CORRELATION] = 0.0
    return lags


def estimate_noise_shape(spectra: ArrayLike) -> NDArray[np.float64]:
    """How the noise varies along the spectra (n, channels) of a cube. Shape (channels,), median 1.

    For ``decompose(noise=..., noise_is_shape=True)``. It is the median of each channel's negative values, which lines
    do not affect, each spectrum in units of its own noise, smoothed by a running median of five channels. Some fifty
    spectra give a precision of ten percent. Channels without a finite value are NaN, and blank for ``decompose``.
    """
    x = _scaled(spectra)
    x[~(x < 0.0)] = np.nan
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN slices come out NaN
        x /= np.nanmedian(x, axis=1, keepdims=True)
        level = np.nanmedian(x, axis=0)
        half = _SHAPE_WINDOW // 2
        padded = np.pad(level, half, mode="reflect") if len(level) > half else level
        if len(level) > half:
            level = np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, _SHAPE_WINDOW), axis=1)
        return np.asarray(level / np.nanmedian(level), dtype=np.float64)


def _scaled(spectra: ArrayLike) -> NDArray[np.float64]:
    """The spectra (n, channels), each divided by its largest finite channel, so that no square overflows.

    The factor is a power of two, which changes no digit. Channels that are not finite are NaN.
    """
    x = doubles(spectra, "spectra")
    if x.ndim > 2 or x.size == 0:
        raise ValueError(f"spectra must have the shape (n, channels) with at least one channel, not {x.shape}")
    x = np.array(x, ndmin=2)
    x[~np.isfinite(x)] = np.nan
    top = np.max(np.abs(x), axis=1, keepdims=True, initial=0.0, where=np.isfinite(x))
    return np.asarray(np.ldexp(x, -np.frexp(top)[1]))


def _quiet(spectra: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where there is data and no signal."""
    there = np.isfinite(spectra)
    smooth = np.where(there, spectra, 0.0)
    for step in (2**k for k in range(_SIGNAL_PASSES)):
        padded = np.pad(smooth, ((0, 0), (2 * step, 2 * step)))
        n = smooth.shape[1]
        taps = [padded[:, k * step : k * step + n] for k in range(5)]
        smooth = 0.375 * taps[2] + 0.25 * (taps[1] + taps[3]) + 0.0625 * (taps[0] + taps[4])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN slices come out NaN
        sigma = -_MAD_TO_SIGMA * np.nanmedian(np.where(smooth < 0.0, smooth, np.nan), axis=1, keepdims=True)
    loud = np.abs(smooth) > _SIGNAL_CLIP * np.nan_to_num(sigma, nan=np.inf)
    wide = loud.copy()
    for shift in range(1, _SIGNAL_MARGIN + 1):
        wide[:, shift:] |= loud[:, :-shift]
        wide[:, :-shift] |= loud[:, shift:]
    return np.asarray(there & ~wide)
