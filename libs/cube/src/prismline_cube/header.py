"""What a FITS header says about a spectral cube: its axes, units, sky and stored values. Pure.

Everything that needs the geometry of a cube has it from here: the splitter, and through the run's `CubeGeometry` the
workers, the maps and the pictures.

Conventions: FITS standard 4.0 (https://fits.gsfc.nasa.gov/fits_standard.html) and, for spectral axes, Greisen et al.
2006 (A&A 446, 747).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.wcs import WCS
from numpy.typing import NDArray

from prismline_contracts.objects import CubeGeometry, is_linear_axis
from prismline_contracts.references import FITS_LAYOUT, ZARR_LAYOUT
from prismline_cube.cards import count_of, integer_of, number_of, text_of, unusable, value_of
from prismline_cube.errors import CubeError
from prismline_cube.grid import Grid
from prismline_cube.layout import STORED_TYPES, StoredValues, spectra_type
from prismline_cube.limits import MAX_AXIS_LENGTH, MAX_CHANNELS
from prismline_cube.sky import sky_coordinates

#: First four letters of the CTYPEn of a spectral axis -> the SI unit it has when the header gives no CUNITn
#: (Greisen et al. 2006, table 1; FELO is AIPS's optical velocity on a grid that is regular in frequency).
#: prismline-gaussline has the same table: the splitter does not depend on it, and it depends on no package of ours.
SPECTRAL_TYPES = {
    "VRAD": "m/s",
    "VOPT": "m/s",
    "VELO": "m/s",
    "FELO": "m/s",
    "FREQ": "Hz",
    "WAVE": "m",
    "AWAV": "m",
    "WAVN": "m-1",
    "ENER": "J",
    "ZOPT": "",
    "BETA": "",
}

#: Numbers of axes that a cube may have, degenerate ones included.
CUBE_AXES = (2, 3, 4)

#: Most axes for which the keywords of coordinates may be given, and highest order of a polynomial of distortion (SIP).
#: The libraries allocate and look up its square before they look at the values.
MAX_COORDINATE_AXES, MAX_DISTORTION_ORDER = 9, 9

#: Largest difference between the spectral coordinates of two pixels, in channels.
MAX_SHIFT = 1e-3


@dataclass(frozen=True)
class AxisCards:
    """The channels' coordinate: channel i (from 0) is at `crval + (i + 1 - crpix) * cdelt`, in `cunit`."""

    ctype: str
    crval: float
    crpix: float
    cdelt: float
    cunit: str


@dataclass(frozen=True, kw_only=True)
class CubeHeader:
    """The header of a spectral cube of ny * nx spectra with n_channels each.

    `x` is the lowest-numbered FITS axis that is neither spectral nor degenerate (of length one) and `y` the
    next one; a missing axis has length 1. `dtype` is the type of the spectra: float64 if the values are 32- or
    64-bit integers or float64, float32 otherwise.
    """

    bitpix: int
    #: Lengths of the axes, NAXIS1 first.
    axes: tuple[int, ...]
    #: Number of the spectral axis, from 1.
    spectral_axis: int
    n_channels: int
    ny: int
    nx: int
    dtype: np.dtype[Any]
    axis: AxisCards
    bunit: str
    object_name: str
    stored: StoredValues
    #: The stored chunks of a Zarr array. None for a FITS file.
    grid: Grid | None = None
    #: FITS keywords of the celestial coordinates, with axis 1 for x and axis 2 for y. None if the header has none that
    #: can be read.
    celestial: dict[str, str | int | float | bool] | None = None
    #: FITS keywords of the spectral axis, as axis 1, if its step is not constant. None if they cannot be read.
    spectral: dict[str, str | int | float | bool] | None = None
    #: Rest frequency of the observed line, in Hz. None if the header has none that is a positive number.
    rest_frequency: float | None = None

    @property
    def layout(self) -> str:
        """The name of the values' layout in the object, as references give it."""
        return FITS_LAYOUT if self.grid is None else ZARR_LAYOUT

    @property
    def n_spectra(self) -> int:
        """Number of spectra, blank ones included."""
        return self.ny * self.nx

    def sky_coordinates(self, x: NDArray[np.int32], y: NDArray[np.int32]) -> NDArray[np.float64] | None:
        """Celestial longitude and latitude of pixels (from 0) in degrees, shape (2, n); NaN off the projection."""
        return None if self.celestial is None else sky_coordinates(self.celestial, x, y)

    def geometry(self, cube_key: str) -> CubeGeometry:
        """What is known about the cube apart from its spectra. cube_key: the key of its file."""
        return CubeGeometry(
            n_channels=self.n_channels,
            ny=self.ny,
            nx=self.nx,
            ctype=self.axis.ctype,
            crval=self.axis.crval,
            crpix=self.axis.crpix,
            cdelt=self.axis.cdelt,
            cunit=self.axis.cunit,
            bunit=self.bunit,
            object_name=self.object_name,
            cube_key=cube_key,
            celestial=self.celestial,
            spectral=self.spectral,
            rest_frequency=self.rest_frequency,
        )


def layout_of(header: fits.Header) -> tuple[int, list[int]]:
    """BITPIX and the axis lengths, NAXIS1 first."""
    bitpix = integer_of(header, "BITPIX")
    if bitpix not in STORED_TYPES:
        raise unusable("BITPIX", f"is {bitpix} and not one of {', '.join(map(str, STORED_TYPES))}")
    return bitpix, [count_of(header, f"NAXIS{n}") for n in range(1, count_of(header, "NAXIS") + 1)]


def describe(header: fits.Header, offset: int) -> CubeHeader:
    """What the header says about the cube whose values begin at byte `offset`. Raises CubeError if it is not a cube."""
    bitpix, axes = layout_of(header)
    spectral = _spectral_axis(header, axes)
    if axes[spectral - 1] > MAX_CHANNELS:
        raise CubeError(f"the cube has {axes[spectral - 1]:,} channels; submit at most {MAX_CHANNELS:,} of them")
    spatial = [n for n, length in enumerate(axes, start=1) if n != spectral and length > 1]
    if len(spatial) > 2:
        extra = spatial[2]
        raise CubeError(
            f"axis {extra} ({text_of(header, f'CTYPE{extra}') or 'no CTYPE'}) has {axes[extra - 1]} planes "
            "in addition to two other axes and the spectral one; submit one plane at a time"
        )
    nx, ny = [*(axes[n - 1] for n in spatial), 1, 1][:2]
    return CubeHeader(
        bitpix=bitpix,
        axes=tuple(axes),
        spectral_axis=spectral,
        n_channels=axes[spectral - 1],
        ny=ny,
        nx=nx,
        dtype=spectra_type(bitpix),
        axis=_axis_cards(header, spectral, axes),
        bunit=text_of(header, "BUNIT"),
        object_name=text_of(header, "OBJECT"),
        stored=stored_values(header, offset, inner=math.prod(axes[: spectral - 1])),
        celestial=_celestial(header, [n for n in spatial if axes[n - 1] > 1]),
        spectral=_spectral_keywords(header, spectral),
        rest_frequency=_rest_frequency(header),
    )


def _axis_cards(header: fits.Header, spectral: int, axes: list[int]) -> AxisCards:
    """The coordinate of the channels. Raises CubeError if it is another one in each pixel.

    The step is CDELTi * PCi_i, or CDi_i if the header has a matrix of CDi_j, in which an absent element is zero. Many
    writers give the diagonal of that matrix and CDELTi, so CDELTi counts if the matrix says nothing about the axis.
    """
    ctype = text_of(header, f"CTYPE{spectral}").upper()
    cd = {n: number_of(header, f"CD{spectral}_{n}", 0.0) for n in range(1, len(axes) + 1)}
    pc = {n: number_of(header, f"PC{spectral}_{n}", float(n == spectral)) for n in range(1, len(axes) + 1)}
    step = number_of(header, f"CDELT{spectral}", 1.0)
    row = cd if any(cd.values()) else {n: step * element for n, element in pc.items()}
    shift = sum(abs(row[n]) * (length - 1) for n, length in enumerate(axes, start=1) if n != spectral)
    if shift > MAX_SHIFT * abs(row[spectral]):
        raise CubeError(
            f"the coordinate of its spectral axis {spectral} changes from pixel to pixel, by the matrix "
            f"{'CD' if row is cd else 'PC'} of the header; regrid the cube"
        )
    return AxisCards(
        ctype=ctype,
        crval=number_of(header, f"CRVAL{spectral}", 0.0),
        crpix=number_of(header, f"CRPIX{spectral}", 0.0),
        cdelt=row[spectral],
        cunit=text_of(header, f"CUNIT{spectral}") or SPECTRAL_TYPES[ctype[:4]],
    )


def _spectral_keywords(header: fits.Header, spectral: int) -> dict[str, str | int | float | bool] | None:
    """The keywords of a spectral axis whose step is not constant, as axis 1. None if it is, or if wcslib cannot read
    them.
    """
    if is_linear_axis(text_of(header, f"CTYPE{spectral}").upper()):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not _bounded_coordinates(header):
                return None
            axis = WCS(header, fix=False).sub([spectral])
            axis.wcs.spcfix()  # AIPS's FELO
            if is_linear_axis(axis.wcs.ctype[0]):
                return None
            axis.wcs.set()
            return dict(axis.to_header().items())
        except Exception:  # astropy and wcslib do not document what they raise for odd coordinates: a MemoryError, too
            return None


def _rest_frequency(header: fits.Header) -> float | None:
    """The rest frequency in Hz. RESTFREQ is the older name. The results are useful without it, so none is refused."""
    for key in ("RESTFRQ", "RESTFREQ"):
        try:
            if (value := number_of(header, key, 0.0)) > 0:
                return value
        except CubeError:
            continue
    return None


def stored_values(header: fits.Header, offset: int, *, inner: int) -> StoredValues:
    """How the values of an image are stored."""
    bitpix = integer_of(header, "BITPIX")
    stored = StoredValues(
        offset=offset,
        inner=inner,
        dtype=np.dtype(STORED_TYPES[bitpix]),
        bscale=number_of(header, "BSCALE", 1.0),
        bzero=number_of(header, "BZERO", 0.0),
        blank=integer_of(header, "BLANK") if bitpix > 0 and value_of(header, "BLANK") is not None else None,
    )
    if stored.bscale == 0:
        raise unusable("BSCALE", "is 0, which makes all values equal")
    return stored


def _celestial(header: fits.Header, spatial: list[int]) -> dict[str, str | int | float | bool] | None:
    """The keywords of the celestial coordinates of the pixels, whose axes are `spatial` (from 1, x first).

    If the cube is a strip or a single spectrum, degenerate celestial axes serve as `y`, or as `x` and `y`. Returns None
    if the coordinates cannot be read, because the spectra are useful without them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not _bounded_coordinates(header):
                return None
            whole = WCS(header, fix=False)
            kinds = (axis["coordinate_type"] for axis in whole.get_axis_types())
            celestial = [n for n, kind in enumerate(kinds, start=1) if kind == "celestial"]
            if len(celestial) != 2 or not set(spatial) <= set(celestial):
                return None
            sky = whole.sub([*spatial, *(n for n in celestial if n not in spatial)])
            sky.wcs.set()
            return dict(sky.to_header().items())
        except Exception:  # astropy and wcslib do not document what they raise for odd coordinates: a MemoryError, too
            return None


def _bounded_coordinates(header: fits.Header) -> bool:
    """Whether the keywords of the coordinates name no more axes and no higher orders than real cubes have."""
    most = {"WCSAXES": MAX_COORDINATE_AXES} | dict.fromkeys(
        (f"{name}_ORDER" for name in ("A", "B", "AP", "BP")), MAX_DISTORTION_ORDER
    )
    return all(
        isinstance(value, int) and 0 <= value <= limit
        for name, limit in most.items()
        for value in header[f"{name}*"].values()
    )


def _spectral_axis(header: fits.Header, axes: list[int]) -> int:
    """The number (from 1) of the spectral axis of data that can be a cube."""
    if len(axes) not in CUBE_AXES:
        raise CubeError(f"the data have {len(axes)} axes; submit a cube of 2, 3 or 4 axes")
    for n, length in enumerate(axes, start=1):
        if length == 0:
            raise CubeError(f"the cube holds no spectra: NAXIS{n} is 0; submit a cube with data")
        if length > MAX_AXIS_LENGTH:
            raise CubeError(f"axis {n} is longer than {MAX_AXIS_LENGTH:,}; submit a part of the cube")
    ctypes = [text_of(header, f"CTYPE{n}") for n in range(1, len(axes) + 1)]
    spectral = [n for n, ctype in enumerate(ctypes, start=1) if ctype[:4].upper() in SPECTRAL_TYPES]
    if not spectral:
        named = ", ".join(ctype or "unnamed" for ctype in ctypes)
        raise CubeError(
            f"the cube has no spectral axis: its axes are {named} "
            f"and none is one of {', '.join(SPECTRAL_TYPES)}; set the CTYPEn of its spectral axis"
        )
    resolved = [n for n in spectral if axes[n - 1] > 1]
    if len(resolved) > 1:
        raise CubeError(
            f"axes {' and '.join(map(str, resolved))} are both spectral; "
            "correct the CTYPEn of those that are not and submit the cube again"
        )
    return (resolved or spectral)[0]
