"""Synthetic spectra with known components, and the published score (F1) of a decomposition.

The seven categories and the matching rule are those of the synthetic benchmark that is published with phspectra
(github.com/caverac/phspectra, `benchmarks`): 424 channels, white noise of 0.25 K, means at least 10 channels from
the edges. Only :func:`count_matches` needs scipy (the Hungarian assignment); it is the extra ``score``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Channels of a synthetic spectrum: the length of a Galactic Ring Survey spectrum of the published benchmark.
CHANNELS = 424

#: Standard deviation of the white noise, kelvin.
NOISE_K = 0.25

#: Means keep this distance from both edges, channels.
EDGE_CHANNELS = 10.0

#: A match needs the fitted mean within this many true standard deviations of the true mean.
MATCH_MEAN_SIGMA = 1.0

#: A match needs fitted over true width strictly inside this range.
MATCH_WIDTH_RATIO = (0.3, 2.5)

#: A match needs fitted over true amplitude strictly inside this range.
MATCH_AMPLITUDE_RATIO = (0.0, 10.0)

#: Clouds of :func:`make_cube`.
_CLOUDS = 4

#: Faint baselines, in units of the noise: a constant, the ends of a slope through zero, the amplitude of a ripple.
BASELINES = {"offset": 0.2, "slope": 0.3, "ripple": 0.3}

#: Periods of the ripple in a spectrum.
_RIPPLES = 3

#: White noise, as a fraction of the variance, that keeps a covariance of smoothed noise positive definite.
_LEAST_POWER = 1e-6

#: The response that smooths the noise is cut off at this many of its standard deviations.
_RESPONSE_REACH = 6.0

#: Draws of a position for a separated component. After that the last one is used, even if it is too close to another.
_PLACE_ATTEMPTS = 200

Components = NDArray[np.float64]
"""Shape (k, 3): amplitude (K), mean (channel), standard deviation (channels), one row a component."""


@dataclass(frozen=True)
class MadeSpectrum:
    """One synthetic spectrum: ``signal`` (channels,) in kelvin, its category and its true ``components`` (k, 3)."""

    category: str
    signal: NDArray[np.float64]
    components: Components


def _mean(rng: np.random.Generator) -> float:
    return float(rng.uniform(EDGE_CHANNELS, CHANNELS - EDGE_CHANNELS))


def _single(rng: np.random.Generator, amplitude: tuple[float, float], width: tuple[float, float]) -> list[list[float]]:
    return [[rng.uniform(*amplitude), _mean(rng), rng.uniform(*width)]]


def _faint(rng: np.random.Generator) -> list[list[float]]:
    amplitude = float(np.clip(rng.uniform(2.0, 6.0) * NOISE_K, 0.3, 0.8))
    return [[amplitude, _mean(rng), rng.uniform(3.0, 10.0)]]


def _separated(rng: np.random.Generator) -> list[list[float]]:
    rows: list[list[float]] = []
    for _ in range(int(rng.integers(2, 4))):
        amplitude, width = rng.uniform(0.5, 4.0), rng.uniform(2.0, 8.0)
        for _ in range(_PLACE_ATTEMPTS):
            mean = _mean(rng)
            if all(abs(mean - row[1]) > 4.0 * max(width, row[2]) for row in rows):
                break
        rows.append([amplitude, mean, width])
    return rows


def _blended(rng: np.random.Generator) -> list[list[float]]:
    rows: list[list[float]] = []
    for _ in range(int(rng.integers(2, 4))):
        amplitude, width = rng.uniform(0.5, 4.0), rng.uniform(3.0, 8.0)
        mean = _mean(rng)
        if rows:
            offset = rng.uniform(1.5, 3.0) * max(width, rows[-1][2])
            side = rng.choice([-1.0, 1.0])
            mean = float(np.clip(rows[-1][1] + side * offset, EDGE_CHANNELS, CHANNELS - EDGE_CHANNELS))
        rows.append([amplitude, mean, width])
    return rows


def _crowded(rng: np.random.Generator) -> list[list[float]]:
    return [[rng.uniform(0.3, 3.0), _mean(rng), rng.uniform(2.0, 6.0)] for _ in range(int(rng.integers(4, 6)))]


#: Category -> a draw of its components. The order is the order of the spectra in :func:`make_spectra`.
CATEGORIES: dict[str, Callable[[np.random.Generator], list[list[float]]]] = {
    "bright": lambda rng: _single(rng, (1.0, 5.0), (3.0, 10.0)),
    "faint": _faint,
    "narrow": lambda rng: _single(rng, (1.0, 5.0), (1.0, 2.5)),
    "broad": lambda rng: _single(rng, (0.5, 3.0), (10.0, 20.0)),
    "separated": _separated,
    "blended": _blended,
    "crowded": _crowded,
}


def model(components: Components, channels: int) -> NDArray[np.float64]:
    """Sum of Gaussians at channels 0..channels-1, in the unit of the amplitudes."""
    x = np.arange(channels, dtype=np.float64)[:, None]
    rows = np.asarray(components, dtype=np.float64).reshape(-1, 3)
    bells = rows[:, 0] * np.exp(-0.5 * ((x - rows[:, 1]) / rows[:, 2]) ** 2)
    return np.asarray(bells.sum(axis=1), dtype=np.float64)


def _response(smoothing: float) -> NDArray[np.float64]:
    """A Gaussian of this standard deviation in channels, whose square sums to one."""
    reach = int(np.ceil(_RESPONSE_REACH * smoothing))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / smoothing) ** 2)
    return np.asarray(kernel / np.sqrt((kernel**2).sum()), dtype=np.float64)


def make_noise(rng: np.random.Generator, shape: tuple[int, int], smoothing: float = 0.0) -> NDArray[np.float64]:
    """Noise of :data:`NOISE_K`, shape (n, channels): white, or smoothed with a Gaussian of ``smoothing`` channels."""
    if smoothing == 0.0:
        return rng.normal(0.0, NOISE_K, shape)
    kernel = _response(smoothing)
    white = rng.normal(0.0, NOISE_K, (shape[0], shape[1] + len(kernel) - 1))
    return np.stack([np.convolve(row, kernel, "valid") for row in white]) if len(white) else np.empty(shape)


def correlation_of(smoothing: float, lags: int = 8) -> NDArray[np.float64]:
    """Correlation at lags 0, 1, ... of the noise that :func:`make_noise` makes, shape (lags,)."""
    if smoothing == 0.0:
        return np.concatenate(([1.0], np.zeros(lags - 1)))
    kernel = np.pad(_response(smoothing), (0, lags))
    products = np.array([kernel[: len(kernel) - lag] @ kernel[lag:] for lag in range(lags)])
    return np.asarray(products / products[0], dtype=np.float64)


def make_spectra(per_category: int, seed: int, smoothing: float = 0.0) -> list[MadeSpectrum]:
    """``per_category`` spectra of each of the seven categories. The same ``seed`` gives the same spectra.

    Their noise is smoothed with a Gaussian of ``smoothing`` channels and scaled to the same standard deviation.
    """
    rng = np.random.default_rng(seed)
    spectra = []
    for category, draw in CATEGORIES.items():
        for _ in range(per_category):
            components = np.asarray(draw(rng), dtype=np.float64)
            signal = model(components, CHANNELS) + make_noise(rng, (1, CHANNELS), smoothing)[0]
            spectra.append(MadeSpectrum(category, signal, components))
    return spectra


def broad_lines(
    n: int, seed: int, width: float, snr: float, smoothing: float = 0.0
) -> tuple[Components, NDArray[np.float64]]:
    """One component of each of ``n`` spectra, (n, 3), and the spectra (n, channels), with noise as in make_spectra.

    The components have this ``width`` in channels and this matched-filter S/N ``snr`` under the noise's covariance,
    and lie in the middle third of the channels.
    """
    rng = np.random.default_rng(seed)
    bell = model(np.array([[1.0, CHANNELS / 2.0, width]]), CHANNELS)
    lags = correlation_of(smoothing, CHANNELS)
    distance = np.abs(np.subtract.outer(np.arange(CHANNELS), np.arange(CHANNELS)))
    covariance = NOISE_K**2 * (lags[distance] + _LEAST_POWER * np.eye(CHANNELS))
    height = snr / math.sqrt(bell @ np.linalg.solve(covariance, bell))
    means = rng.uniform(CHANNELS / 3.0, 2.0 * CHANNELS / 3.0, n)
    truth = np.stack((np.full(n, height), means, np.full(n, width)), axis=1)
    signals = height * np.exp(-0.5 * ((np.arange(CHANNELS) - means[:, None]) / width) ** 2)
    return truth, signals + make_noise(rng, signals.shape, smoothing)


def baseline(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> NDArray[np.float64]:
    """Faint baselines (n, channels) of one of the :data:`BASELINES`, or of ``"all"`` of them together."""
    n, channels = shape
    x = np.linspace(-1.0, 1.0, channels)
    sign, phase = rng.choice([-1.0, 1.0], (n, 1)), rng.uniform(0.0, 2.0 * np.pi, (n, 1))
    parts = {
        "offset": np.ones(shape),
        "slope": sign * x,
        "ripple": np.sin(_RIPPLES * np.pi * x + phase),
    }
    total = np.zeros(shape)
    for name, part in parts.items():
        if kind in (name, "all"):
            total += NOISE_K * BASELINES[name] * part
    return total


def absorption(
    rng: np.random.Generator, shape: tuple[int, int], depth: float = 5.0, width: float = 10.0
) -> NDArray[np.float64]:
    """Absorption lines (n, channels), one in each spectrum: ``depth`` in units of the noise, ``width`` in channels.

    They lie anywhere but in the outer tenths of the channels.
    """
    n, channels = shape
    means = rng.uniform(0.1 * channels, 0.9 * channels, (n, 1))
    return np.asarray(-depth * NOISE_K * np.exp(-0.5 * ((np.arange(channels) - means) / width) ** 2))


def make_cube(
    shape: tuple[int, int], seed: int, channels: int = 200, smoothing: float = 0.0
) -> tuple[NDArray[np.float64], list[Components]]:
    """Spectra (ny * nx, channels) of an image of ``shape`` (ny, nx), and the components of each, (k, 3).

    Components of less than two sigmas are not listed. The noise is as in :func:`make_spectra`. The image shows four
    clouds, whose height, velocity and width vary smoothly, the velocity by up to 20 channels. Their velocities are
    close, so that many are blended.
    """
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.35, 0.45) * channels
    clouds = []
    for _ in range(_CLOUDS):
        height = _smooth_map(rng, shape, 6.0, -1.0, 3.0)
        velocity = _smooth_map(rng, shape, 8.0, base, base + rng.uniform(8.0, 20.0))
        clouds.append(np.stack((height, velocity, _smooth_map(rng, shape, 8.0, 2.5, 6.0)), axis=-1).reshape(-1, 3))
        base += rng.uniform(6.0, 16.0)
    truth = [pixel[pixel[:, 0] >= 2.0 * NOISE_K] for pixel in np.stack(clouds, axis=1)]
    signals = np.array([model(components, channels) for components in truth])
    return signals + make_noise(rng, (len(truth), channels), smoothing), truth


def _smooth_map(
    rng: np.random.Generator, shape: tuple[int, int], scale: float, low: float, high: float
) -> NDArray[np.float64]:
    """A sum of six plane waves of about ``scale`` pixels a radian, from ``low`` to ``high``."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    total = np.zeros(shape)
    for _ in range(6):
        along_y, along_x = rng.normal(size=2) / scale
        total += np.cos(along_y * y + along_x * x + rng.uniform(0.0, 2.0 * np.pi))
    return np.asarray(low + (high - low) * (total - total.min()) / (np.ptp(total) + 1e-9))


def count_jumps(models: Sequence[Components], shape: tuple[int, int]) -> int:
    """The number of components that only one of two adjacent pixels has, summed over all pairs of adjacent pixels.

    ``models``: components (k, 3) of each pixel of an image of ``shape`` (ny, nx). Two pixels share a component if its
    means agree within a width, the narrower's. The truth has such jumps too, where a cloud begins.
    """
    ny, nx = shape
    pairs = [(i, i + 1) for i in range(ny * nx) if (i + 1) % nx] + [(i, i + nx) for i in range((ny - 1) * nx)]
    return sum(_unshared(models[i], models[j]) + _unshared(models[j], models[i]) for i, j in pairs)


def _unshared(a: Components, b: Components) -> int:
    near = np.abs(a[:, None, 1] - b[None, :, 1]) <= np.minimum(a[:, None, 2], b[None, :, 2])
    return int((~near.any(axis=1)).sum())


def count_matches(truth: Components, fitted: Components) -> int:
    """The number of components of ``truth`` that ``fitted`` recovers, both (k, 3).

    Pairs are assigned by the Hungarian method on the distance of the means; a pair counts when mean, width and
    amplitude are inside :data:`MATCH_MEAN_SIGMA`, :data:`MATCH_WIDTH_RATIO` and :data:`MATCH_AMPLITUDE_RATIO`.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - optional

    if len(truth) == 0 or len(fitted) == 0:
        return 0
    rows, columns = linear_sum_assignment(np.abs(truth[:, 1][:, None] - fitted[:, 1][None, :]))
    t, f = truth[rows], fitted[columns]
    width, amplitude = f[:, 2] / t[:, 2], f[:, 0] / t[:, 0]
    good = np.abs(f[:, 1] - t[:, 1]) < MATCH_MEAN_SIGMA * t[:, 2]
    good &= (width > MATCH_WIDTH_RATIO[0]) & (width < MATCH_WIDTH_RATIO[1])
    good &= (amplitude > MATCH_AMPLITUDE_RATIO[0]) & (amplitude < MATCH_AMPLITUDE_RATIO[1])
    return int(good.sum())


def f1_by_category(spectra: Sequence[MadeSpectrum], fitted: Sequence[Components]) -> dict[str, float]:
    """F1 = 2 matches / (true + fitted components), pooled over each category, and over all as ``"all"``."""
    counts: dict[str, list[int]] = {name: [0, 0] for name in (*CATEGORIES, "all")}
    for spectrum, components in zip(spectra, fitted, strict=True):
        matched = count_matches(spectrum.components, components)
        total = len(spectrum.components) + len(components)
        for name in (spectrum.category, "all"):
            counts[name][0] += matched
            counts[name][1] += total
    return {name: 2.0 * matched / total for name, (matched, total) in counts.items() if total}
