"""Decides whether the chunks of a run get copies of their spectra or references to the cube. Pure.

Copying costs the splitter time in proportion to the cube, while nobody else can begin. References cost the workers a
request for each range, and with the spectral axis last a chunk has a range for each channel. Both read each byte once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prismline_cube import Grid, Layout, count_requests, slab_size

#: Cubes up to this many bytes are copied: it takes a fraction of a second.
SMALL_CUBE_BYTES = 16 * 2**20
#: Bytes a second that a splitter copies: download, transposition, upload. Measured on the embedded emulator with two
#: cores: 340 MB in 7.6 s (benchmarks/README.md).
COPY_BYTES_PER_SECOND = 45e6
#: Seconds that an object costs on its own, to write and to read.
OBJECT_SECONDS = 0.03


@dataclass(frozen=True)
class Cost:
    """What a run's input costs, in seconds, beside what both kinds of input have in common."""

    copy_seconds: float
    reference_seconds: float

    @property
    def cheaper(self) -> str:
        """`copy` or `reference`."""
        return "copy" if self.copy_seconds < self.reference_seconds else "reference"


def cost_of(
    layout: Layout, *, copied_chunk: int, referring_chunk: int, request_seconds: float, grid: Grid | None = None
) -> Cost:
    """The cost of both inputs of a cube, for chunks of so many spectra.

    request_seconds: time that a ranged request takes, divided by the number of requests at the same time. grid: the
    stored chunks of a Zarr array. One that holds spectra of several of ours is read and decoded by each.
    """
    cube_bytes = layout.n_spectra * layout.n_channels * layout.dtype.itemsize
    copies = cube_bytes / COPY_BYTES_PER_SECOND + -(-layout.n_spectra // copied_chunk) * OBJECT_SECONDS
    if grid is None:
        return Cost(copies, _count(layout, referring_chunk) * request_seconds)
    starts = range(0, layout.n_spectra, referring_chunk)
    n_read = sum(grid.count(start, min(start + referring_chunk, layout.n_spectra)) for start in starts)
    again = n_read / grid.count(0, layout.n_spectra) - 1
    return Cost(copies, n_read * request_seconds + again * cube_bytes / COPY_BYTES_PER_SECOND)


def _count(layout: Layout, size: int) -> float:
    """About how many requests all chunks make: as many as the first ones, each."""
    starts = range(0, layout.n_spectra, size)
    looked_at: Iterable[int] = starts[:3]
    most = slab_size(layout)
    counts = [count_requests(layout, start, min(start + size, layout.n_spectra), most) for start in looked_at]
    return sum(counts) / len(counts) * len(starts)
