"""Chooses how many spectra a chunk has: enough to be worth a message, few enough to keep all workers busy. Pure.

It also chooses how many shards count the chunks.
"""

from __future__ import annotations

import math

from prismline_cube import RANGE_BYTES, Grid, Layout

#: Work in one chunk, in seconds of one core. Much more than the overhead of a chunk, and little to lose with a worker.
CHUNK_SECONDS = 20.0
#: Least work in a chunk of a small run, in seconds. Small runs are cut finer, so that several workers have work.
LEAST_CHUNK_SECONDS = 0.25
#: Fewest chunks of a run, unless they would be smaller than `LEAST_CHUNK_SECONDS`.
LEAST_CHUNKS = 16
#: Work in a chunk of a larger run, in seconds. A chunk's calls take some 40 ms, which is little beside it.
FINE_CHUNK_SECONDS = 2.0
#: Fewest chunks of a run, unless they would be smaller than `FINE_CHUNK_SECONDS`: so many workers can take part.
FINE_CHUNKS = 256
#: Fewest chunks of a run whose chunks refer to the cube, if longer ranges make up for fewer chunks.
LEAST_REFERENCE_CHUNKS = 4
#: Largest chunk input, in bytes. A worker that takes over a chunk downloads this much again.
MAX_CHUNK_BYTES = 2**30
#: Most chunks of a run: what the ledger's shards and the console have been made for.
MAX_CHUNKS = 1_000_000
#: Milliseconds of one core for a spectrum of `COST_CHANNELS` channels, on average; the cost of both grows about in
#: proportion to the channels. Between what was measured on synthetic spectra (0.022 and 68) and on the Galactic Ring
#: Survey's test field (0.074 and 144): libs/gaussline/README.md.
COST_MS = {"gaussline": 0.05, "phspectra": 100.0}
COST_CHANNELS = 424
#: Most chunks that the run's item counts by itself. One item takes about 100 completions a second, however many workers
#: there are; these chunks take 20 seconds of that (benchmarks/README.md, `shards.py`).
CHUNKS_OF_ONE_SHARD = 2_000
#: Shards of a run with more chunks. They take the completions of 64 workers at once almost without a conflict.
SHARDS = 16


def choose_chunk_size(n_spectra: int, n_channels: int, itemsize: int, decomposer: str) -> int:
    """Spectra in a chunk, for a cube of `n_spectra` spectra with `n_channels` channels of `itemsize` bytes each."""
    seconds = _seconds(n_channels, decomposer)
    most = max(1, math.floor(min(CHUNK_SECONDS / seconds, MAX_CHUNK_BYTES / (n_channels * itemsize))))
    work = n_spectra * seconds
    few, many = min(work / LEAST_CHUNK_SECONDS, LEAST_CHUNKS), min(work / FINE_CHUNK_SECONDS, FINE_CHUNKS)
    return balanced(n_spectra, min(most, max(1, math.ceil(n_spectra / max(1, math.floor(max(few, many)))))))


def balanced(n_spectra: int, size: int, together: int = 1) -> int:
    """A size that makes as many chunks as `size` does, at most, but of one size as far as that goes.

    Both are multiples of `together` spectra, of which there may be a part at the end. Without this, the last chunk of
    100 spectra in chunks of 33 would have one.
    """
    n_units = -(-n_spectra // together)
    n_chunks = -(-n_units // max(1, size // together))
    return -(-n_units // n_chunks) * together


def _seconds(n_channels: int, decomposer: str) -> float:
    """What a spectrum takes of one core, on average."""
    return COST_MS[decomposer] / 1000 * n_channels / COST_CHANNELS


def choose_reference_size(size: int, layout: Layout, decomposer: str, grid: Grid | None = None) -> int:
    """Spectra in a chunk that refers to the cube, where copied chunks would have `size`.

    Chunks are larger if their ranges would be too short to be worth a request each, as far as their work allows, and
    hold whole outer indices of the cube if they can, so that a chunk is one range. Of a Zarr array, whose stored chunks
    are in `grid`, they hold whole stored chunks if they can.
    """
    together = layout.stored.inner if grid is None else grid.together
    worth = min(RANGE_BYTES // layout.stored.dtype.itemsize, together) if grid is None else together
    if size < worth:
        most = math.floor(CHUNK_SECONDS / _seconds(layout.n_channels, decomposer))
        size = max(size, min(worth, -(-layout.n_spectra // LEAST_REFERENCE_CHUNKS), most))
    return balanced(layout.n_spectra, size, together if size >= together else 1)


def shards_of(n_chunks: int) -> int:
    """How many shards count the chunks of a run with `n_chunks` of them."""
    return 1 if n_chunks <= CHUNKS_OF_ONE_SHARD else SHARDS
