"""Spectral cubes of the spectral-cube package, in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .axis import SpectralAxis
from .batch import decompose
from .params import Params
from .table import Decomposition

#: Steps of a spectral axis that is taken for linear agree to this part of a step over the whole axis.
_LINEAR = 1e-3


def decompose_cube(cube: Any, params: Params | Mapping[str, object] | None = None, **how: Any) -> Decomposition:
    """:func:`~prismline_gaussline.decompose` of a ``spectral_cube.SpectralCube``.

    Spectrum ``y * nx + x`` of the table is the one at row y and column x. Masked values are blank. The spectral axis is
    the cube's; ``how`` takes the keywords of ``decompose``, except ``axis``. The whole cube is read. Raises ValueError
    when the axis is not linear: convert it with ``cube.with_spectral_unit`` first.
    """
    coordinates = cube.spectral_axis
    steps = np.diff(coordinates.value)
    if len(steps) == 0 or np.ptp(steps) * len(steps) > _LINEAR * abs(steps[0]):
        raise ValueError("the cube's spectral axis has one channel or is not linear")
    axis = SpectralAxis(float(coordinates.value[0]), float(steps.mean()), coordinates.unit.to_string("fits"))
    data = np.asarray(getattr(cube.filled_data[:], "value", cube.filled_data[:]))
    return decompose(data.reshape(len(data), -1).T, params, axis=axis, **how)
