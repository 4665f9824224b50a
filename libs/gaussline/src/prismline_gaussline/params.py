"""Parameters of a decomposition: those of phspectra 1.0.2 with its names and defaults, and further ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from .arguments import finite_number, whole_number


class Preset(StrEnum):
    """How the model is chosen; METHOD.md describes both ways."""

    BEST = "best"
    """Matched-filter search and score-test splits: the best F1 on synthetic spectra. The default."""

    COMPATIBLE = "compatible"
    """The steps of phspectra 1.0.2, then further ones while AICc falls."""


#: Most components the kernel takes for one spectrum; its workspace grows with the square.
MAX_COMPONENTS_LIMIT = 512

#: Highest order of the polynomial baseline.
BASELINE_ORDER_LIMIT = 3


@dataclass(frozen=True)
class Params:
    """The parameters that decide the model of every spectrum of a batch.

    Raises ValueError if a value is out of its range.
    """

    preset: Preset = Preset.BEST

    beta: float = 3.5
    """Persistence a peak of the spectrum must have, in units of the noise."""

    max_refine_iter: int = 3
    """Most rounds of refinement."""

    snr_min: float = 1.5
    """Amplitude, in units of the noise, below which a component is compared with the baseline too. For ``compatible``:
    the least amplitude."""

    mf_snr_min: float = 5.0
    """Least matched-filter signal-to-noise (A / rms) sqrt(sigma) pi^(1/4) of a component."""

    f_sep: float = 1.2
    """Two components closer than this many FWHM of the narrower one are blended."""

    neg_thresh: float = 5.0
    """Depth of a residual dip, in units of the noise, that triggers a split (``compatible`` only)."""

    fwhm_min: float | None = None
    """Least FWHM of a component, channels. None: one channel, or half the FWHM of the response that the noise's
    correlation implies, whichever is more."""

    baseline_order: int | None = None
    """Order of a polynomial baseline, 0 to 3, that is fitted together with the lines and subtracted. None: no baseline.
    Without it the zero of the spectra has to be right."""

    second_start: bool = True
    """Whether ``best`` searches for blends more thoroughly: it tries components beside a line, and if the spectrum has
    more bends than components, it starts a second time from the bends. Without it white noise gives 0.1.0's result."""

    max_components: int = 64
    """Most components of a spectrum; more set the flag LIMIT_HIT."""

    time_budget_s: float = 1.0
    """Processor time that one spectrum may take, seconds; reaching it sets the flag TIME_LIMIT."""

    def __post_init__(self) -> None:
        if not isinstance(self.preset, str) or self.preset not in list(Preset):
            raise ValueError(f"preset must be one of {', '.join(Preset)}, not {self.preset!r}")
        object.__setattr__(self, "preset", Preset(self.preset))
        for name in ("beta", "snr_min", "mf_snr_min", "f_sep", "neg_thresh", "time_budget_s"):
            object.__setattr__(self, name, finite_number(getattr(self, name), name))
        if self.fwhm_min is not None:
            object.__setattr__(self, "fwhm_min", finite_number(self.fwhm_min, "fwhm_min"))
        if self.baseline_order is not None:
            order = whole_number(self.baseline_order, "baseline_order", 0, BASELINE_ORDER_LIMIT)
            object.__setattr__(self, "baseline_order", order)
        if not isinstance(self.second_start, bool):
            raise ValueError(f"second_start must be true or false, not {self.second_start!r}")
        for name, least, most in (("max_refine_iter", 0, 1000), ("max_components", 1, MAX_COMPONENTS_LIMIT)):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least, most))

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Params:
        """Parameters from names and values, for example of a job description. Raises ValueError for an unknown name."""
        if not isinstance(values, Mapping):
            raise ValueError(f"params must be Params or a mapping of its fields, not {values!r}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(name) for name in values if name not in known)
        if unknown:
            raise ValueError(f"unknown parameter {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(**values)  # type: ignore[arg-type]
