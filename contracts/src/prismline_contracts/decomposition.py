"""The Parquet output of the `spectra` workload: its columns, their types and units, and its metadata.

One file holds one chunk, one row is one spectrum. The worker writes these columns, the command line reads them, and
`docs/reference/columns.md` explains them.

Rule for versions: a new version only appends columns. A reader fills the columns that an older file lacks with null,
and a writer that changes a file keeps the columns that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from prismline_contracts.objects import CubeGeometry

#: Version of the columns below. A file says its own under the metadata key `prismline.output_version`; a file without
#: the key is version 1.
OUTPUT_VERSION = 3

#: `n_components` of a spectrum that was not fitted for lack of time.
NOT_FITTED = -1


class SpectrumStatus(StrEnum):
    """The result of one spectrum."""

    #: At least one component was found.
    FITTED = "fitted"
    #: The spectrum was processed and holds no significant component.
    EMPTY = "empty"
    #: No channel holds a finite value, or too few to fit anything.
    BLANK = "blank"
    #: The fit was given up for lack of time; the slow lane does it again.
    TIMED_OUT = "timed_out"


class ColumnType(StrEnum):
    """Types of columns, by their Arrow names."""

    INT = "int32"
    FLOAT = "double"
    TEXT = "string"
    FLOATS = "list<element: double>"


class Unit(StrEnum):
    """A column's unit, with placeholders for the units of the cube. :func:`unit_of` fills them in."""

    NONE = ""
    #: Pixels and channels are counted from 0.
    PIXEL = "pixel"
    CHANNEL = "channel"
    DEGREE = "deg"
    #: BUNIT of the cube.
    SIGNAL = "{signal}"
    SIGNAL_CHANNEL = "{signal} channel"
    SIGNAL_PER_CHANNEL = "{signal} channel^-1"
    SIGNAL_PER_CHANNEL_2 = "{signal} channel^-2"
    SIGNAL_PER_CHANNEL_3 = "{signal} channel^-3"
    #: CUNIT of the cube's spectral axis.
    AXIS = "{axis}"
    SIGNAL_AXIS = "{signal} {axis}"


class MetadataKey(StrEnum):
    """Keys of a file's metadata that the worker writes. Values are text."""

    #: :data:`OUTPUT_VERSION` of the writer.
    VERSION = "prismline.output_version"
    RUN_ID = "prismline.run_id"
    JOB_ID = "prismline.job_id"
    SURVEY = "prismline.survey"
    CHUNK_ID = "prismline.chunk_id"
    #: JSON object of all parameters in force, defaults included.
    PARAMS = "prismline.params"
    #: JSON object: the unit of each column that has one.
    UNITS = "prismline.units"
    #: JSON of the `CubeGeometry`, celestial coordinates included.
    GEOMETRY = "prismline.geometry"


@dataclass(frozen=True)
class Column:
    """One column. `since` is the version that added it; before that, files lack it."""

    name: str
    type: ColumnType
    unit: Unit
    description: str
    since: int = 1


#: Coefficients of the baseline, by power of the channel.
BASELINE_COLUMNS = ("baseline_0", "baseline_1", "baseline_2", "baseline_3")

_SIGMA = "One standard deviation of"

#: Every column, in the order of the file.
COLUMNS: tuple[Column, ...] = (
    Column("x", ColumnType.INT, Unit.PIXEL, "Column of the spectrum's pixel."),
    Column("y", ColumnType.INT, Unit.PIXEL, "Row of the spectrum's pixel."),
    Column("beta", ColumnType.FLOAT, Unit.NONE, "Persistence threshold in units of the noise, as given."),
    Column("rms", ColumnType.FLOAT, Unit.SIGNAL, "Noise of the spectrum; null where none was estimated."),
    Column("min_persistence", ColumnType.FLOAT, Unit.SIGNAL, "Product of `beta` and `rms`; null where `rms` is."),
    Column("n_components", ColumnType.INT, Unit.NONE, "Number of components; -1 while the spectrum waits for a refit."),
    Column("component_amplitudes", ColumnType.FLOATS, Unit.SIGNAL, "Height of each component, by rising mean."),
    Column("component_means", ColumnType.FLOATS, Unit.CHANNEL, "Centre of each component."),
    Column("component_stddevs", ColumnType.FLOATS, Unit.CHANNEL, "Width of each component, a standard deviation."),
    Column("status", ColumnType.TEXT, Unit.NONE, "Its fate: `fitted`, `empty`, `blank` or `timed_out`."),
    Column("component_amplitude_errors", ColumnType.FLOATS, Unit.SIGNAL, f"{_SIGMA} each height."),
    Column("component_mean_errors", ColumnType.FLOATS, Unit.CHANNEL, f"{_SIGMA} each centre."),
    Column("component_stddev_errors", ColumnType.FLOATS, Unit.CHANNEL, f"{_SIGMA} each width."),
    Column("component_fluxes", ColumnType.FLOATS, Unit.SIGNAL_CHANNEL, "Area of each component."),
    Column("component_flux_errors", ColumnType.FLOATS, Unit.SIGNAL_CHANNEL, f"{_SIGMA} each area."),
    Column("chi2_reduced", ColumnType.FLOAT, Unit.NONE, "Reduced chi-square of the whole model."),
    Column("aicc", ColumnType.FLOAT, Unit.NONE, "Corrected Akaike information criterion of the whole model."),
    Column("flags", ColumnType.INT, Unit.NONE, "Bits of `prismline_gaussline.Flag`."),
    Column("decomposer", ColumnType.TEXT, Unit.NONE, "What fitted it: `gaussline`, `hyperfine`, `phspectra` or null."),
    Column("component_means_physical", ColumnType.FLOATS, Unit.AXIS, "Centre of each component on the axis.", 2),
    Column("component_mean_errors_physical", ColumnType.FLOATS, Unit.AXIS, f"{_SIGMA} each of those centres.", 2),
    Column("component_stddevs_physical", ColumnType.FLOATS, Unit.AXIS, "Width of each component on the axis.", 2),
    Column("component_stddev_errors_physical", ColumnType.FLOATS, Unit.AXIS, f"{_SIGMA} each of those widths.", 2),
    Column("component_fluxes_physical", ColumnType.FLOATS, Unit.SIGNAL_AXIS, "Area of each component on the axis.", 2),
    Column("component_flux_errors_physical", ColumnType.FLOATS, Unit.SIGNAL_AXIS, f"{_SIGMA} each of those areas.", 2),
    Column("longitude", ColumnType.FLOAT, Unit.DEGREE, "Celestial longitude of the pixel; null if unknown.", 2),
    Column("latitude", ColumnType.FLOAT, Unit.DEGREE, "Celestial latitude of the pixel; null if unknown.", 2),
    Column("component_optical_depths", ColumnType.FLOATS, Unit.NONE, "Optical depth of each, all lines; else null.", 3),
    Column("component_optical_depth_errors", ColumnType.FLOATS, Unit.NONE, f"{_SIGMA} each optical depth.", 3),
    Column("baseline_0", ColumnType.FLOAT, Unit.SIGNAL, "Baseline at channel 0; null without `baseline_order`.", 3),
    Column("baseline_1", ColumnType.FLOAT, Unit.SIGNAL_PER_CHANNEL, "Its change per channel, or null.", 3),
    Column("baseline_2", ColumnType.FLOAT, Unit.SIGNAL_PER_CHANNEL_2, "Its coefficient of channel^2, or null.", 3),
    Column("baseline_3", ColumnType.FLOAT, Unit.SIGNAL_PER_CHANNEL_3, "Its coefficient of channel^3, or null.", 3),
)  # fmt: skip


def unit_of(column: Column, geometry: CubeGeometry) -> str:
    """The unit of `column` in the terms of the cube's header, e.g. `K m/s`; empty if there is none."""
    return column.unit.format(signal=geometry.bunit, axis=geometry.cunit).strip()


def units_of(geometry: CubeGeometry) -> dict[str, str]:
    """The unit of every column that has one, by name."""
    return {column.name: unit for column in COLUMNS if (unit := unit_of(column, geometry))}


def arrow_schema(geometry: CubeGeometry | None = None, version: int = OUTPUT_VERSION) -> pa.Schema:
    """The Arrow schema of a file of `version`. With `geometry` each field's metadata has its `unit`. Needs pyarrow."""
    import pyarrow as pa  # noqa: PLC0415 - most services read no Parquet

    types = {
        ColumnType.INT: pa.int32(),
        ColumnType.FLOAT: pa.float64(),
        ColumnType.TEXT: pa.string(),
        ColumnType.FLOATS: pa.list_(pa.float64()),
    }
    units = units_of(geometry) if geometry is not None else {}
    return pa.schema(
        [
            pa.field(
                column.name,
                types[column.type],
                metadata={"unit": units[column.name]} if column.name in units else None,
            )
            for column in COLUMNS
            if column.since <= version
        ]
    )


def current(table: pa.Table) -> pa.Table:
    """The table of a file of any version, with the columns of this version first. Those that the file lacks are null.

    Columns that this version does not know stay, at the end, and so does the metadata. Raises `ValueError` if a column
    of version 1 is missing, or if a known column has another type.
    """
    import pyarrow as pa  # noqa: PLC0415 - most services read no Parquet

    schema = arrow_schema()
    arrays, fields = [], []
    for column, field in zip(COLUMNS, schema, strict=True):
        if column.name in table.column_names:
            if table.schema.field(column.name).type != field.type:
                raise ValueError(f"column {column.name} is not {column.type}")
            arrays.append(table[column.name])
            fields.append(table.schema.field(column.name))
        elif column.since == 1:
            raise ValueError(f"column {column.name} is missing")
        else:
            arrays.append(pa.chunked_array([pa.nulls(len(table), field.type)]))
            fields.append(field)
    known = {column.name for column in COLUMNS}
    for name in table.column_names:
        if name not in known:
            arrays.append(table[name])
            fields.append(table.schema.field(name))
    return pa.table(arrays, schema=pa.schema(fields, metadata=table.schema.metadata))
