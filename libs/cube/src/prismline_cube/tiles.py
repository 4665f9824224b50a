"""Maps as a pyramid of tiles: level 0 has the pixels of the cube, and each level half the pixels of the one below.

A tile is filled chunk by chunk, in any order, because a chunk holds consecutive spectra. So neither a whole map nor
more than one chunk's values have to be in memory. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

#: Pixels of a tile along each axis, at most.
TILE_PIXELS = 256


class Reduction(Enum):
    """How a pixel of a level above 0 follows from those of the pixels below it that have a value."""

    MEAN = "mean"
    MAXIMUM = "maximum"
    #: Flags: the bits that any of the pixels has.
    ANY_BIT = "any_bit"


@dataclass(frozen=True)
class Tile:
    """A tile: tile (`column`, `row`) of level `level` of maps of (ny, nx) pixels.

    Raises ValueError if the pyramid has no such tile.
    """

    nx: int
    ny: int
    level: int
    column: int
    row: int

    def __post_init__(self) -> None:
        if not 0 <= self.level < levels(self.nx, self.ny):
            raise ValueError(f"levels go from 0 to {levels(self.nx, self.ny) - 1}")
        side = TILE_PIXELS << self.level
        if not (0 <= self.column * side < self.nx and 0 <= self.row * side < self.ny):
            raise ValueError(f"level {self.level} has {-(-self.nx // side)} x {-(-self.ny // side)} tiles")

    @property
    def pixels(self) -> tuple[slice, slice]:
        """The rows and the columns of the map that the tile shows."""
        side = TILE_PIXELS << self.level
        top, left = self.row * side, self.column * side
        return slice(top, min(top + side, self.ny)), slice(left, min(left + side, self.nx))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tile itself; fewer than `TILE_PIXELS` at the right and the upper edge."""
        rows, columns = self.pixels
        scale = 1 << self.level
        return -(-(rows.stop - rows.start) // scale), -(-(columns.stop - columns.start) // scale)

    def touches(self, first: int, count: int) -> bool:
        """Whether any of the spectra `first` to `first + count - 1` may be in the tile. Only rows are compared."""
        rows, _ = self.pixels
        return bool(first < rows.stop * self.nx and first + count > rows.start * self.nx)


def levels(nx: int, ny: int) -> int:
    """How many levels the pyramid of a map has: the last one is a single tile."""
    tiles = -(-max(nx, ny, 1) // TILE_PIXELS)
    return 1 + (tiles - 1).bit_length()


class TileSums:
    """The values of a tile that are known so far."""

    def __init__(self, tile: Tile, reduction: Reduction) -> None:
        self._tile = tile
        self._reduction = reduction
        self._counts = np.zeros(tile.shape, np.int32)
        self._sums = np.zeros(tile.shape, np.float64)

    @property
    def n_bytes(self) -> int:
        """Memory that the arrays take."""
        return self._counts.nbytes + self._sums.nbytes

    def add(self, first: int, values: NDArray[np.floating]) -> None:
        """Add the spectra from `first` on, counted by y * nx + x. Those outside the tile are left out."""
        rows, columns = self._tile.pixels
        nx = self._tile.nx
        top, bottom = max(first // nx, rows.start), min(-(-(first + len(values)) // nx), rows.stop)
        if top >= bottom:
            return
        band = np.full((bottom - top, nx), np.nan)
        start, stop = max(first, top * nx), min(first + len(values), bottom * nx)
        band.reshape(-1)[start - top * nx : stop - top * nx] = values[start - first : stop - first]
        self._merge(band[:, columns], top - rows.start)

    def _merge(self, part: NDArray[np.float64], top: int) -> None:
        """Add complete rows of the tile, from row `top` of its pixels on."""
        scale = 1 << self._tile.level
        known = np.isfinite(part)
        part = np.where(known, part, 0.0)
        cuts = np.unique(np.maximum(np.arange(top // scale, -(-(top + len(part)) // scale)) * scale - top, 0))
        columns = np.arange(0, part.shape[1], scale)
        at = slice(top // scale, top // scale + len(cuts))
        self._counts[at] += np.add.reduceat(np.add.reduceat(known, cuts, 0, np.int32), columns, 1)
        if self._reduction is Reduction.MEAN:
            self._sums[at] += np.add.reduceat(np.add.reduceat(part, cuts, 0), columns, 1)
        elif self._reduction is Reduction.MAXIMUM:
            found = np.maximum.reduceat(np.maximum.reduceat(part, cuts, 0), columns, 1)
            self._sums[at] = np.maximum(self._sums[at], found)
        else:
            bits = part.astype(np.int64)
            found = np.bitwise_or.reduceat(np.bitwise_or.reduceat(bits, cuts, 0), columns, 1)
            self._sums[at] = self._sums[at].astype(np.int64) | found

    def values(self) -> NDArray[np.float32]:
        """The tile, (rows, columns); NaN where no value is known."""
        divisor = self._counts if self._reduction is Reduction.MEAN else np.ones_like(self._counts)
        found = np.full(self._tile.shape, np.nan)
        np.divide(self._sums, divisor, out=found, where=self._counts > 0)
        return found.astype(np.float32)
