"""Extracts spectra from cubes: FITS data with their header, and cubes of the spectral-cube package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import numbers
from .axis import SpectralAxis, spectral_axes
from .batch import decompose
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
    """:func:`~prismline_gaussline.decompose` of a whole cube. The table has its ``shape`` and ``unit``.

    ``cube`` is a ``spectral_cube.SpectralCube``, the result of :func:`cube_spectra`, or an array (channels, ny, nx), as
    astropy reads it from a FITS file with the spectral axis last. Spectrum ``y * nx + x`` of the table is the one at
    row y and column x, and ``table.n_components.reshape(table.shape)`` is a map. Masked values are blank. The spectral
    axis is the cube's; only for an array, ``how`` may have ``axis``. It takes the other keywords of ``decompose`` too.

    Raises ValueError if the axis of a SpectralCube is not linear: convert it with ``cube.with_spectral_unit`` first.
    """
    found = _spectra_of(cube, how)
    table = decompose(found.spectra, params, axis=found.axis, **how)
    return replace(table, shape=found.shape, unit=found.unit)


def _spectra_of(cube: Any, how: dict[str, Any]) -> CubeSpectra:
    """The spectra of a cube in any of its forms. Takes ``axis`` out of ``how`` if the cube has none of its own."""
    if isinstance(cube, CubeSpectra):
        return cube
    if hasattr(cube, "spectral_axis"):
        return _of_spectral_cube(cube)
    unit = getattr(cube, "unit", None)
    array = numbers(getattr(cube, "value", cube) if unit is not None else cube, "the cube")
    if array.ndim != 3:
        raise ValueError(f"the cube must be an array (channels, ny, nx), not one of shape {array.shape}")
    spectra = array.reshape(len(array), -1).T
    return CubeSpectra(spectra, how.pop("axis", None), array.shape[1:], _named(unit))


def _named(unit: Any) -> str:
    """The name of an astropy unit as FITS writes it; empty without one."""
    if unit is None:
        return ""
    try:
        return str(unit.to_string("fits"))
    except ValueError:  # FITS has no name for it
        return str(unit)


def _of_spectral_cube(cube: Any) -> CubeSpectra:
    coordinates = cube.spectral_axis
    steps = np.diff(coordinates.value)
    if len(steps) == 0 or np.ptp(steps) * len(steps) > _LINEAR * abs(steps[0]):
        raise ValueError("the cube's spectral axis has one channel or is not linear")
    axis = SpectralAxis(float(coordinates.value[0]), float(steps.mean()), coordinates.unit.to_string("fits"))
    filled = cube.filled_data[:]
    data = np.asarray(getattr(filled, "value", filled))
    return CubeSpectra(data.reshape(len(data), -1).T, axis, data.shape[1:], _named(getattr(filled, "unit", None)))
