"""How the values of a cube are divided into stored chunks, and which of them hold some spectra. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

#: The first bytes of a ZIP file, in which Zarr arrays come.
ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True)
class Grid:
    """An array's chunks as Zarr stores them. `axes` and `pieces` are lengths of array and chunk, fastest axis first."""

    axes: tuple[int, ...]
    pieces: tuple[int, ...]
    spectral_axis: int

    @cached_property
    def spatial(self) -> list[int]:
        """The numbers, from 0, of the spatial axes x and y; fewer if the cube has fewer."""
        return [n for n, length in enumerate(self.axes) if n != self.spectral_axis - 1 and length > 1][:2]

    @property
    def nx(self) -> int:
        """Spectra in a row."""
        return self.axes[self.spatial[0]] if self.spatial else 1

    @property
    def rows(self) -> int:
        """Rows of spectra that are stored together."""
        return min(self.pieces[self.spatial[1]], self.axes[self.spatial[1]]) if len(self.spatial) > 1 else 1

    @property
    def together(self) -> int:
        """Spectra that are stored together. If chunks of a run hold a multiple of them, no bytes are read twice."""
        return self.rows * self.nx

    def count(self, start: int, stop: int) -> int:
        """How many stored chunks hold the spectra `start` to `stop`."""
        channels = -(-self.axes[self.spectral_axis - 1] // self.pieces[self.spectral_axis - 1])
        bands = (stop - 1) // self.together - start // self.together + 1
        across = -(-self.nx // self.pieces[self.spatial[0]]) if self.spatial else 1
        return channels * bands * across
