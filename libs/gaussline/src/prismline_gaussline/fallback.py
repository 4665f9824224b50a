"""Makes the table with phspectra, one spectrum at a time, for an installation without the C kernel."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from .axis import SpectralAxis
from .params import Params
from .table import ComponentFlag, Decomposition, Flag

#: A spectrum with fewer channels of data than this is not fitted.
_MIN_CHANNELS = 5

#: phspectra's bounds of a width: this many channels, and this fraction of the spectrum.
_WIDTH_MIN, _WIDTH_MAX = 0.3, 0.5

_FWHM_PER_SIGMA = 2.3548200450309493


def decompose_with_phspectra(
    spectra: NDArray[np.float32] | NDArray[np.float64],
    params: Params,
    noise: NDArray[np.float64] | None,
    axis: SpectralAxis | None,
) -> Decomposition:
    """The table of phspectra's components. Raises ImportError if phspectra is missing.

    phspectra does not support blank channels, ``noise`` and presets. So blank channels are set to zero, and the choice
    of the model ignores ``noise`` and the preset.
    """
    try:
        from phspectra import estimate_rms, fit_gaussians  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ImportError(
            "prismline-gaussline has neither its C kernel nor phspectra: install a C compiler and reinstall, or "
            "pip install 'prismline-gaussline[phspectra]'"
        ) from error

    spectrum_rows: list[tuple[object, ...]] = []
    component_rows: list[NDArray[np.float64]] = []
    started = time.thread_time()
    for i, row in enumerate(spectra):
        start = time.perf_counter()
        sigma = None if noise is None else np.broadcast_to(noise[i if len(noise) > 1 else 0], row.shape)
        valid = np.isfinite(row) if sigma is None else np.isfinite(row) & np.isfinite(sigma) & (sigma > 0)
        flags = Flag(0) if valid.all() else Flag.BLANK
        rms = np.nan
        components = np.empty((0, 3))
        if valid.sum() < _MIN_CHANNELS:
            flags |= Flag.NO_DATA
        else:
            signal = np.where(valid, row, 0.0).astype(np.float64)
            with np.errstate(all="ignore"):
                rms = estimate_rms(signal[valid]) if sigma is None else float(np.mean(sigma[valid] ** -2.0) ** -0.5)
            if not (np.isfinite(rms) and rms > 0.0):
                flags |= Flag.NO_NOISE
                rms = np.nan
            else:
                found = fit_gaussians(
                    signal,
                    beta=params.beta,
                    max_refine_iter=params.max_refine_iter,
                    snr_min=params.snr_min,
                    mf_snr_min=params.mf_snr_min,
                    f_sep=params.f_sep,
                    neg_thresh=params.neg_thresh,
                )
                components = np.array([[c.amplitude, c.mean, c.stddev] for c in found]).reshape(-1, 3)
        fitted = not flags & (Flag.NO_DATA | Flag.NO_NOISE)
        chi2_reduced, aicc, rows, extra = _describe(
            np.where(valid, row, 0.0).astype(np.float64), valid, sigma, rms, components, params.f_sep, fitted
        )
        seconds = time.perf_counter() - start
        flags |= extra
        spectrum_rows.append((len(components), rms, chi2_reduced, aicc, int(flags), np.nan, seconds))
        component_rows.append(rows)
    per_spectrum = list(zip(*spectrum_rows, strict=True)) or [()] * 7
    stacked = np.concatenate(component_rows) if component_rows else np.empty((0, 9))
    return Decomposition(
        n_components=np.array(per_spectrum[0], dtype=np.int32),
        rms=np.array(per_spectrum[1], dtype=np.float64),
        chi2_reduced=np.array(per_spectrum[2], dtype=np.float64),
        aicc=np.array(per_spectrum[3], dtype=np.float64),
        correlation=np.zeros(len(spectra)),
        effective_channels=np.full(len(spectra), np.nan),
        baseline_0=np.zeros(len(spectra)),
        baseline_1=np.zeros(len(spectra)),
        baseline_2=np.zeros(len(spectra)),
        baseline_3=np.zeros(len(spectra)),
        flags=np.array(per_spectrum[4], dtype=np.uint32),
        work=np.array(per_spectrum[5], dtype=np.float64),
        seconds=np.array(per_spectrum[6], dtype=np.float64),
        amplitude=stacked[:, 0].copy(),
        mean=stacked[:, 1].copy(),
        stddev=stacked[:, 2].copy(),
        amplitude_err=stacked[:, 3].copy(),
        mean_err=stacked[:, 4].copy(),
        stddev_err=stacked[:, 5].copy(),
        flux=stacked[:, 6].copy(),
        flux_err=stacked[:, 7].copy(),
        component_flags=stacked[:, 8].astype(np.uint32),
        thread_seconds=np.array([time.thread_time() - started]),
        axis=axis,
    )


def _describe(
    signal: NDArray[np.float64],
    valid: NDArray[np.bool_],
    sigma: NDArray[np.float64] | None,
    rms: float,
    components: NDArray[np.float64],
    f_sep: float,
    fitted: bool,
) -> tuple[float, float, NDArray[np.float64], Flag]:
    """Reduced chi-square, AICc, component rows (k, 9) and further flags.

    phspectra does not report whether it converged, so CONVERGED is never set.
    """
    if not fitted:
        return np.nan, np.nan, np.empty((0, 9)), Flag(0)
    weight = valid * (1.0 if sigma is None else (rms / np.where(valid, sigma, np.inf)) ** 2)
    x = np.arange(len(signal))[:, None]
    a, mu, s = components.T
    z = (x - mu) / s
    bell = np.exp(-0.5 * z**2)
    chi2 = float(np.sum(weight * (signal - bell @ a) ** 2)) / rms**2
    n, k = int(valid.sum()), 3 * len(components)
    penalty = 2.0 * k + (2.0 * k * k + 2.0 * k) / (n - k - 1) if n > k + 1 else np.inf
    aicc = n * (np.log(max(chi2 / n, 1e-300)) + 2.0 * np.log(rms)) + penalty
    rows = np.zeros((len(components), 9))
    rows[:, :3] = components
    rows[:, 6] = np.sqrt(2.0 * np.pi) * a * s
    rows[:, 3:6] = rows[:, 7] = np.nan
    jacobian = np.stack((bell, bell * a * z / s, bell * a * z**2 / s), axis=2).reshape(len(signal), -1) / rms
    flags = Flag(0)
    try:
        covariance = np.linalg.inv((jacobian * weight[:, None]).T @ jacobian) if k else np.empty((0, 0))
    except np.linalg.LinAlgError:
        covariance = np.full((k, k), np.nan)
    for i in range(len(components)):
        own = covariance[3 * i : 3 * i + 3, 3 * i : 3 * i + 3]
        with np.errstate(invalid="ignore"):
            rows[i, 3:6] = np.sqrt(np.diag(own))
            gradient = np.array([s[i], 0.0, a[i]])
            rows[i, 7] = np.sqrt(2.0 * np.pi * gradient @ own @ gradient)
        component = ComponentFlag(0)
        if not np.isfinite(rows[i, 3:8]).all():
            component |= ComponentFlag.NO_ERROR
        if not (_WIDTH_MIN < s[i] < _WIDTH_MAX * len(signal)) or not 0.0 < mu[i] < len(signal):
            component |= ComponentFlag.AT_BOUND
            flags |= Flag.AT_BOUND
        near = np.abs(mu - mu[i]) < f_sep * _FWHM_PER_SIGMA * np.minimum(s, s[i])
        if near.sum() > 1:
            component |= ComponentFlag.BLENDED
            flags |= Flag.BLENDED
        rows[i, 8] = int(component)
    return (chi2 / (n - k) if n > k else np.nan), aicc, rows, flags
