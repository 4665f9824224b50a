"""The bodies of responses about maps and spectra."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from prismline_api.models import Response, ShownStatus
from prismline_contracts.maps import MapName

#: A number that may not be known.
Known = float | None


class AxisView(Response):
    """The spectral axis: `start + channel * step`, channels counted from 0."""

    name: Annotated[str, Field(examples=["Velocity"])]
    unit: Annotated[str, Field(examples=["km/s"])]
    start: float
    step: float
    linear: Annotated[
        bool, Field(description="Whether the formula is exact. If not, it still has the header's values.")
    ]


class MapEntry(Response):
    """A map that can be shown."""

    name: MapName
    title: str
    unit: str


class MapsView(Response):
    """The maps of a run, and the cube that they belong to. Pixel (0, 0) is at the lower left."""

    run_id: str
    name: str
    nx: int
    ny: int
    n_channels: int
    tile_pixels: Annotated[int, Field(description="Rows and columns of a tile, at most.")]
    levels: Annotated[int, Field(description="Level 0 has the cube's pixels. Each further level has half per side.")]
    axis: AxisView
    signal_unit: str
    celestial: Annotated[
        dict[str, str | int | float | bool] | None,
        Field(description="FITS keywords of the celestial coordinates; axis 1 is x. Absent if the header has none."),
    ] = None
    maps: list[MapEntry]
    chunks: Annotated[dict[str, int], Field(description="Number of chunks by status.")]
    final: Annotated[bool, Field(description="Whether all chunks have ended, so that maps no longer change.")]


class MapView(MapEntry):
    """The values of one map, as far as they are known."""

    run_id: str
    n_values: Annotated[int, Field(description="Pixels with a value.")]
    minimum: Known = None
    maximum: Known = None
    low: Annotated[Known, Field(description="About 1 % of the values are smaller.")] = None
    high: Annotated[Known, Field(description="About 1 % of the values are larger.")] = None
    pending: Annotated[int, Field(description="Completed chunks that are not included yet: repeat the request.")]
    shades: Annotated[
        list[str] | None, Field(description="Meanings of the values 0, 1, ..., or of the bits 1, 2, 4, ... of flags.")
    ] = None


class DifferencesView(MapEntry):
    """The differences between the maps of two runs, as far as they are known: the first minus the second."""

    run_id: str
    other_run_id: str
    n_values: Annotated[int, Field(description="Pixels that have a value in both.")]
    n_different: Annotated[int, Field(description="Pixels among them whose values differ.")]
    median: Annotated[Known, Field(description="About half of the differences are smaller.")] = None
    low: Annotated[Known, Field(description="About 1 % of the differences are smaller.")] = None
    high: Annotated[Known, Field(description="About 1 % of the differences are larger.")] = None
    pending: Annotated[int, Field(description="Chunks that are not compared yet: repeat the request.")]


class SkyView(Response):
    """Celestial coordinates on a lattice of pixels, between which they may be interpolated.

    `longitude[i][j]` is at pixel (`x[j]`, `y[i]`), in degrees; null off the projection.
    """

    run_id: str
    longitude_name: Annotated[str, Field(examples=["GLON"])]
    latitude_name: Annotated[str, Field(examples=["GLAT"])]
    x: list[float]
    y: list[float]
    longitude: list[list[Known]]
    latitude: list[list[Known]]


class Measured(Response):
    """A value and its standard deviation, if that is known."""

    value: float
    error: Known = None


class LineView(Response):
    """The lines of which each component is the sum. Line i has the height `amplitude * weights[i]`.

    Of the sum, `amplitude * profile`, an optical depth leaves
    `amplitude / optical_depth * (1 - exp(-optical_depth * profile))`.
    """

    name: Annotated[str | None, Field(description="The hyperfine group. Absent: the job gave a table.")] = None
    offsets: Annotated[list[float], Field(description="Position of each line minus the component's, on the axis.")]
    weights: Annotated[list[float], Field(description="Strength of each line. The sum is 1.")]


class ComponentView(Response):
    """A component of a fit: a Gaussian, or with a line the sum of several.

    Positions and widths are on the spectral axis; areas are integrals over it.
    """

    amplitude: Measured
    mean: Measured
    stddev: Measured
    flux: Measured
    optical_depth: Annotated[
        Measured | None, Field(description="Summed over the lines. Absent: they are optically thin.")
    ] = None


class FitView(Response):
    """The fit of a spectrum."""

    status: Annotated[str, Field(description="`fitted`, `empty`, `blank` or `timed_out`.")]
    components: list[ComponentView]
    line: Annotated[LineView | None, Field(description="Absent: each component is one Gaussian.")] = None
    baseline: Annotated[
        list[float] | None, Field(description="The fitted baseline at each channel. Absent: none was fitted.")
    ] = None
    model: Annotated[list[float], Field(description="The sum of the components and the baseline at each channel.")]
    residual: Annotated[list[Known] | None, Field(description="The data minus the model.")] = None
    rms: Known = None
    chi2_reduced: Known = None
    aicc: Known = None
    flags: list[str]
    decomposer: str | None = None


class HolderView(Response):
    """The chunk that holds a spectrum."""

    chunk_id: str
    status: ShownStatus
    attempts: int
    error: str | None = None
    last_error: str | None = None


class SpectrumView(Response):
    """A spectrum and its fit. `axis` and `data` have a value for each channel, null if the cube has none."""

    run_id: str
    x: int
    y: int
    longitude: Known = None
    latitude: Known = None
    axis: list[float]
    axis_name: str
    axis_unit: str
    signal_unit: str
    data: list[Known] | None = None
    data_error: Annotated[str | None, Field(description="Why the data cannot be read.")] = None
    fit: Annotated[FitView | None, Field(description="Absent while the chunk has no output.")] = None
    chunk: Annotated[HolderView | None, Field(description="Absent while the run is being divided.")] = None
