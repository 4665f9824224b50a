"""Converts channels and pixels to the coordinates of the cube's header."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_contracts.objects import CubeGeometry
from prismline_cube.axis import channel_widths, has_coordinates, spectral_coordinates
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.schema import SCHEMA

Values = NDArray[np.float64]


def with_physical_columns(table: pa.Table, block: SpectraBlock, geometry: CubeGeometry | None) -> pa.Table:
    """`table` (of `FIT_SCHEMA`, a row for each spectrum of `block`) with the columns of :data:`SCHEMA`.

    Centres, widths, areas and their errors are given on the spectral axis of `geometry`, and the pixels' celestial
    coordinates are taken from `block`. A column stays null if the chunk's input does not have the information: inputs
    of older splitters have no geometry, and the coordinates of some axes cannot be computed. If the step of the axis is
    not constant, widths and areas are converted with the step at the component's centre.
    """
    columns = {name: table[name] for name in table.column_names}
    if geometry is not None and has_coordinates(geometry):
        means = _values(table["component_means"])
        columns["component_means_physical"] = _with_values(
            table["component_means"], spectral_coordinates(geometry, means)
        )
        widths = abs(geometry.cdelt) if geometry.linear else channel_widths(geometry, means)
        for name in (
            "component_mean_errors",
            "component_stddevs",
            "component_stddev_errors",
            "component_fluxes",
            "component_flux_errors",
        ):
            columns[f"{name}_physical"] = _with_values(table[name], widths * _values(table[name]))
    if block.longitude is not None and block.latitude is not None:
        columns |= {
            name: pa.array(values, mask=np.isnan(values))
            for name, values in (("longitude", block.longitude), ("latitude", block.latitude))
        }
    missing = {field.name: pa.nulls(len(table), field.type) for field in SCHEMA if field.name not in columns}
    return pa.table(columns | missing, schema=SCHEMA.with_metadata(table.schema.metadata))


def _values(column: pa.ChunkedArray) -> Values:
    """The values of all lists of `column`."""
    values: Values = _lists(column).values.to_numpy(zero_copy_only=False)
    return values


def _with_values(column: pa.ChunkedArray, values: Values) -> pa.Array:
    """The lists of `column` with other values; null lists stay null."""
    lists = _lists(column)
    return pa.ListArray.from_arrays(lists.offsets, pa.array(values), mask=lists.is_null())


def _lists(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
