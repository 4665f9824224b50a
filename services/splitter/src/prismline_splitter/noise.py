"""Reads the noise that a submission gives: a map, or a value for each channel."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismline_cube.cube_file import Image, open_image
from prismline_cube.errors import CubeError
from prismline_cube.header import CubeHeader

#: Most bytes of a text file: so many for each channel, and for comments.
CHANNEL_TEXT_BYTES, COMMENT_BYTES = 64, 2**20


def read_noise(path: Path, cube: CubeHeader, workdir: Path) -> NDArray[np.float64]:
    """The noise of `cube` in its unit: shape (n_spectra, 1) from a FITS map (ny, nx), or (1, n_channels) from a FITS
    row or a text file with one number for each channel.

    Raises `CubeError` for a file that is neither. Values that are not positive numbers are kept: their spectra or
    channels count as blank. workdir: a tile-compressed map is unpacked there.
    """
    with path.open("rb") as file:
        is_fits = file.read(6) == b"SIMPLE"
    noise = _from_fits(open_image(path, workdir), cube) if is_fits else _from_text(path, cube)
    if not (noise > 0).any():
        raise CubeError("none of its values is a positive number; give the noise as a standard deviation")
    return np.ascontiguousarray(noise)


def _from_fits(image: Image, cube: CubeHeader) -> NDArray[np.float64]:
    """The values of a map or of a row, which are read if their number is the cube's."""
    shape = _squeezed(image.shape)
    if shape == (cube.n_channels,):
        return image.values()[None, :]
    if shape == _squeezed((cube.ny, cube.nx)):
        return image.values()[:, None]
    raise _wrong_shape(shape, cube)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length > 1)


def _from_text(path: Path, cube: CubeHeader) -> NDArray[np.float64]:
    if path.stat().st_size > CHANNEL_TEXT_BYTES * cube.n_channels + COMMENT_BYTES:
        raise CubeError("it is neither FITS nor a list of numbers of sensible length; give one number for each channel")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.loadtxt(path, dtype=np.float64, ndmin=1, delimiter=None)
    except ValueError as error:  # for example text that is not UTF-8
        raise CubeError("it is neither FITS nor a text file with one number on each line") from error
    if values.shape != (cube.n_channels,):
        raise _wrong_shape(values.shape, cube)
    return values[None, :]


def _wrong_shape(shape: tuple[int, ...], cube: CubeHeader) -> CubeError:
    return CubeError(
        f"its shape is {shape}, but the cube has (y, x) = {(cube.ny, cube.nx)} and {cube.n_channels} channels;"
        " give a map of the cube's pixels or one value for each channel"
    )
