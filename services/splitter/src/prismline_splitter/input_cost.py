"""Decides whether the chunks of a run get copies of their spectra or references to the cube. Pure.

Copying costs the splitter time in proportion to the cube, during which no worker can begin. References cost the workers
a request for each range, and with the spectral axis last a chunk has a range for each channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prismline_cube import Grid, Layout, count_requests, slab_size

#: Cubes up to this many bytes are copied: it takes a fraction of a second.
SMALL_CUBE_BYTES = 16 * 2**20
#: Bytes a second that a splitter copies: download, transposition, upload. Measured on the emulator with two
#: cores: 340 MB in 7.6 s (benchmarks/end_to_end.md).
COPY_BYTES_PER_SECOND = 45e6
#: Fixed cost of an object, in seconds, to write it and to read it.
OBJECT_SECONDS = 0.03


@dataclass(frozen=True)
class Cost:
    """What a run's input costs, in seconds, without the costs that both kinds of input have in common."""

    copy_seconds: float
    reference_seconds: float

    @property
    def cheaper(self) -> str:
        """`copy` or `reference`."""
        return "copy" if self.copy_seconds < self.reference_seconds else "reference"


def cost_of(
    layout: Layout, *, copied_chunk: int, referring_chunk: int, request_seconds: float, grid: Grid | None = None
) -> Cost:
    """The cost of both kinds of input of a cube.

    copied_chunk, referring_chunk: spectra in a chunk of each kind. request_seconds: time that a ranged request takes,
    divided by the number of concurrent requests. grid: the stored chunks of a Zarr array. If several chunks of the run
    share a stored chunk, each of their workers reads and decodes it.
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
    """About how many requests all chunks make, estimated from the first three."""
    starts = range(0, layout.n_spectra, size)
    looked_at: Iterable[int] = starts[:3]
    most = slab_size(layout)
    counts = [count_requests(layout, start, min(start + size, layout.n_spectra), most) for start in looked_at]
    return sum(counts) / len(counts) * len(starts)
