"""S3 keys of the objects of a run, and the object that describes its cube."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from prismline_contracts.base import Contract, Count, Lags, Name
from prismline_contracts.manifest import MOST_LINES
from prismline_contracts.prefixes import CHUNKS_PREFIX, DECOMPOSITIONS_PREFIX

#: CTYPE with an algorithm code: two of the letters that stand for a spectral variable, or a table, logarithm or grism.
_ALGORITHM = re.compile(r"^.{4}-([FWVA]2[FWVA]|LOG|TAB|GRI|GRA)")
#: Name of the `CubeGeometry` inside a chunk's input, the `.npz` file.
CHUNK_GEOMETRY_MEMBER = "geometry.json"


class LineProfile(Contract):
    """Lines that belong together, on the channels of a cube. A component is the sum of these lines.

    Line i has the height `amplitude * weights[i]`, its centre at `mean + offsets[i]`, and the component's width. Of the
    sum `amplitude * profile` of the lines, an optical depth `tau` leaves `amplitude / tau * (1 - exp(-tau * profile))`.
    """

    #: The name of the hyperfine group. Absent: a table was given.
    name: Name | None = None
    #: Offset of each line from the component's centre, in channels.
    offsets: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1, max_length=MOST_LINES)]
    #: Strength of each line. The sum is 1.
    weights: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1, max_length=MOST_LINES)]


#: Most values of the shape of the noise. Older workers read at most 64 KiB of a geometry.
MOST_SHAPE_VALUES = 1024

NoiseShape = Annotated[
    list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(min_length=1, max_length=MOST_SHAPE_VALUES)
]


class CubeGeometry(Contract):
    """The shape of a run's cube, and its spectral axis in terms of the FITS header.

    The physical value at channel `c`, counted from 0, is `crval + (c + 1 - crpix) * cdelt`, in `cunit`.
    """

    n_channels: Count
    ny: Count
    nx: Count
    ctype: str
    crval: float
    crpix: float
    cdelt: float
    cunit: str
    bunit: str
    object_name: str
    cube_key: Name
    #: FITS keywords of the celestial coordinates: axis 1 is `x`, axis 2 is `y`. Absent where the header has none.
    celestial: dict[str, str | int | float | bool] | None = None
    #: FITS keywords of a spectral axis without a constant step, as axis 1. Absent for linear axes, and where nobody can
    #: read them.
    spectral: dict[str, str | int | float | bool] | None = None
    #: Correlation of the noise at lags 0, 1, ... channels, the first one 1, estimated once from a sample of the cube.
    #: Absent: it was not estimated, and a reader estimates it from each spectrum.
    noise_correlation: Lags | None = None
    #: Level of the noise along the spectra, relative to its median, estimated once from a sample of the cube. Channel
    #: `c` of `n_channels` has value number `c * len(noise_shape) // n_channels`. Absent: the level does not vary, or it
    #: was not estimated.
    noise_shape: NoiseShape | None = None
    #: Rest frequency of the observed line, in Hz. Absent where the header has none.
    rest_frequency: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    #: The lines of each component of the run. Absent: each component is one Gaussian.
    line: LineProfile | None = None

    @property
    def linear(self) -> bool:
        """Whether the formula above holds. It does not with an algorithm code (see `is_linear_axis`) or for FELO."""
        return is_linear_axis(self.ctype)

    def coordinate(self, channel: float) -> float:
        """The value at `channel`, counted from 0, in `cunit`."""
        return self.crval + (channel + 1 - self.crpix) * self.cdelt


def is_linear_axis(ctype: str) -> bool:
    """Whether a spectral axis of this CTYPE has the same step everywhere.

    It has not with an algorithm code of Greisen et al. 2006 (A&A 446, 747) such as `VOPT-F2W`, or with AIPS's FELO. The
    older suffixes that name a rest frame, such as `VELO-LSR`, say nothing about steps.
    """
    return not (ctype.startswith("FELO") or _ALGORITHM.match(ctype))


def chunk_key(run_id: str, chunk_id: str, suffix: str = "npz") -> str:
    """Key of the input of a chunk."""
    return f"{CHUNKS_PREFIX}{run_id}/{chunk_id}.{suffix}"


def manifest_copy_key(run_id: str) -> str:
    """Key of the run's copy of its manifest. The splitter creates it once, when it first reads the manifest."""
    return f"{CHUNKS_PREFIX}{run_id}/manifest.json"


def geometry_key(run_id: str) -> str:
    """Key of the `CubeGeometry` of a run."""
    return f"{CHUNKS_PREFIX}{run_id}/geometry.json"


def noise_key(run_id: str) -> str:
    """Key of the noise of a run whose chunks refer to the cube: a float64 for each spectrum, or for each channel."""
    return f"{CHUNKS_PREFIX}{run_id}/noise.f8"


def output_prefix(survey: str, run_id: str) -> str:
    """Prefix of all outputs of a run. It is one partition of the dataset."""
    return f"{DECOMPOSITIONS_PREFIX}survey={survey}/run={run_id}/"


def output_key(survey: str, run_id: str, chunk_id: str) -> str:
    """Key of the output of a chunk."""
    return f"{output_prefix(survey, run_id)}{chunk_id}.parquet"
