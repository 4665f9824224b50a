"""How the values of a cube are stored in an object, and what they mean. Pure.

A FITS file stores an image as a C-ordered array whose axes are the header's in reverse. For every position of the
spectral axis, that is an array (outer, channel, inner): `outer` and `inner` are the products of the axes slower and
faster than the spectral one. Spectrum y * nx + x is the one at (outer, inner) = divmod(y * nx + x, inner). So one way
of reading serves every axis order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.references import CubeReference

#: BITPIX -> NumPy type of the values in the file, which FITS stores as big-endian.
STORED_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}

#: BITPIX of the values that float32 holds without loss; all others become float64.
FLOAT32_BITPIX = (8, 16, -32)


def spectra_type(bitpix: int) -> np.dtype[Any]:
    """The type of the spectra of a cube: float64 for 32- and 64-bit integers and float64, float32 for the rest."""
    return np.dtype(np.float32 if bitpix in FLOAT32_BITPIX else np.float64)


#: Channels copied at a time where the channels of a spectrum lie far apart in memory. The cache then still holds the
#: lines that the next spectrum needs, so the copy is four times as fast as a copy of all channels at once.
CHANNELS_AT_A_TIME = 8


@dataclass(frozen=True)
class StoredValues:
    """How the file stores the values: from byte `offset` on, as an array (outer, channel, `inner`) of `dtype`."""

    offset: int
    inner: int
    dtype: np.dtype[Any]
    bscale: float
    bzero: float
    blank: int | None

    def physical(self, raw: NDArray[Any], out: NDArray[np.floating[Any]]) -> None:
        """Write the physical values of `raw` into `out`, of equal shape (n, n_channels).

        BLANK and infinities become NaN.
        """
        step = raw.shape[1] if raw.strides[1] == raw.itemsize else CHANNELS_AT_A_TIME
        for first in range(0, raw.shape[1], step):
            channels = slice(first, first + step)
            self._convert(raw[:, channels], out[:, channels])

    def _convert(self, raw: NDArray[Any], out: NDArray[np.floating[Any]]) -> None:
        with np.errstate(all="ignore"):
            if (self.bscale, self.bzero) == (1.0, 0.0):
                out[...] = raw
            else:
                out[...] = np.multiply(raw, self.bscale, dtype=np.float64) + self.bzero
        if self.blank is not None:
            out[raw == self.blank] = np.nan
        out[np.isinf(out)] = np.nan


@dataclass(frozen=True)
class Layout:
    """The layout of a whole cube: its stored values, how many channels and spectra there are, and their type."""

    stored: StoredValues
    n_channels: int
    n_spectra: int
    nx: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, reference: CubeReference) -> Layout:
        """The layout that a reference describes. Raises ValueError, whose text is a clause, if it is impossible."""
        if reference.bitpix not in STORED_TYPES:
            raise ValueError(f"BITPIX {reference.bitpix} is not one of {', '.join(map(str, STORED_TYPES))}")
        if reference.spectral_axis > len(reference.axes):
            raise ValueError(f"axis {reference.spectral_axis} is not one of its {len(reference.axes)} axes")
        if reference.first + reference.count > reference.n_spectra:
            raise ValueError(
                f"it has {reference.n_spectra} spectra, but the last is {reference.first + reference.count - 1}"
            )
        stored = StoredValues(
            offset=reference.offset,
            inner=math.prod(reference.axes[: reference.spectral_axis - 1]),
            dtype=np.dtype(STORED_TYPES[reference.bitpix]),
            bscale=reference.bscale,
            bzero=reference.bzero,
            blank=reference.blank,
        )
        return cls(stored, reference.n_channels, reference.n_spectra, reference.nx, spectra_type(reference.bitpix))

    def pixels(self, index: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The pixels x and y (from 0) of spectra."""
        y, x = np.divmod(index, self.nx)
        return x.astype(np.int32), y.astype(np.int32)
