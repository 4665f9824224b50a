"""Reads spectra of a cube through the caller's function. It requests ranges concurrently, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_cube.layout import Layout
from prismline_cube.ranges import (
    NARROW_GAP_BYTES,
    WIDE_GAP_BYTES,
    Piece,
    Request,
    channel_requests,
    clusters,
    pieces,
    whole_rows,
)

#: Ranges that are requested at the same time. S3 recommends one connection for each 85 to 90 MB/s, and an answer begins
#: after some 20 ms: 16 connections hide that delay without filling a network of 10 Gbit/s.
CONNECTIONS = 16
#: Least bytes of one range that justify a request.
RANGE_BYTES = 256 * 2**10
#: Bytes of one slab. A reader holds two: one in use, and one that is being fetched.
SLAB_BYTES = 128 * 2**20

#: Returns the bytes `start` to `stop` (exclusive) of the object.
ReadRange = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Slab:
    """The stored values (n, n_channels) of consecutive spectra from spectrum `start` on."""

    start: int
    stored: NDArray[Any]


def slab_size(layout: Layout) -> int:
    """Spectra in a slab: enough that each range justifies a request, and no more than memory allows."""
    bytes_per_spectrum = layout.n_channels * layout.stored.dtype.itemsize
    return max(1, min(RANGE_BYTES // layout.stored.dtype.itemsize, SLAB_BYTES // bytes_per_spectrum))


def slabs(layout: Layout, start: int, stop: int, read: ReadRange) -> Iterator[Slab]:
    """The spectra `start` to `stop` in slabs. Raises what `read` raises."""
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="ranges") as pool:
        for piece in pieces(layout, start, stop, slab_size(layout)):
            yield Slab(piece.start, _fetch(layout, piece, read, pool))


def _fetch(layout: Layout, piece: Piece, read: ReadRange, pool: ThreadPoolExecutor) -> NDArray[Any]:
    """The stored values of a piece, of shape (len(piece), n_channels)."""
    found = np.empty((piece.rows, layout.n_channels, piece.width), layout.stored.dtype)
    if piece.width == layout.stored.inner:
        flat, ranges = found.reshape(-1).view(np.uint8), whole_rows(layout, piece)

        def fill(span: tuple[int, int]) -> None:
            at = span[0] - ranges[0][0]
            flat[at : at + span[1] - span[0]] = np.frombuffer(read(*span), np.uint8)

        _all(pool.map(fill, ranges))
    else:

        def place(request: Request) -> None:
            values = request.values(read(request.start, request.stop), layout)
            found[0, request.first_channel : request.first_channel + request.n_channels] = values

        _all(pool.map(place, channel_requests(layout, piece.start, piece.width, NARROW_GAP_BYTES)))
    return found.transpose(0, 2, 1).reshape(-1, layout.n_channels)


def gather(layout: Layout, index: NDArray[np.int64], read: ReadRange) -> NDArray[np.floating[Any]]:
    """The spectra (n, n_channels) with the indices `index`, which ascend. Raises what `read` raises."""
    stored = np.empty((len(index), layout.n_channels), layout.stored.dtype)

    def place(task: tuple[slice, Request]) -> None:
        rows, request = task
        values = request.values(read(request.start, request.stop), layout)
        channels = slice(request.first_channel, request.first_channel + request.n_channels)
        stored[rows, channels] = values[:, index[rows] % layout.stored.inner - request.inner].T

    def tasks() -> Iterator[tuple[slice, Request]]:
        for rows in clusters(index, layout, WIDE_GAP_BYTES):
            first, last = int(index[rows.start]), int(index[rows.stop - 1])
            for request in channel_requests(layout, first, last - first + 1, WIDE_GAP_BYTES):
                yield rows, request

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="ranges") as pool:
        _all(pool.map(place, tasks()))
    spectra = np.empty(stored.shape, layout.dtype)
    layout.stored.physical(stored, spectra)
    return spectra


def _all(results: Iterator[None]) -> None:
    """Wait for all results. Raises the first error; calls that have not begun by then are not made."""
    for _ in results:
        pass
