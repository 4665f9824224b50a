"""Opens the cube that a reference names, in any layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.references import FITS_LAYOUT, ZARR_LAYOUT, CubeReference
from prismline_cube.layout import Layout
from prismline_cube.reading import ReadRange, Slab, gather, slabs

#: Bytes that are read at a time of a ZIP file's list of members.
PART_BYTES = 64 * 2**10


class UnknownLayoutError(ValueError):
    """The layout of a newer release."""


class Objects(Protocol):
    """The bucket of a cube. Its methods raise the bucket's own errors, also if the object now has another version."""

    def size(self, key: str, *, etag: str) -> int:
        """Length of one version of an object, in bytes."""
        ...

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> BinaryIO:
        """One version of an object as a seekable file of `size` bytes."""
        ...

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        """The bytes `start` to `stop` (exclusive) of one version of an object."""
        ...


class CubeReader(Protocol):
    """Reads spectra of a cube. Raises the errors of the bucket, and ValueError if the values are damaged."""

    layout: Layout

    def slabs(self, start: int, stop: int) -> Iterator[Slab]:
        """The spectra `start` to `stop` in slabs, in bounded memory."""
        ...

    def gather(self, index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The spectra (n, n_channels) with the indices `index`, which ascend."""
        ...


class FitsReader:
    """Spectra of an uncompressed FITS image."""

    def __init__(self, layout: Layout, read: ReadRange) -> None:
        self.layout = layout
        self._read = read

    def slabs(self, start: int, stop: int) -> Iterator[Slab]:
        """The spectra `start` to `stop` in slabs."""
        return slabs(self.layout, start, stop, self._read)

    def gather(self, index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The spectra (n, n_channels) with the indices `index`, which ascend."""
        return gather(self.layout, index, self._read)


def reader_of(reference: CubeReference, objects: Objects) -> CubeReader:
    """The reader of the cube. Raises ValueError, whose text is a clause, if the reference or the cube is wrong.

    Raises UnknownLayoutError for the layout of a newer release. objects: the bucket of the cube.
    """
    if reference.layout not in {FITS_LAYOUT, ZARR_LAYOUT}:
        raise UnknownLayoutError(f"it has the layout {reference.layout}, which this release cannot read")
    layout, key, etag = Layout.of(reference), reference.key, reference.etag
    read = partial(objects.read_range, key, etag=etag)
    if reference.layout == FITS_LAYOUT:
        return FitsReader(layout, read)
    from prismline_cube.zarr_zip import ZarrReader, open_zarr  # noqa: PLC0415  takes a second, and few cubes need it

    size = objects.size(key, etag=etag)
    with objects.open_version(key, etag=etag, size=size, part_bytes=PART_BYTES) as file:
        return ZarrReader(open_zarr(file, read), layout, reference.spectral_axis)
