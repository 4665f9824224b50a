"""The spectral axis of a cube: coordinates in the unit of its header, and in the unit that a person reads. Pure."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.objects import CubeGeometry
from prismline_cube.errors import CubeError

if TYPE_CHECKING:
    from astropy.wcs import WCS

_AXIS_NAMES = {
    "VRAD": "Velocity",
    "VOPT": "Velocity",
    "VELO": "Velocity",
    "FELO": "Velocity",
    "FREQ": "Frequency",
    "WAVE": "Wavelength",
    "AWAV": "Wavelength",
}

#: The units in which a quantity is shown; others stay as the header has them.
_SHOWN_UNITS = ("km/s", "GHz")
#: Unit in the header -> unit that people are shown, and the factor between them. `astropy.units` converts all other
#: units; it takes a second to import.
_USUAL_UNITS = {"m/s": ("km/s", 1e-3), "km/s": ("km/s", 1.0), "Hz": ("GHz", 1e-9), "GHz": ("GHz", 1.0)}

#: Speed of light in km/s, by definition of the metre.
_LIGHT_KM_S = 299_792.458


@dataclass(frozen=True)
class DisplayAxis:
    """The spectral axis of a cube in the unit that a person reads: `name` in `unit`, km/s for velocities.

    Frequencies are shown as radio velocities, c (1 - f / f0), if the rest frequency f0 of the line is known. Velocities
    of that convention have the same step everywhere, as frequencies have (Greisen et al. 2006, A&A 446, 747, table 2).
    """

    name: str
    unit: str
    #: Coordinate of channel 0, and the step from a channel to the next. If the step is not constant, these are its
    #: values at the axis's reference, for a scale that has to be linear.
    start: float
    step: float
    #: The cube of an axis whose step is not constant but known, and the factor from its unit to this one.
    exact: tuple[CubeGeometry, float] | None = None

    @classmethod
    def of(cls, geometry: CubeGeometry) -> DisplayAxis:
        """The axis that `geometry` describes."""
        unit, factor = _USUAL_UNITS.get(geometry.cunit) or _looked_up(geometry.cunit)
        start = geometry.coordinate(0)
        step = geometry.cdelt * factor
        if geometry.rest_frequency and geometry.ctype.upper().startswith("FREQ") and unit == "GHz":
            rest = geometry.rest_frequency * 1e-9
            return cls("Velocity", "km/s", _LIGHT_KM_S * (1 - start * factor / rest), -_LIGHT_KM_S * step / rest)
        name = _AXIS_NAMES.get(geometry.ctype[:4].upper(), geometry.ctype or "Spectral axis")
        exact = (geometry, factor) if geometry.spectral is not None else None
        return cls(name, unit, start * factor, step, exact)

    def at(self, channel: Any) -> Any:
        """The coordinate of `channel`, a number or an array, from 0."""
        if self.exact is not None:
            geometry, factor = self.exact
            return spectral_coordinates(geometry, np.asarray(channel, dtype=np.float64)) * factor
        return self.start + self.step * np.asarray(channel)

    def width(self, channel: Any) -> Any:
        """The width of `channel`, a number or an array, on the axis: how much the coordinate changes along it."""
        if self.exact is not None:
            geometry, factor = self.exact
            return channel_widths(geometry, np.asarray(channel, dtype=np.float64)) * factor
        return np.full_like(channel, abs(self.step), dtype=np.float64)

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def velocity_axis(geometry: CubeGeometry) -> DisplayAxis:
    """The axis in km/s, with a constant step, which the lines of a group need: their offsets are velocities.

    Raises CubeError for an axis that does not give such velocities.
    """
    if not geometry.linear:
        raise CubeError(
            f"its spectral axis {geometry.ctype} has no constant step, and lines with offsets in velocity need one;"
            " regrid the cube"
        )
    axis = DisplayAxis.of(geometry)
    if axis.unit == "GHz" and geometry.ctype.upper().startswith("FREQ"):
        raise CubeError(
            "its spectral axis is in frequency, lines have offsets in velocity, and its header has no rest frequency;"
            " give the rest frequency of the line"
        )
    if axis.unit != "km/s" or not (math.isfinite(axis.start) and math.isfinite(axis.step)) or axis.step == 0:
        raise CubeError(
            f"its spectral axis {geometry.ctype} in {geometry.cunit or 'no unit'} gives no velocities, in which lines"
            " have their offsets; convert it to velocities or to frequencies"
        )
    return axis


def has_coordinates(geometry: CubeGeometry) -> bool:
    """Whether the coordinate of every channel is known: of linear axes, and of others whose keywords could be read."""
    return geometry.linear or geometry.spectral is not None


def spectral_coordinates(geometry: CubeGeometry, channel: NDArray[np.float64]) -> NDArray[np.float64]:
    """The coordinates of channels, from 0 and also between them, in `cunit`. Requires `has_coordinates`."""
    if geometry.spectral is None:
        return geometry.coordinate(0) + geometry.cdelt * channel
    axis, factor = _read(tuple(geometry.spectral.items()), geometry.cunit)
    found: NDArray[np.float64] = axis.wcs_pix2world(channel.reshape(-1, 1), 0).reshape(channel.shape) * factor
    return found


@lru_cache(maxsize=8)
def _read(keywords: tuple[tuple[str, str | int | float | bool], ...], cunit: str) -> tuple[WCS, float]:
    """The axis that the keywords describe, and the factor from its unit to `cunit`; 1 if nobody knows that unit."""
    from astropy import units  # noqa: PLC0415 - takes a second, and few axes need it
    from astropy.io import fits  # noqa: PLC0415
    from astropy.wcs import WCS  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axis = WCS(fits.Header(list(keywords)), fix=False)
        try:
            return axis, float(units.Unit(axis.wcs.cunit[0]).to(units.Unit(cunit)))
        except (ValueError, TypeError, units.UnitConversionError):
            return axis, 1.0


def channel_widths(geometry: CubeGeometry, channel: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much the coordinate changes along each channel, in `cunit`; positive. Requires `has_coordinates`."""
    if geometry.spectral is None:
        return np.full(channel.shape, abs(geometry.cdelt))
    edges = spectral_coordinates(geometry, np.stack((channel - 0.5, channel + 0.5)))
    return np.asarray(np.abs(edges[1] - edges[0]))


def _looked_up(cunit: str) -> tuple[str, float]:
    """The unit to show, and the factor from `cunit` to it."""
    from astropy import units  # noqa: PLC0415 - takes a second, and few headers need it

    try:
        parsed = units.Unit(cunit)
        for shown in _SHOWN_UNITS:
            if parsed.is_equivalent(units.Unit(shown)) and math.isfinite(factor := float(parsed.to(units.Unit(shown)))):
                return shown, factor
    except Exception:  # a header may hold any text, and astropy does not document what it raises for it
        pass
    return cunit, 1.0  # the axis is labelled with that text
