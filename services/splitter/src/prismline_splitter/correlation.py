"""Estimates the correlation of a cube's noise between channels, once for all its chunks, from a sample of spectra.

An estimate from one spectrum is uncertain by a tenth, and false components come from that. The sample takes as much to
read as one more chunk: a range of bytes for each channel and each of its parts if the spectral axis is last.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.base import noise_can_have
from prismline_cube import Layout
from prismline_gaussline import estimate_correlation

#: Channels that the sample has at least, in all its spectra that are not blank: the estimate is then good to 0.01.
LEAST_VALUES = 10_000
#: Largest correlation at the last lag. More of it comes from a baseline that is not zero, and not from the noise.
MOST_AT_LAST_LAG = 0.2
#: Fewest channels of a spectrum from which gaussline estimates a correlation.
LEAST_CHANNELS = 64
#: Most values of a sample: a second of estimating, and 64 MiB of memory.
MOST_VALUES = 1_000_000
#: Most requests for a sample of a cube that is not on the disk, unless one part takes more.
MOST_REQUESTS = 1024
#: Spectra of one part of the sample, and most parts.
PART_SPECTRA, MOST_PARTS = 128, 16


def sample_parts(layout: Layout) -> list[range]:
    """Consecutive spectra at places that are spread over the cube. Empty: the cube is too small for an estimate.

    Depends only on the shape of the cube, so that every kind of input and every delivery has the same sample.
    """
    n, channels = layout.n_spectra, layout.n_channels
    if channels < LEAST_CHANNELS or n * channels < LEAST_VALUES:
        return []
    size = min(n, PART_SPECTRA, max(1, MOST_VALUES // channels))
    requests = 1 if layout.stored.inner == 1 else channels
    most = min(MOST_PARTS, MOST_REQUESTS // requests, MOST_VALUES // (size * channels), n // size)
    parts = max(1, most)
    starts = [(2 * part + 1) * n // (2 * parts) - size // 2 for part in range(parts)]
    return [range(start, start + size) for start in (min(max(start, 0), n - size) for start in starts)]


def correlation_in(spectra: NDArray[np.floating]) -> list[float] | None:
    """The correlation of the noise of a sample (n, channels) at lags 0 to 7. None if it is not known."""
    if int(np.isfinite(spectra).sum()) < LEAST_VALUES:
        return None
    try:
        lags = estimate_correlation(spectra)
    except ValueError:  # no spectrum has enough channels without signal
        return None
    if not all(map(math.isfinite, lags)) or abs(lags[-1]) > MOST_AT_LAST_LAG:
        return None
    rounded = [1.0, *(round(float(np.clip(lag, -1.0, 1.0)), 4) for lag in lags[1:])]
    return rounded if noise_can_have(rounded) else None
