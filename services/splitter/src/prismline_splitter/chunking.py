"""Chooses how many spectra a chunk has: enough to be worth a message, few enough to keep all workers busy. Pure."""

from __future__ import annotations

import math

#: Work in one chunk, in seconds of one core. Much more than the overhead of a chunk, and little to lose with a worker.
CHUNK_SECONDS = 20.0
#: Least work in a chunk of a small run, in seconds. Small runs are cut finer, so that several workers have work.
LEAST_CHUNK_SECONDS = 0.25
#: Fewest chunks of a run, unless they would be smaller than `LEAST_CHUNK_SECONDS`.
LEAST_CHUNKS = 16
#: Largest chunk input, in bytes. A worker that takes over a chunk downloads this much again.
MAX_CHUNK_BYTES = 2**30
#: Milliseconds of one core for a spectrum of `COST_CHANNELS` channels, on average; the cost of both grows about in
#: proportion to the channels. Between what was measured on synthetic spectra (0.022 and 68) and on the Galactic Ring
#: Survey's test field (0.074 and 144): libs/gaussline/README.md.
COST_MS = {"gaussline": 0.05, "phspectra": 100.0}
COST_CHANNELS = 424


def choose_chunk_size(n_spectra: int, n_channels: int, itemsize: int, decomposer: str) -> int:
    """Spectra in a chunk, for a cube of `n_spectra` spectra with `n_channels` channels of `itemsize` bytes each."""
    seconds = COST_MS[decomposer] / 1000 * n_channels / COST_CHANNELS
    least, most = LEAST_CHUNK_SECONDS / seconds, CHUNK_SECONDS / seconds
    size = min(max(n_spectra / LEAST_CHUNKS, least), most, MAX_CHUNK_BYTES / (n_channels * itemsize))
    return max(1, math.floor(size))
