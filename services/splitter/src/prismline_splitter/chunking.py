"""How a cube's spectra are divided into chunks: consecutive ranges of the spectrum index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkSpan:
    """The `n` spectra from spectrum index `start` on."""

    start: int
    n: int


def plan_chunks(n_spectra: int, chunk_size: int) -> list[ChunkSpan]:
    """Spans of `chunk_size` spectra that cover indices 0 to `n_spectra` - 1 once each, in order.

    The last span may be shorter. Raises ValueError for a chunk size below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; it must be at least 1")
    return [ChunkSpan(start, min(chunk_size, n_spectra - start)) for start in range(0, n_spectra, chunk_size)]


def chunk_id(start: int) -> str:
    """The id of the chunk that begins at spectrum index `start`; ids sort as starts do, up to ten million."""
    return f"chunk-{start:07d}"
