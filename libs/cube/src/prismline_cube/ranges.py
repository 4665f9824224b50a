"""Which ranges of bytes hold some spectra of a cube. Pure.

Spectra of one outer index have their values in one run of bytes for each channel. Runs with a small gap between them
are read in one range, because a request takes as long as many bytes. Complete outer indices are one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from prismline_cube.layout import Layout

#: Most bytes of a request that reads several runs. Each connection holds so many in memory.
REQUEST_BYTES = 8 * 2**20
#: Widest gap, in bytes, that one request reads over when spectra are consecutive. Gaps in a large cube are far wider.
NARROW_GAP_BYTES = 16 * 2**10
#: The same where single spectra are looked up: a request takes about as long as this many bytes.
WIDE_GAP_BYTES = 2**20


@dataclass(frozen=True)
class Piece:
    """Consecutive spectra from `start` on: `rows` complete outer indices, or `width` spectra of one outer index."""

    start: int
    rows: int
    width: int

    def __len__(self) -> int:
        return self.rows * self.width


@dataclass(frozen=True)
class Request:
    """The bytes `start` to `stop`: the values of `channels` at `width` inner indices from `inner` on."""

    start: int
    stop: int
    first_channel: int
    n_channels: int
    inner: int
    width: int

    def values(self, body: bytes, layout: Layout) -> NDArray[Any]:
        """The stored values in the answer, of shape (n_channels, width)."""
        dtype = layout.stored.dtype
        flat = np.frombuffer(body, dtype)
        strides = (layout.stored.inner * dtype.itemsize, dtype.itemsize)
        return as_strided(flat, (self.n_channels, self.width), strides, writeable=False)


def pieces(layout: Layout, start: int, stop: int, most: int) -> Iterator[Piece]:
    """The spectra `start` to `stop` in pieces of at most `most` spectra."""
    inner = layout.stored.inner
    while start < stop:
        at = start % inner
        if at == 0 and min(most, stop - start) >= inner:
            piece = Piece(start, min(most, stop - start) // inner, inner)
        else:
            piece = Piece(start, 1, min(inner - at, stop - start, most))
        yield piece
        start += len(piece)


def whole_rows(layout: Layout, piece: Piece) -> list[tuple[int, int]]:
    """The ranges of bytes of a piece of complete outer indices, which are contiguous."""
    itemsize = layout.stored.dtype.itemsize
    begin = layout.stored.offset + piece.start * layout.n_channels * itemsize
    end = begin + len(piece) * layout.n_channels * itemsize
    return [(at, min(at + REQUEST_BYTES, end)) for at in range(begin, end, REQUEST_BYTES)]


def channel_requests(layout: Layout, start: int, width: int, gap_bytes: int) -> Iterator[Request]:
    """Requests for the `width` spectra from `start` on, all of one outer index.

    Channels share a request where the gap between them is at most `gap_bytes`.
    """
    stored, itemsize = layout.stored, layout.stored.dtype.itemsize
    outer, at = divmod(start, stored.inner)
    together = 1
    if (stored.inner - width) * itemsize <= gap_bytes:
        together = max(1, REQUEST_BYTES // (stored.inner * itemsize))
    for first in range(0, layout.n_channels, together):
        n = min(together, layout.n_channels - first)
        begin = stored.offset + ((outer * layout.n_channels + first) * stored.inner + at) * itemsize
        yield Request(begin, begin + ((n - 1) * stored.inner + width) * itemsize, first, n, at, width)


def count_requests(layout: Layout, start: int, stop: int, most: int) -> int:
    """How many requests `reading.slabs` makes for the spectra `start` to `stop` in slabs of at most `most`."""
    n = 0
    for piece in pieces(layout, start, stop, most):
        if piece.width == layout.stored.inner:
            n += len(whole_rows(layout, piece))
        else:
            n += sum(1 for _ in channel_requests(layout, piece.start, piece.width, NARROW_GAP_BYTES))
    return n


def clusters(index: NDArray[np.int64], layout: Layout, gap_bytes: int) -> Iterator[slice]:
    """Slices of `index` (ascending) whose spectra have one outer index, and no gap wider than `gap_bytes`."""
    gap = gap_bytes // layout.stored.dtype.itemsize
    most = REQUEST_BYTES // layout.stored.dtype.itemsize
    begin = 0
    for n in range(1, len(index) + 1):
        if (
            n == len(index)
            or index[n] // layout.stored.inner != index[begin] // layout.stored.inner
            or index[n] - index[n - 1] - 1 > gap
            or index[n] - index[begin] >= most
        ):
            yield slice(begin, n)
            begin = n
