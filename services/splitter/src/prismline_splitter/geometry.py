"""The geometry of a run: that of its cube's header, with what the parameters say about its line. Pure."""

from __future__ import annotations

from prismline_contracts.manifest import FitParams, LineTable
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube.axis import velocity_axis
from prismline_cube.errors import CubeError
from prismline_cube.header import CubeHeader
from prismline_gaussline import SpectralAxis
from prismline_gaussline.hyperfine import HyperfineGroup, group_named


def geometry_of(cube: CubeHeader, cube_key: str, params: FitParams) -> CubeGeometry:
    """The geometry of a run of the cube with these parameters. Raises CubeError if its axis does not suit the line."""
    geometry = cube.geometry(cube_key)
    if params.rest_frequency is not None:
        geometry = geometry.model_copy(update={"rest_frequency": params.rest_frequency})
    if params.line is None:
        return geometry
    return geometry.model_copy(update={"line": _profile(params.line, geometry)})


def _profile(line: str | LineTable, geometry: CubeGeometry) -> LineProfile:
    """The lines on the channels of the cube."""
    axis = velocity_axis(geometry)
    if isinstance(line, str):
        name, group = line, group_named(line)
    else:
        name, group = None, HyperfineGroup("the table", tuple(line.offsets), tuple(line.weights))
    try:
        offsets = group.in_channels(SpectralAxis(axis.start, axis.step, axis.unit))
    except ValueError as error:
        raise CubeError(str(error)) from error
    return LineProfile(name=name, offsets=offsets.tolist(), weights=list(group.weights))
