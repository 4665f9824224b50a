"""Estimates how the level of a cube's noise varies along its spectra, once for all its chunks, from a sample of them.

Bands have noisy edges, and an atmospheric line makes some channels noisier. The level of each spectrum is left to the
worker: the shape is relative.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.objects import MOST_SHAPE_VALUES
from prismline_gaussline import estimate_noise_shape

#: Fewest spectra with data: each half of them then gives the level of a channel to a quarter, and that of five to 0.15.
LEAST_SPECTRA = 100
#: Least relative variation, a standard deviation over the channels. Less changes no result that anybody would notice.
LEAST_VARIATION = 0.1
#: How many standard deviations the variation that both halves of the sample share must be above chance.
SIGNIFICANT = 4.0
#: Part of a channel's values that are negative. With less, it has lines in too many spectra to show its noise.
LEAST_NEGATIVE = 0.42
#: Channels beside such a channel that are not used either: the estimate is smoothed over five channels.
MARGIN = 2
#: Least part of the channels without lines.
LEAST_KNOWN = 0.5
#: Largest ratio of a level to the median level that is recorded, either way.
MOST_RATIO = 20.0


def shape_in(spectra: NDArray[np.floating]) -> list[float] | None:
    """The level of the noise along a sample of spectra (n, channels), relative to its median. None: it does not vary.

    It has a value for each channel, or for each of as many parts of the spectrum as a geometry holds. Channels with
    lines in many spectra get the level between those beside them. Both halves of the sample must show the variation:
    they come from different parts of the cube, so that noise that neighbouring pixels share is not taken for it.
    """
    there = np.isfinite(spectra)
    sample = spectra[there.any(axis=1)]
    if len(sample) < LEAST_SPECTRA:
        return None
    known = _without_lines(sample)
    if known.mean() < LEAST_KNOWN:
        return None
    half = len(sample) // 2
    first, second, whole = (estimate_noise_shape(part) for part in (sample[:half], sample[half:], sample))
    known &= (first > 0.0) & (second > 0.0) & (whole > 0.0)
    if known.mean() < LEAST_KNOWN or not _vary_alike(np.log(first[known]), np.log(second[known])):
        return None
    channels = np.arange(spectra.shape[1])
    levels = np.interp(channels, channels[known], whole[known])
    n_values = min(len(levels), MOST_SHAPE_VALUES)
    parts = np.split(levels, np.searchsorted(channels * n_values // len(levels), np.arange(1, n_values)))
    values = np.array([np.median(part) for part in parts])
    relative = np.clip(values / np.median(values), 1.0 / MOST_RATIO, MOST_RATIO)
    return [round(float(value), 3) for value in relative]


def _without_lines(sample: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Channels in which as many values are negative as noise has."""
    there = np.isfinite(sample).sum(axis=0)
    negative = (sample < 0.0).sum(axis=0) / np.maximum(there, 1)
    lines = (negative < LEAST_NEGATIVE) | (there < LEAST_SPECTRA // 2)
    near = np.convolve(lines, np.ones(2 * MARGIN + 1), "same") > 0.5
    return np.asarray(~near)


def _vary_alike(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Whether two estimates of the logarithm of the level vary, and do so together."""
    first, second = first - first.mean(), second - second.mean()
    shared = float((first * second).mean())
    # The running median over five channels leaves a fifth of the values independent.
    chance = float(first.std() * second.std()) * np.sqrt(5.0 / len(first))
    return shared > LEAST_VARIATION**2 and shared > SIGNIFICANT * chance
