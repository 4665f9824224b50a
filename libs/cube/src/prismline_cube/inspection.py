"""Looks into the file of a cube without unpacking its values: what its header says, and whether it is complete."""

from __future__ import annotations

import io
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

from astropy.io import fits

from prismline_cube.cube_file import MAGIC_BYTES, find_image, is_gzip, is_zip
from prismline_cube.errors import CubeError, TileCompressedError
from prismline_cube.fpack import image_header
from prismline_cube.gunzip import blocks_of
from prismline_cube.header import CubeHeader, describe
from prismline_cube.limits import MAX_HEADER_BYTES, most_expanded
from prismline_cube.zarr_header import open_zarr_file, zarr_header

#: Bytes of a gzip file that are decompressed to find its headers.
_HEADERS_BYTES = MAX_HEADER_BYTES + 2**20


def header_of(file: BinaryIO, n_bytes: int) -> fits.Header:
    """The header of the cube in a seekable file of `n_bytes` bytes, whatever its format. Reads only headers.

    Raises CubeError if there is none, and passes on errors of reading the file.
    """
    magic = file.read(MAGIC_BYTES)
    file.seek(0)
    if is_zip(magic):
        return zarr_header(open_zarr_file(file, partial(_read_range, file)))
    if not is_gzip(magic):
        return _header(file, n_bytes)
    begin = bytearray()
    try:
        for block in blocks_of(file):
            begin += block
            if len(begin) >= _HEADERS_BYTES:
                break
    except (EOFError, zlib.error):  # the headers may be complete
        pass
    return _header(io.BytesIO(begin), most_expanded(n_bytes))


def check_cube(path: Path) -> CubeHeader:
    """What the header of a local file says, if the splitter can read the file.

    Reads the whole file only if it is compressed with gzip. Raises CubeError, whose text is a sentence without its full
    stop, for a file that is not a complete cube. Damaged values inside of tiles or Zarr chunks are not found.
    """
    n_bytes = path.stat().st_size
    if n_bytes == 0:
        raise CubeError("the file is empty")
    with path.open("rb") as file:
        if is_gzip(file.read(MAGIC_BYTES)):
            file.seek(0)
            n_bytes, begin = _unpacked(file, n_bytes)
            header = _header(begin, n_bytes)
        else:
            file.seek(0)
            header = header_of(file, n_bytes)
    return describe(header, 0)


def is_compressed(path: Path) -> bool:
    """Whether the values of a local file have no place in it that chunks could refer to.

    This is so for gzip and for FITS with compressed tiles, but not for Zarr, whose chunks are read one by one. Raises
    CubeError if the file is not a cube.
    """
    with path.open("rb") as file:
        magic = file.read(MAGIC_BYTES)
        if is_gzip(magic):
            return True
        if is_zip(magic):
            return False
        file.seek(0)
        try:
            find_image(file, path.stat().st_size)
        except TileCompressedError:
            return True
        return False


def _header(file: BinaryIO, n_bytes: int) -> fits.Header:
    try:
        header, _ = find_image(file, n_bytes)
    except TileCompressedError:
        file.seek(0)
        return image_header(file, n_bytes)
    return header


def _unpacked(file: BinaryIO, n_bytes: int) -> tuple[int, BinaryIO]:
    """The length of the content of a gzip file, and its beginning."""
    begin, total = bytearray(), 0
    try:
        for block in blocks_of(file):
            total += len(block)
            if len(begin) < _HEADERS_BYTES:
                begin += block
            if total > most_expanded(n_bytes):
                raise CubeError(f"the file expands to more than {most_expanded(n_bytes):,} bytes")
    except (EOFError, zlib.error) as error:
        raise CubeError(f"the gzip compression of the file is damaged or cut short ({error})") from error
    return total, io.BytesIO(begin)


def _read_range(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)
