"""Spectral cubes in files: finds the header, and reads the spectra of a file on the local disk in bounded memory.

A slab is read into memory rather than mapped: the kernel maps at least a page, and usually sixteen, for every
channel that a slab touches, so the resident memory of a mapped slab grows with the number of channels and not
with the slab's size.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from prismline_cube.cards import count_of, text_of, unusable, value_of
from prismline_cube.errors import NOT_FITS, CubeError, TileCompressedError
from prismline_cube.fpack import unpack_tiles
from prismline_cube.grid import ZIP_MAGIC
from prismline_cube.gunzip import decompress
from prismline_cube.header import CubeHeader, describe, layout_of, stored_values
from prismline_cube.layout import StoredValues, spectra_type
from prismline_cube.limits import MAX_HDUS, MAX_HEADER_BYTES
from prismline_cube.plain_fits import RECORD_BYTES
from prismline_cube.reading import ReadRange
from prismline_cube.zarr_header import open_zarr_file, unpack_zarr, zarr_header

#: Bytes of one slab, counted as float64, the widest type of its values in memory. Reading takes up to three
#: times this, well under 512 MB; a smaller slab means more and shorter reads (one for each channel).
SLAB_BYTES = 64 * 2**20

#: Bytes that hold nearly every header (800 cards).
HEADER_BYTES = 64 * 2**10

GZIP_MAGIC = b"\x1f\x8b"
#: No file system has files of this many bytes.
LONGEST_FILE = 2**63
#: Number of bytes at the start of a file that identify its format.
MAGIC_BYTES = 4


@dataclass(frozen=True, eq=False)
class SpectraBlock:
    """Consecutive spectra from spectrum index `start` on.

    `spectra` has shape (n, n_channels), C-contiguous and native-endian, NaN where the cube has no value; `x`
    and `y` are int32 of shape (n,), pixel indices from 0.
    """

    start: int
    spectra: NDArray[np.floating[Any]]
    x: NDArray[np.int32]
    y: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Cube(CubeHeader):
    """A spectral cube in the uncompressed FITS file `path`."""

    path: Path

    def blocks(self, size: int, start: int = 0, *, cut_at: int | None = None) -> Iterator[SpectraBlock]:
        """The spectra from index `start` to the last, at most `size` at a time.

        `cut_at`: no block crosses a multiple of this index. Memory depends on SLAB_BYTES and the size of a block,
        not on the size of the cube. Raises ValueError for a size or cut below 1 or a start outside 0 to n_spectra,
        CubeError if the file has become shorter since it was opened, and OSError if the disk fails.
        """
        if size < 1:
            raise ValueError(f"size is {size}; it must be at least 1")
        if cut_at is not None and cut_at < 1:
            raise ValueError(f"cut_at is {cut_at}; it must be at least 1")
        if not 0 <= start <= self.n_spectra:
            raise ValueError(f"start is {start}; it must be between 0 and {self.n_spectra}")
        slab_start, slab = start, np.empty((0, self.n_channels), self.stored.dtype)
        with self.path.open("rb", buffering=0) as file:
            begin = start
            while begin < self.n_spectra:
                cut = self.n_spectra if cut_at is None else (begin // cut_at + 1) * cut_at
                index = np.arange(begin, min(begin + size, cut, self.n_spectra))
                spectra = np.empty((len(index), self.n_channels), self.dtype)
                filled = 0
                while filled < len(spectra):
                    skip = begin + filled - slab_start
                    if skip >= len(slab):
                        del slab
                        slab_start, slab = self._read_slab(file, begin + filled)
                        continue
                    piece = slab[skip : skip + len(spectra) - filled]
                    self.stored.physical(piece, spectra[filled : filled + len(piece)])
                    filled += len(piece)
                y, x = np.divmod(index, self.nx)
                yield SpectraBlock(begin, spectra, x.astype(np.int32), y.astype(np.int32))
                begin += len(index)

    def gather(self, index: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The spectra (n, n_channels) with the indices `index`, which ascend. Neighbours are read together."""
        parts = np.split(index, np.flatnonzero(np.diff(index) != 1) + 1)
        blocks = (next(self.blocks(len(part), int(part[0]))).spectra for part in parts if len(part))
        return np.concatenate([np.empty((0, self.n_channels), self.dtype), *blocks])

    def _read_slab(self, file: io.FileIO, index: int) -> tuple[int, NDArray[Any]]:
        """The slab that contains spectrum `index`: its first index, and its stored values (n, n_channels)."""
        stored = self.stored
        capacity = max(1, SLAB_BYTES // (self.n_channels * np.dtype(np.float64).itemsize))
        outer, inner = divmod(index, stored.inner)
        if capacity >= stored.inner:  # whole rows of the outer axis: one contiguous piece of the file
            rows = min(capacity // stored.inner, self.n_spectra // stored.inner - outer)
            first, width = outer * stored.inner, stored.inner
            slab = np.empty((rows, self.n_channels, width), stored.dtype)
            _read_exactly(file, slab, stored.offset + first * self.n_channels * stored.dtype.itemsize)
        else:  # a part of one row: a piece of the file for each channel
            first, width = index, min(capacity, stored.inner - inner)
            slab = np.empty((1, self.n_channels, width), stored.dtype)
            for channel in range(self.n_channels):
                position = (outer * self.n_channels + channel) * stored.inner + inner
                _read_exactly(file, slab[0, channel], stored.offset + position * stored.dtype.itemsize)
        return first, slab.transpose(0, 2, 1).reshape(-1, self.n_channels)


@dataclass(frozen=True)
class Image:
    """An image in the uncompressed FITS file `path`. `shape` has the lengths of its axes, the slowest first."""

    path: Path
    bitpix: int
    stored: StoredValues
    shape: tuple[int, ...]

    def values(self) -> NDArray[np.float64]:
        """All values in the order of the file, NaN where there is none. The caller checks `shape` first."""
        raw = np.empty((1, math.prod(self.shape)), self.stored.dtype)
        with self.path.open("rb", buffering=0) as file:
            _read_exactly(file, raw, self.stored.offset)
        values = np.empty(raw.shape, spectra_type(self.bitpix))
        self.stored.physical(raw, values)
        found: NDArray[np.float64] = values[0].astype(np.float64)
        return found


def is_gzip(magic: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed with gzip."""
    return magic.startswith(GZIP_MAGIC)


def is_zip(magic: bytes) -> bool:
    """Whether a file that begins with these bytes is a ZIP file, which should hold a Zarr array."""
    return magic.startswith(ZIP_MAGIC)


def read_header(file: BinaryIO, file_bytes: int) -> CubeHeader:
    """The header of the spectral cube in an uncompressed FITS file of `file_bytes` bytes. Reads only headers.

    Raises CubeError if the file is not a complete spectral cube, and passes on errors of reading the file.
    """
    return describe(*find_image(file, file_bytes))


def read_zarr_header(file: BinaryIO, read: ReadRange) -> CubeHeader:
    """The header of the spectral cube in a Zarr array in a ZIP file. Reads only metadata.

    Raises CubeError if the file is not a spectral cube, and passes on errors of reading it.
    """
    cube = open_zarr_file(file, read)
    found = describe(zarr_header(cube), 0)
    return replace(found, grid=cube.grid(found.spectral_axis))


def open_cube(path: Path, workdir: Path) -> Cube:
    """Find the spectral cube in a FITS file: its first HDU with image data.

    A Zarr array, or a file that is compressed with gzip (whatever its name) or tile by tile, is first unpacked to a
    plain FITS file in `workdir`, which the cube then reads. The caller removes `workdir` when it no longer needs the
    cube. Raises CubeError if the file is not a complete spectral cube, and OSError if the disk fails or is full.
    """
    if not path.is_file():
        raise CubeError("there is no such file; check the cube's key and upload it again")
    with path.open("rb") as file:
        magic = file.read(MAGIC_BYTES)
    if is_zip(magic):
        path = unpack_zarr(path, workdir)
    elif is_gzip(magic):
        path = decompress(path, workdir)
    if path.stat().st_size == 0:
        raise CubeError("the file is empty; upload the cube again")
    path, header, offset = _plain_image(path, workdir)
    return Cube(path=path, **vars(describe(header, offset)))


def open_image(path: Path, workdir: Path) -> Image:
    """The first image with data in a FITS file, which may be tile-compressed. Raises as `open_cube` does."""
    path, header, offset = _plain_image(path, workdir)
    bitpix, axes = layout_of(header)
    return Image(path, bitpix, stored_values(header, offset, inner=1), tuple(reversed(axes)))


def _plain_image(path: Path, workdir: Path) -> tuple[Path, fits.Header, int]:
    """The uncompressed file, the header of its first image with data, and the offset of the data."""
    try:
        return path, *_find_image_in(path)
    except TileCompressedError:
        path = unpack_tiles(path, workdir)
        return path, *_find_image_in(path)


def _find_image_in(path: Path) -> tuple[fits.Header, int]:
    with path.open("rb") as file:
        return find_image(file, path.stat().st_size)


def is_blank(spectra: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """For spectra of shape (n, n_channels), whether each has no value at all: shape (n,)."""
    blank: NDArray[np.bool_] = np.isnan(spectra).all(axis=1)
    return blank


def _read_exactly(file: io.FileIO, array: NDArray[Any], position: int) -> None:
    """Fill the C-contiguous `array` from byte `position` of the file on."""
    file.seek(position)
    if file.readinto(array.data) != array.nbytes:
        raise CubeError("the file became shorter while it was read; submit it again")


def find_image(file: BinaryIO, file_bytes: int) -> tuple[fits.Header, int]:
    """The header of the first HDU with image data, and the offset of its data. Raises CubeError if data are cut off."""
    if file.read(len(b"SIMPLE")) != b"SIMPLE":
        raise CubeError(NOT_FITS)
    start, header_bytes = 0, 0
    for _ in range(MAX_HDUS):
        if start >= file_bytes:
            raise CubeError("the file holds no image data; submit a FITS file with a spectral cube in it")
        header, offset = _read_header(file, start, MAX_HEADER_BYTES - header_bytes)
        header_bytes += offset - start
        bitpix, axes = layout_of(header)
        if value_of(header, "GROUPS"):
            raise CubeError("the data are FITS random groups and not an image; submit an image cube")
        groups, parameters = count_of(header, "GCOUNT", 1), count_of(header, "PCOUNT", 0)
        values = groups * (parameters + math.prod(axes)) if axes else 0
        stop = offset + values * abs(bitpix) // 8
        if stop > file_bytes:
            promised = f"{stop} bytes" if stop < LONGEST_FILE else "more bytes than a file can have"
            raise CubeError(
                f"the file is truncated: its header promises {promised} and it holds {file_bytes}; "
                "upload the file again"
            )
        if value_of(header, "ZIMAGE"):
            raise TileCompressedError("the cube is tile-compressed; its values have to be unpacked")
        if axes and text_of(header, "XTENSION") in ("", "IMAGE"):
            _check_groups(groups, parameters)
            return header, offset
        start = -(-stop // RECORD_BYTES) * RECORD_BYTES
    raise CubeError(
        f"the first {MAX_HDUS} HDUs of the file hold no image data; submit a FITS file that begins with the cube"
    )


def _check_groups(groups: int, parameters: int) -> None:
    """Raise CubeError if an image has groups or parameters. With GCOUNT = 0 it would promise no data at all."""
    if groups != 1:
        raise unusable("GCOUNT", f"is {groups} and must be 1 in an image")
    if parameters != 0:
        raise unusable("PCOUNT", f"is {parameters} and must be 0 in an image")


def _read_header(file: BinaryIO, start: int, most: int) -> tuple[fits.Header, int]:
    """The header that begins at byte `start`, and the offset of the data after it. most: bytes that it may have."""
    for size in (min(HEADER_BYTES, most), most):  # few headers need the longer read
        file.seek(start)
        window = io.BytesIO(file.read(size))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                header = fits.Header.fromfile(window)
        except MemoryError:
            raise
        except Exception as error:  # astropy does not document what it raises for a damaged header
            failed = error
        else:
            return header, start + window.tell()
    raise CubeError(f"the header at byte {start} is damaged or endless; upload the file again") from failed
