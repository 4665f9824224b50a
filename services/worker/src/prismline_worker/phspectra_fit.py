"""The phspectra kernel: estimates the noise of a spectrum and fits its components.

No other module of the worker calls phspectra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import phspectra
from numpy.typing import NDArray

from prismline_worker.fit_process import Fit


def fit_spectrum(signal: NDArray[np.float64], params: Mapping[str, Any]) -> Fit:
    """Decompose `signal` (channels,), which has finite values only, with phspectra's parameters `params`.

    The noise estimate is zero if a spectrum is constant or if more than half of its channels are zero. phspectra would
    then fit rounding errors, so such a spectrum gets no components.
    """
    rms = float(phspectra.estimate_rms(signal))
    if rms == 0.0:
        return Fit(rms, [])
    components = phspectra.fit_gaussians(signal, **params)
    return Fit(rms, [(c.amplitude, c.mean, c.stddev) for c in components])
