"""Extracts spectra from cubes: FITS data with their header, and cubes of the spectral-cube package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .axis import SpectralAxis, spectral_axes
from .batch import decompose
from .inputs import numbers
from .params import Params
from .table import Decomposition


@dataclass(frozen=True, eq=False)
class CubeSpectra:
    """The spectra of a cube, in the form that :func:`~prismline_gaussline.decompose` takes."""

    spectra: NDArray[Any]
    """Shape (ny * nx, channels), float32 or float64. Spectrum ``y * nx + x`` is the one at row y and column x."""
    axis: SpectralAxis | None
    """The spectral axis; None when the header has none that is linear."""
    shape: tuple[int, int]
    """(ny, nx): ``table.n_components.reshape(cube.shape)`` is a map."""
    unit: str
    """BUNIT of the header."""


def cube_spectra(data: ArrayLike, header: Mapping[str, object]) -> CubeSpectra:
    """The spectra of FITS data of two to four axes, for every position of the spectral axis.

    The spectral axis is the one whose CTYPEn is spectral and that has more than one channel. At most two of the other
    axes may be longer than one: x has the lower number, y the higher. Axes of length one, such as Stokes, are dropped.
    The data are the array as astropy returns it: already scaled, with the axes of the header in reverse. Integers
    become float64.

    Raises ValueError, with advice, for data that are not such a cube.
    """
    array = numbers(data, "the cube")
    if not 2 <= array.ndim <= 4:
        raise ValueError(f"a cube has two to four axes, not {array.ndim}")
    lengths = array.shape[::-1]
    spectral = [n for n in spectral_axes(header) if n <= array.ndim]
    if not spectral:
        raise ValueError(
            "no axis of the header is spectral: set the CTYPEn of the one that is to VRAD, FREQ or the like"
        )
    resolved = [n for n in spectral if lengths[n - 1] > 1]
    if len(resolved) > 1:
        raise ValueError(f"axes {resolved} of the header are both spectral: correct the CTYPEn of the one that is not")
    number = (resolved or spectral)[0]
    others = [n for n in range(1, array.ndim + 1) if n != number and lengths[n - 1] > 1]
    if len(others) > 2:
        raise ValueError(
            f"axes {others} are all longer than one beside the spectral axis {number}: give one plane at a time"
        )
    nx, ny = [*(lengths[n - 1] for n in others), 1, 1][:2]
    spectra = np.moveaxis(array, array.ndim - number, -1).reshape(ny * nx, lengths[number - 1])
    if spectra.dtype.kind != "f" or spectra.dtype.itemsize not in (4, 8):
        spectra = spectra.astype(np.float64)
    unit = str(header.get("BUNIT", "")).strip()
    return CubeSpectra(spectra, SpectralAxis.from_header(header, number), (ny, nx), unit)


#: A spectral axis counts as linear if its steps agree to this fraction of a step over the whole axis.
_LINEAR = 1e-3


def decompose_cube(cube: Any, params: Params | Mapping[str, object] | None = None, **how: Any) -> Decomposition:
    """:func:`~prismline_gaussline.decompose` of a ``spectral_cube.SpectralCube``.

    Spectrum ``y * nx + x`` of the table is the one at row y and column x. Masked values are blank. The spectral axis is
    the cube's; ``how`` takes the keywords of ``decompose``, except ``axis``. Reads the whole cube. Raises ValueError if
    the axis is not linear: convert it with ``cube.with_spectral_unit`` first.
    """
    coordinates = cube.spectral_axis
    steps = np.diff(coordinates.value)
    if len(steps) == 0 or np.ptp(steps) * len(steps) > _LINEAR * abs(steps[0]):
        raise ValueError("the cube's spectral axis has one channel or is not linear")
    axis = SpectralAxis(float(coordinates.value[0]), float(steps.mean()), coordinates.unit.to_string("fits"))
    data = np.asarray(getattr(cube.filled_data[:], "value", cube.filled_data[:]))
    return decompose(data.reshape(len(data), -1).T, params, axis=axis, **how)
