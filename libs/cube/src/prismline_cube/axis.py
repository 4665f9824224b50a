"""The spectral axis of a cube as a person reads it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismline_contracts import CubeGeometry

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


@dataclass(frozen=True)
class SpectralAxis:
    """The spectral axis of a cube in the unit that a person reads: `name` in `unit`, km/s for velocities."""

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
        name = _AXIS_NAMES.get(geometry.ctype[:4].upper(), geometry.ctype or "Spectral axis")
        return cls(name, unit, start * factor, geometry.cdelt * factor)

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
    except ValueError:  # a header may hold any text; then the axis is labelled with that text
        return cunit, 1.0
    for shown in _SHOWN_UNITS:
        if parsed.is_equivalent(units.Unit(shown)):
            return shown, float(parsed.to(units.Unit(shown)))
    return cunit, 1.0
