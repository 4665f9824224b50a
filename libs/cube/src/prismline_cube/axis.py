"""The spectral axis of a cube as a person reads it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismline_contracts.objects import CubeGeometry

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
class SpectralAxis:
    """The spectral axis of a cube in the unit that a person reads: `name` in `unit`, km/s for velocities.

    Frequencies are shown as radio velocities, c (1 - f / f0), if the rest frequency f0 of the line is known. Velocities
    of that convention have the same step everywhere, as frequencies have (Greisen et al. 2006, A&A 446, 747, table 2).
    """

    name: str
    unit: str
    #: Coordinate of channel 0, and the step from a channel to the next.
    start: float
    step: float

    @classmethod
    def of(cls, geometry: CubeGeometry) -> SpectralAxis:
        """The axis that `geometry` describes."""
        unit, factor = _USUAL_UNITS.get(geometry.cunit) or _looked_up(geometry.cunit)
        start = geometry.crval + (1 - geometry.crpix) * geometry.cdelt
        step = geometry.cdelt * factor
        if geometry.rest_frequency and geometry.ctype.upper().startswith("FREQ") and unit == "GHz":
            rest = geometry.rest_frequency * 1e-9
            return cls("Velocity", "km/s", _LIGHT_KM_S * (1 - start * factor / rest), -_LIGHT_KM_S * step / rest)
        name = _AXIS_NAMES.get(geometry.ctype[:4].upper(), geometry.ctype or "Spectral axis")
        return cls(name, unit, start * factor, step)

    def at(self, channel: Any) -> Any:
        """The coordinate of `channel`, a number or an array, from 0."""
        return self.start + self.step * np.asarray(channel)

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


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
