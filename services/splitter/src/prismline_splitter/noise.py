"""Reads the noise that a submission gives: a map, or a value for each channel."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

from prismline_splitter.cube import CubeHeader
from prismline_splitter.cube_errors import CubeError

#: Largest text file with one value per channel, in bytes: 64 for each of a million channels.
MAX_TEXT_BYTES = 64 * 2**20


def read_noise(path: Path, cube: CubeHeader) -> NDArray[np.float64]:
    """The noise of `cube` in its unit: shape (n_spectra, 1) from a FITS map (ny, nx), or (1, n_channels) from a FITS
    row or a text file with one number for each channel.

    Raises `CubeError` for a file that is neither. Values that are not positive numbers are kept: their spectra or
    channels count as blank.
    """
    with path.open("rb") as file:
        is_fits = file.read(6) == b"SIMPLE"
    values = _from_fits(path) if is_fits else _from_text(path)
    if values.shape == (cube.n_channels,):
        noise = values[None, :]
    elif is_fits and values.size == cube.n_spectra and _squeezed(values.shape) == _squeezed((cube.ny, cube.nx)):
        noise = values.reshape(-1, 1)
    else:
        raise CubeError(
            f"its shape is {values.shape}, but the cube has (y, x) = {(cube.ny, cube.nx)} and {cube.n_channels}"
            " channels; give a map of the cube's pixels or one value for each channel"
        )
    if not (noise > 0).any():
        raise CubeError("none of its values is a positive number; give the noise as a standard deviation")
    return np.ascontiguousarray(noise)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length > 1)


def _from_fits(path: Path) -> NDArray[np.float64]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with fits.open(path, memmap=False) as units:
                data = next((unit.data for unit in units if unit.is_image and unit.data is not None), None)
    except Exception as error:  # astropy does not document what it raises for a damaged file
        raise CubeError("it is damaged; upload it again") from error
    if data is None:
        raise CubeError("it holds no image; give a FITS map")
    return np.asarray(data, dtype=np.float64).squeeze()


def _from_text(path: Path) -> NDArray[np.float64]:
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise CubeError("it is neither FITS nor a list of numbers of sensible length")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.loadtxt(path, dtype=np.float64, ndmin=1, delimiter=None)
    except (ValueError, UnicodeDecodeError) as error:
        raise CubeError("it is neither FITS nor a text file with one number on each line") from error
