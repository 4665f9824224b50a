"""Celestial coordinates of a cube on a lattice of pixels, so that a page does not have to compute the projection."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from prismline_api.maps.chunks import RunChunks
from prismline_api.maps.models import SkyView
from prismline_cube import sky_coordinates
from prismline_http.problems import conflict

#: Most points of the lattice along each axis. In a field of some degrees, the error of the interpolation between the
#: points is less than a hundredth of an arcsecond.
POINTS = 33


def sky_view(chunks: RunChunks) -> SkyView:
    """The lattice. Raises ProblemError (409) if the header has no celestial coordinates."""
    geometry = chunks.geometry
    if geometry.celestial is None:
        raise conflict("no-coordinates", f"The header of the cube of run {chunks.run_id} has no celestial coordinates.")
    x, y = (
        np.unique(np.linspace(0, n - 1, min(n, POINTS)).round()).astype(np.int32) for n in (geometry.nx, geometry.ny)
    )
    across, up = np.meshgrid(x, y)
    longitude, latitude = sky_coordinates(geometry.celestial, across.ravel(), up.ravel()).reshape(2, len(y), len(x))
    names = [str(geometry.celestial.get(f"CTYPE{axis}", "")).partition("-")[0] for axis in (1, 2)]
    if names[0] in ("GLAT", "DEC", "ELAT"):  # the axes may be in reverse order
        names.reverse()
    return SkyView(
        run_id=chunks.run_id,
        longitude_name=names[0],
        latitude_name=names[1],
        x=x.tolist(),
        y=y.tolist(),
        longitude=_rows(longitude),
        latitude=_rows(latitude),
    )


def _rows(values: NDArray[np.float64]) -> list[list[float | None]]:
    return [[value if math.isfinite(value) else None for value in row] for row in values.tolist()]
