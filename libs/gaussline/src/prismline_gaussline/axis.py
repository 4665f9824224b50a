"""The spectral axis: channels to physical units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .arguments import any_number

#: First four letters of the CTYPEn of a spectral axis, and the unit that it has when the header gives no CUNITn
#: (Greisen et al. 2006, A&A 446, 747, table 1; FELO is AIPS's optical velocity on a grid that is regular in frequency).
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

#: CTYPEn with an algorithm code: two letters of spectral variables, a logarithm, a table or a grism.
_ALGORITHM = re.compile(r".{4}-([FWVA]2[FWVA]|LOG|TAB|GRI|GRA)")


@dataclass(frozen=True)
class SpectralAxis:
    """A linear spectral axis: ``value(channel) = start + channel * step``, channels counted from zero.

    ``unit`` is a label only and is copied to the table.
    """

    start: float
    step: float
    unit: str = ""

    def __post_init__(self) -> None:
        start, step = any_number(self.start), any_number(self.step)
        if not (math.isfinite(start) and math.isfinite(step)) or step == 0.0:
            raise ValueError(f"a spectral axis needs finite start and step and a step that is not zero, not {self}")
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "step", step)

    @classmethod
    def from_header(cls, header: Mapping[str, object], axis: int | None = None) -> SpectralAxis | None:
        """The axis that a FITS header describes by CRVALn, CRPIXn, CDELTn times PCn_n, or CDn_n, and CUNITn.

        ``axis`` is n. Without it, n is the axis whose CTYPEn is spectral, or 3 if there is none. Absent keywords have
        the values of the FITS standard: 0 for CRVALn and CRPIXn, 1 for CDELTn and PCn_n, and the SI unit of the type.
        Returns None if the header has none of these keywords. Also for nonlinear axes (CTYPEn with an algorithm code,
        FITS WCS Paper III, Greisen et al. 2006, or AIPS's FELO), which a linear axis would describe wrongly. A suffix
        that names a rest frame, as in ``VELO-LSR``, is not an algorithm code.
        """
        number = axis if axis is not None else next(iter(spectral_axes(header)), 3)
        kind = str(header.get(f"CTYPE{number}", "")).strip().upper()
        matrix = f"CD{number}_{number}"
        given = any(name in header for name in (f"CTYPE{number}", f"CRVAL{number}", f"CDELT{number}", matrix))
        if not given or kind.startswith("FELO") or _ALGORITHM.match(kind):
            return None
        start, reference = any_number(header.get(f"CRVAL{number}", 0.0)), any_number(header.get(f"CRPIX{number}", 0.0))
        step = any_number(header.get(matrix, 0.0))
        if step == 0.0:
            step = any_number(header.get(f"CDELT{number}", 1.0)) * any_number(header.get(f"PC{number}_{number}", 1.0))
        unit = str(header.get(f"CUNIT{number}", "")).strip() or SPECTRAL_TYPES.get(kind[:4], "")
        return cls(start + (1.0 - reference) * step, step, unit)


def spectral_axes(header: Mapping[str, object]) -> list[int]:
    """The numbers (from 1) of the axes whose CTYPEn is spectral. Axes of one channel come last."""
    names = (str(name) for name in header)
    numbers = sorted(int(name[5:]) for name in names if name.startswith("CTYPE") and name[5:].isdigit())
    spectral = [n for n in numbers if str(header.get(f"CTYPE{n}", "")).strip().upper()[:4] in SPECTRAL_TYPES]
    return sorted(spectral, key=lambda n: header.get(f"NAXIS{n}") == 1)
