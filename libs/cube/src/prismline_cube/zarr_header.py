"""Cubes in Zarr arrays: reads the header from their attributes, and unpacks their values to a plain FITS file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from prismline_cube.errors import CubeError
from prismline_cube.plain_fits import write_values
from prismline_cube.reading import ReadRange
from prismline_runtime import cause_of

if TYPE_CHECKING:
    from prismline_cube.zarr_zip import ZarrCube


def open_zarr_file(file: BinaryIO, read: ReadRange) -> ZarrCube:
    """The cube in a Zarr array in a ZIP file. Raises CubeError if there is none, and passes on errors of reading."""
    from prismline_cube.zarr_zip import open_zarr  # noqa: PLC0415  the import takes a second, and few cubes need it

    try:
        return open_zarr(file, read)
    except ValueError as error:
        raise CubeError(f"it is not a Zarr array with a cube: {cause_of(error)}") from error


def zarr_header(cube: ZarrCube) -> fits.Header:
    """The FITS header of the values: the cards in the array's attributes, with the array's own type and axes."""
    header = fits.Header()
    header["SIMPLE"], header["BITPIX"], header["NAXIS"] = True, cube.bitpix, len(cube.axes)
    for number, length in enumerate(cube.axes, start=1):
        header[f"NAXIS{number}"] = length
    structure = {"SIMPLE", "XTENSION", "BITPIX", "EXTEND", "PCOUNT", "GCOUNT", "GROUPS", "END", "ZIMAGE"}
    for name, value in cube.cards.items():
        if name not in structure and not name.startswith("NAXIS"):
            try:
                header[name] = value
            except ValueError as error:
                raise CubeError(
                    f"its attribute {name} cannot be a card of a FITS header ({cause_of(error)})"
                ) from error
    return header


def unpack_zarr(path: Path, workdir: Path) -> Path:
    """Write the cube in the ZIP file `path` to a plain FITS file in `workdir`, part by part. Return the file's path.

    Raises CubeError if the cube cannot be read, and OSError if the disk fails or is full.
    """
    descriptor, name = tempfile.mkstemp(suffix=".fits", dir=workdir)
    with path.open("rb") as file, os.fdopen(descriptor, "wb") as plain:

        def read(start: int, stop: int) -> bytes:
            return os.pread(file.fileno(), stop - start, start)

        with path.open("rb") as members:
            cube = open_zarr_file(members, read)
        plain.write(zarr_header(cube).tostring().encode("ascii"))

        def values(part: tuple[slice, ...]) -> NDArray[np.generic]:
            try:
                return cube.values(*part)
            except ValueError as error:
                raise CubeError(f"{cause_of(error)}; upload the cube again") from error

        write_values(plain, cube.bitpix, tuple(reversed(cube.axes)), cube.description.chunks, values)
    return Path(name)
