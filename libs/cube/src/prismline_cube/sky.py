"""Celestial coordinates of pixels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def sky_coordinates(
    celestial: Mapping[str, str | int | float | bool], x: NDArray[np.int32], y: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Celestial longitude and latitude of pixels (from 0) in degrees, shape (2, n); NaN off the projection.

    celestial: FITS keywords of the coordinates, with axis 1 for x and axis 2 for y, as `CubeGeometry` has them.
    """
    from astropy.io import fits  # noqa: PLC0415 - takes a second, and not every cube has coordinates
    from astropy.wcs import WCS  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sky = WCS(fits.Header(list(celestial.items())), fix=False)
    pixels = np.stack((x, y), axis=1).astype(np.float64)
    world = sky.wcs_pix2world(pixels, 0)
    coordinates: NDArray[np.float64] = np.stack((world[:, sky.wcs.lng], world[:, sky.wcs.lat]))
    coordinates[~np.isfinite(coordinates)] = np.nan
    return coordinates
