"""The spectral axis: channels to physical units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SpectralAxis:
    """A linear spectral axis: ``value(channel) = start + channel * step``, channels counted from zero.

    ``unit`` is a label only and is copied to the table.
    """

    start: float
    step: float
    unit: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.step)) or self.step == 0.0:
            raise ValueError(f"a spectral axis needs finite start and step and a step that is not zero, not {self}")

    @classmethod
    def from_header(cls, header: Mapping[str, object], axis: int = 3) -> SpectralAxis | None:
        """The axis a FITS header describes by CRVALn, CDELTn (or CDn_n), CRPIXn (1 when absent) and CUNITn.

        None when the header has no value or no step for it. Nonlinear axes (CTYPEn with an algorithm code, FITS WCS
        Paper III, Greisen et al. 2006) are None too: a linear reading of them would be wrong.
        """
        start, step = header.get(f"CRVAL{axis}"), header.get(f"CDELT{axis}", header.get(f"CD{axis}_{axis}"))
        kind = str(header.get(f"CTYPE{axis}", ""))
        if start is None or step is None or kind[4:5] == "-":
            return None
        reference = float(str(header.get(f"CRPIX{axis}", 1.0)))
        width = float(str(step))
        return cls(float(str(start)) + (1.0 - reference) * width, width, str(header.get(f"CUNIT{axis}", "")).strip())
