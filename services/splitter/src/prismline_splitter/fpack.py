"""Unpacks FITS images that are compressed tile by tile, as fpack does, in bounded memory.

Convention: FITS standard 4.0, section 10. A tile can only be decompressed in full; fpack's default tile is one row.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from pathlib import Path

from astropy.io import fits

from prismline_splitter.cube_errors import CubeError
from prismline_splitter.plain_fits import write_values

#: Largest tile, in bytes.
MAX_TILE_BYTES = 256 * 2**20
#: The values may take this many bytes, or `MAX_EXPANSION` times the size of the file if that is more.
ALWAYS_EXPANDED_BYTES, MAX_EXPANSION = 2**30, 100


def unpack_tiles(path: Path, workdir: Path) -> Path:
    """Write the first tile-compressed image of a FITS file into a new, plain FITS file in `workdir`.

    The values are written as they are stored, before BSCALE and BZERO. Raises CubeError if they cannot be read or
    expand too far, and OSError if the disk fails or is full.
    """
    descriptor, name = tempfile.mkstemp(suffix=".fits", dir=workdir)
    with os.fdopen(descriptor, "wb") as plain, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with fits.open(path, do_not_scale_image_data=True, memmap=True) as units:
                packed = next(unit for unit in units if isinstance(unit, fits.CompImageHDU))
                _check(packed, path.stat().st_size)
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


def _check(packed: fits.CompImageHDU, file_bytes: int) -> None:
    itemsize = abs(packed.header["BITPIX"]) // 8
    n_bytes = math.prod(packed.shape) * itemsize
    if n_bytes > max(ALWAYS_EXPANDED_BYTES, MAX_EXPANSION * file_bytes):
        raise CubeError(f"the file expands to {n_bytes:,} bytes; upload the cube uncompressed")
    if (tile := math.prod(packed.tile_shape) * itemsize) > MAX_TILE_BYTES:
        raise CubeError(f"a tile of the compressed cube has {tile:,} bytes; compress it with smaller tiles")


def _damaged(error: Exception) -> CubeError:
    return CubeError(f"the tile compression of the file is damaged ({error}); compress the cube and upload it again")
