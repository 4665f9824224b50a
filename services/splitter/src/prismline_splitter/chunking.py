"""Chooses how many spectra a chunk has: enough to be worth a message, few enough to keep all workers busy. Pure.

It also chooses how many shards count the chunks.
"""

from __future__ import annotations

import math

from prismline_contracts.fit_costs import CHUNK_SECONDS, FINE_CHUNKS, FitKind, fit_seconds
from prismline_cube import RANGE_BYTES, Grid, Layout

#: Least work in a chunk of a small run, in seconds. Small runs are cut finer, so that several workers have work.
LEAST_CHUNK_SECONDS = 0.25
#: Fewest chunks of a run, unless they would be smaller than `LEAST_CHUNK_SECONDS`.
LEAST_CHUNKS = 16
#: Work in a chunk of a larger run, of at most `FINE_CHUNKS` chunks, in seconds. A chunk's AWS calls take some 40 ms,
#: which is little in comparison.
FINE_CHUNK_SECONDS = 2.0
#: Fewest chunks of a run whose chunks refer to the cube, if fewer chunks make the ranges longer.
LEAST_REFERENCE_CHUNKS = 4
#: Largest chunk input, in bytes. A worker that takes over a chunk downloads this much again.
MAX_CHUNK_BYTES = 2**30
#: Rows of the cube in a chunk with a second pass, if possible. Up to six more rows are fitted as its surroundings.
SECOND_PASS_ROWS = 8
#: Most work in a chunk that has to be done in one call, in seconds: a third of the time that a function may run.
MOST_CHUNK_SECONDS = 300.0
#: Most chunks of a run. The ledger's shards and the console are designed for this many.
MAX_CHUNKS = 1_000_000
#: Most chunks that the run's item counts alone. One item takes about 100 completions a second, however many workers
#: there are, so counting this many takes 20 seconds (benchmarks/shards.md).
CHUNKS_OF_ONE_SHARD = 2_000
#: Shards of a run with more chunks. They take the completions of 64 workers at once almost without a conflict.
SHARDS = 16


def choose_chunk_size(n_spectra: int, n_channels: int, itemsize: int, kind: FitKind) -> int:
    """Spectra in a chunk, for a cube of `n_spectra` spectra with `n_channels` channels of `itemsize` bytes each."""
    seconds = fit_seconds(n_channels, kind)
    most = max(1, math.floor(min(CHUNK_SECONDS / seconds, MAX_CHUNK_BYTES / (n_channels * itemsize))))
    work = n_spectra * seconds
    few, many = min(work / LEAST_CHUNK_SECONDS, LEAST_CHUNKS), min(work / FINE_CHUNK_SECONDS, FINE_CHUNKS)
    return balanced(n_spectra, min(most, max(1, math.ceil(n_spectra / max(1, math.floor(max(few, many)))))))


def balanced(n_spectra: int, size: int, together: int = 1) -> int:
    """A chunk size that makes at most as many chunks as `size` does, as equal in size as possible.

    Both sizes are multiples of `together` spectra; only the last chunk may hold a part of such a group. For example,
    100 spectra in chunks of 33 would leave a last chunk of one spectrum; this function returns 25.
    """
    n_units = -(-n_spectra // together)
    n_chunks = -(-n_units // max(1, size // together))
    return -(-n_units // n_chunks) * together


def with_enough_rows(size: int, nx: int, n_channels: int) -> int:
    """Spectra in a chunk with a second pass, in a cube with rows of `nx` spectra, where others would have `size`."""
    return max(size, min(SECOND_PASS_ROWS * nx, most_spectra_in_time(n_channels, "second_pass") // 2))


def most_spectra_in_time(n_channels: int, kind: FitKind) -> int:
    """Most spectra in a chunk that has to be done within `MOST_CHUNK_SECONDS`."""
    return max(1, math.floor(MOST_CHUNK_SECONDS / fit_seconds(n_channels, kind)))


def choose_reference_size(size: int, layout: Layout, kind: FitKind, grid: Grid | None = None) -> int:
    """Spectra in a chunk that refers to the cube, where copied chunks would have `size`.

    If the ranges would be too short to be worth a request each, chunks are larger, up to `CHUNK_SECONDS` of work. If
    possible, a chunk holds whole outer indices of the cube, so that it is one range. `grid` describes the stored chunks
    of a Zarr array: if possible, a chunk holds whole stored chunks.
    """
    together = layout.stored.inner if grid is None else grid.together
    worth = min(RANGE_BYTES // layout.stored.dtype.itemsize, together) if grid is None else together
    if size < worth:
        most = math.floor(CHUNK_SECONDS / fit_seconds(layout.n_channels, kind))
        size = max(size, min(worth, -(-layout.n_spectra // LEAST_REFERENCE_CHUNKS), most))
    return balanced(layout.n_spectra, size, together if size >= together else 1)


def shards_of(n_chunks: int) -> int:
    """How many shards count the chunks of a run with `n_chunks` of them."""
    return 1 if n_chunks <= CHUNKS_OF_ONE_SHARD else SHARDS
