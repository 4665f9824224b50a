"""The fitting kernel: one spectrum in, its noise and Gaussian components out. The one place that calls phspectra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import phspectra
from numpy.typing import NDArray

from prismline_worker.fit_process import Fit


def fit_spectrum(signal: NDArray[np.float64], params: Mapping[str, Any]) -> Fit:
    """Decompose `signal` (channels,), which holds finite values only, with phspectra's parameters `params`.

    A spectrum whose noise estimate is zero (constant, or with more than half of its channels filled with zeros) has no
    threshold that tells a line from a ripple: phspectra would fit rounding errors there, so it gets no components.
    """
    rms = float(phspectra.estimate_rms(signal))
    if rms == 0.0:
        return Fit(rms, [])
    components = phspectra.fit_gaussians(signal, **params)
    return Fit(rms, [(c.amplitude, c.mean, c.stddev) for c in components])
