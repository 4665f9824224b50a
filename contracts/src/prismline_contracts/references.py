"""The input of a chunk whose spectra stay where they are: in the cube, which the worker reads by ranges."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from prismline_contracts.base import Contract, Count, Key, Name

#: `layout` of an uncompressed FITS image.
FITS_LAYOUT = "fits"
#: `layout` of a Zarr v3 array in a ZIP file. Its attributes are the cards of a FITS header, and its axes are `axes` in
#: reverse. `offset` has no meaning.
ZARR_LAYOUT = "zarr"

Positive = Annotated[int, Field(ge=1)]


class NoiseReference(Contract):
    """The noise of a run's spectra: consecutive little-endian float64 in an object of the run's bucket."""

    key: Key
    #: Whether there is a value for each spectrum of the cube, or else one for each channel.
    per_spectrum: bool


class CubeReference(Contract):
    """Spectra `first` to `first + count - 1` of the cube in one version of an object.

    The values are big-endian and lie from byte `offset` on as a C-ordered array whose shape is `axes` in reverse.
    Spectrum `y * nx + x` is the one at pixel (x, y). A reader refuses a `layout` that it does not know.
    """

    layout: Name = FITS_LAYOUT
    #: Bucket of the object. Absent: that of the run.
    bucket: Name | None = None
    key: Key
    #: The version of the object. A reader requests ranges with `If-Match`.
    etag: Name
    offset: Count
    #: Type of the values, as in FITS.
    bitpix: int
    #: Length of each axis, NAXIS1 first.
    axes: Annotated[list[Positive], Field(min_length=1)]
    #: Number of the spectral axis, from 1.
    spectral_axis: Positive
    #: A value is `bscale * stored + bzero`, or none where `stored` is `blank`.
    bscale: float = 1.0
    bzero: float = 0.0
    blank: int | None = None
    first: Count
    count: Positive
    noise: NoiseReference | None = None

    @property
    def n_channels(self) -> int:
        return self.axes[self.spectral_axis - 1]

    @property
    def n_spectra(self) -> int:
        """Number of spectra of the whole cube."""
        return math.prod(self.axes) // self.n_channels

    @property
    def nx(self) -> int:
        """Length of the first axis that is neither spectral nor degenerate; 1 if there is none."""
        lengths = [length for n, length in enumerate(self.axes, start=1) if n != self.spectral_axis and length > 1]
        return lengths[0] if lengths else 1
