"""Unpacks FITS images that are compressed tile by tile, as fpack does, in bounded memory.

Convention: FITS standard 4.0, section 10. A tile can only be decompressed in full; fpack's default tile is one row.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from prismline_cube.errors import CubeError
from prismline_cube.gunzip import GZIP_WINDOW
from prismline_cube.layout import STORED_TYPES
from prismline_cube.limits import MAX_AXES, MAX_AXIS_LENGTH, MAX_TILE_BYTES, most_expanded
from prismline_cube.plain_fits import write_values
from prismline_runtime import cause_of

#: Compressions of tiles that are read. HCOMPRESS_1 is not: a damaged tile corrupts the memory of astropy's decoder.
#: PLIO_1 is not: it is for masks of integers.
COMPRESSIONS = ("GZIP_1", "GZIP_2", "RICE_1", "RICE_ONE", "NOCOMPRESS")
#: Most columns of a table in FITS. astropy makes an object for each that TFIELDS claims.
MAX_COLUMNS = 999
#: Columns of a table that may hold a tile.
TILE_COLUMNS = ("COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")
#: Parameters of the compressions, and the values that are read: astropy passes them to code in C.
PARAMETERS = {"BLOCKSIZE": (16, 32), "BYTEPIX": (1, 2, 4, 8)}
#: Largest seed of the dithering of quantized values, which selects one of so many random numbers.
MAX_DITHER_SEED = 10_000
#: Tiles that an image may have, however small they are. More of them hold at least `LEAST_TILE_BYTES` on average: to
#: decompress a tile takes some 50 microseconds. fpack makes a tile of each row.
ALWAYS_TILES, LEAST_TILE_BYTES = 20_000, 32
#: A compressed tile may be longer than its values by a sixteenth and this many bytes.
TILE_OVERHEAD_BYTES = 2**10
#: A compressed tile of this many bytes decodes to at most 64 MiB, because deflate reaches 1,032 times. The size of a
#: longer one is checked first.
SAFE_DEFLATED_BYTES = 64 * 2**10


def unpack_tiles(path: Path, workdir: Path) -> Path:
    """Write the first tile-compressed image of a FITS file into a new, plain FITS file in `workdir`.

    The values are written as they are stored, before BSCALE and BZERO. Raises CubeError if they cannot be read or
    expand too far, and OSError if the disk fails or is full.
    """
    descriptor, name = tempfile.mkstemp(suffix=".fits", dir=workdir)
    with os.fdopen(descriptor, "wb") as plain, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with fits.open(path, memmap=True, disable_image_compression=True) as units:
                table = next(unit for unit in units if unit.header.get("ZIMAGE"))
                _check_header(table.header, path.stat().st_size)
                _check_tiles(table, path)
            with fits.open(path, do_not_scale_image_data=True, memmap=True) as units:
                packed = next(unit for unit in units if isinstance(unit, fits.CompImageHDU))
                plain.write(fits.PrimaryHDU().header.tostring().encode("ascii"))
                plain.write(packed.header.tostring().encode("ascii"))
                write_values(
                    plain, packed.header["BITPIX"], packed.shape, packed.tile_shape, packed.section.__getitem__
                )
        except (CubeError, MemoryError):
            raise
        except OSError as error:
            if error.errno is not None:  # the disk failed; astropy's own OSErrors, for damaged files, have no errno
                raise
            raise _damaged(error) from error
        except Exception as error:  # astropy does not document what it raises for damaged files
            raise _damaged(error) from error
    return Path(name)


def image_header(file: BinaryIO, file_bytes: int) -> fits.Header:
    """The header of the first tile-compressed image in a file, as that of an uncompressed image. Reads only headers.

    Raises CubeError if its values cannot be read or expand too far.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            units = fits.open(file, memmap=False, disable_image_compression=True)
            _check_header(next(unit for unit in units if unit.header.get("ZIMAGE")).header, file_bytes)
            file.seek(0)
            packed = next(unit for unit in fits.open(file, memmap=False) if isinstance(unit, fits.CompImageHDU))
            return packed.header.copy()
        except (CubeError, MemoryError):
            raise
        except Exception as error:  # astropy does not document what it raises for damaged files
            raise _damaged(error) from error


def _check_header(header: fits.Header, file_bytes: int) -> None:
    """Raise CubeError if the image is compressed in a way that is not read, or is too large."""
    compression = header.get("ZCMPTYPE")
    if compression not in COMPRESSIONS:
        raise CubeError(
            f"its tiles are compressed with {compression!s:.20}, and not with one of {', '.join(COMPRESSIONS)};"
            " compress it with one of them"
        )
    for card, name in header["ZNAME*"].items():
        if name in PARAMETERS and (value := header[f"ZVAL{card[5:]}"]) not in PARAMETERS[name]:
            raise CubeError(f"its tiles have the {name} {value!s:.20}, which cannot be read; compress it again")
    if "ZDITHER0" in header:
        _integer(header, "ZDITHER0", range(MAX_DITHER_SEED + 1))
    _integer(header, "TFIELDS", range(1, MAX_COLUMNS + 1))
    _integer(header, "ZNAXIS", range(1, MAX_AXES + 1))
    if _integer(header, "ZBITPIX", range(-64, 65)) not in STORED_TYPES:
        raise CubeError(f"its ZBITPIX is not one of {', '.join(map(str, STORED_TYPES))}; compress it again")
    shape, tile = _lengths(header, "ZNAXIS"), _tile(header)
    itemsize = abs(header["ZBITPIX"]) // 8
    n_bytes, tile_bytes = math.prod(shape) * itemsize, math.prod(tile) * itemsize
    if n_bytes > most_expanded(file_bytes):
        raise CubeError(f"the file expands to {n_bytes:,} bytes; upload the cube uncompressed")
    if tile_bytes > MAX_TILE_BYTES:
        raise CubeError(f"a tile of the compressed cube has {tile_bytes:,} bytes; compress it with smaller tiles")
    n_tiles = math.prod(-(-length // part) for length, part in zip(shape, tile, strict=True))
    if n_tiles > max(ALWAYS_TILES, n_bytes // LEAST_TILE_BYTES):
        raise CubeError(f"the cube has {n_tiles:,} tiles; compress it with larger ones")
    if header["NAXIS2"] != n_tiles:
        raise CubeError(f"the cube has {n_tiles:,} tiles, but {header['NAXIS2']:,} are stored; compress it again")
    if header["PCOUNT"] > n_tiles * _longest(tile_bytes):
        raise CubeError(
            f"its compressed tiles have {header['PCOUNT']:,} bytes, more than its values; compress it again"
        )


def _lengths(header: fits.Header, name: str) -> list[int]:
    """The lengths of the axes of the image, or of a tile: the cards `name`1, `name`2, ..."""
    return [_integer(header, f"{name}{n}", range(1, MAX_AXIS_LENGTH + 1)) for n in range(1, header["ZNAXIS"] + 1)]


def _integer(header: fits.Header, name: str, allowed: range) -> int:
    """The value of a card. Raises CubeError if it is not one of `allowed`."""
    value = header.get(name)
    if type(value) is not int or value not in allowed:
        raise CubeError(
            f"its {name} is {value!s:.20}, and not an integer from {allowed[0]:,} to {allowed[-1]:,}; compress it again"
        )
    return value


def _tile(header: fits.Header) -> list[int]:
    """The lengths of a tile. Without cards for them, a tile is a row."""
    if "ZTILE1" in header:
        return _lengths(header, "ZTILE")
    return [_lengths(header, "ZNAXIS")[0], *[1] * (header["ZNAXIS"] - 1)]


def _longest(tile_bytes: int) -> int:
    """Most bytes of a compressed tile whose values take `tile_bytes`."""
    return tile_bytes + tile_bytes // 16 + TILE_OVERHEAD_BYTES


def _check_tiles(table: Any, path: Path) -> None:
    """Raise CubeError if the bytes of a tile lie outside the file's heap, or are more than the tile takes."""
    header = table.header
    tile_bytes = math.prod(_tile(header)) * max(4, abs(header["ZBITPIX"]) // 8)  # quantized values are integers
    rows: NDArray[np.void] = np.asarray(table.data)
    for name in TILE_COLUMNS:
        if name not in (rows.dtype.names or ()):
            continue
        lengths, offsets = (rows[name][:, n].astype(np.int64) for n in (0, 1))
        n_bytes = lengths * _itemsize(table.columns[name].format)
        if (n_bytes > _longest(tile_bytes)).any():
            raise CubeError("a compressed tile is longer than its values; compress the cube and upload it again")
        if (n_bytes < 0).any() or (offsets < 0).any() or (offsets + n_bytes > header["PCOUNT"]).any():
            raise CubeError(
                "a tile of the compressed cube lies outside the file; compress the cube and upload it again"
            )
        if name == "UNCOMPRESSED_DATA" or (name == "COMPRESSED_DATA" and not header["ZCMPTYPE"].startswith("GZIP")):
            continue
        heap = table.fileinfo()["datLoc"] + header.get("THEAP", header["NAXIS1"] * header["NAXIS2"])
        large = n_bytes > SAFE_DEFLATED_BYTES
        with path.open("rb") as file:
            for offset, length in zip(offsets[large], n_bytes[large], strict=True):
                file.seek(heap + int(offset))
                if _expands(file.read(int(length)), 2 * tile_bytes):
                    raise CubeError("a tile of the compressed cube expands too far; upload the cube uncompressed")


def _itemsize(form: str) -> int:
    """Bytes of an element of a column of arrays of variable length, by its format: 1PB(100), QI."""
    return {"B": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8}[form.lstrip("0123456789")[1]]


def _expands(packed: bytes, most: int) -> bool:
    """Whether gzip data decode to more than `most` bytes, or to several members."""
    stream = zlib.decompressobj(GZIP_WINDOW)
    return len(stream.decompress(packed, most + 1)) > most or bool(stream.unused_data)


def _damaged(error: Exception) -> CubeError:
    return CubeError(
        f"the tile compression of the file is damaged ({cause_of(error)}); compress the cube and upload it again"
    )
