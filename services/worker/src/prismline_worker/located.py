"""Converts channels and pixels to the coordinates of the cube's header."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prismline_contracts.objects import CubeGeometry
from prismline_worker.chunk_file import Spectra
from prismline_worker.schema import SCHEMA

Values = NDArray[np.float64]


def located(table: pa.Table, block: Spectra, geometry: CubeGeometry | None) -> pa.Table:
    """`table` (of `FIT_SCHEMA`, a row for each spectrum of `block`) with the columns of :data:`SCHEMA`.

    Centres, widths, areas and their errors are given on the spectral axis of `geometry`, and the pixels' celestial
    coordinates are taken from `block`. A column stays null if the chunk's input does not have the information: inputs
    of older splitters have no geometry, and an axis that is not linear has no constant step.
    """
    columns = {name: table[name] for name in table.column_names}
    if geometry is not None and geometry.linear:
        start, step = geometry.coordinate(0), abs(geometry.cdelt)
        of: dict[str, Callable[[Values], Values]] = {"component_means": lambda means: start + geometry.cdelt * means}
        for name in (
            "component_mean_errors",
            "component_stddevs",
            "component_stddev_errors",
            "component_fluxes",
            "component_flux_errors",
        ):
            of[name] = lambda values: step * values
        columns |= {f"{name}_physical": _mapped(table[name], change) for name, change in of.items()}
    if block.longitude is not None and block.latitude is not None:
        columns |= {
            name: pa.array(values, mask=np.isnan(values))
            for name, values in (("longitude", block.longitude), ("latitude", block.latitude))
        }
    missing = {field.name: pa.nulls(len(table), field.type) for field in SCHEMA if field.name not in columns}
    return pa.table(columns | missing, schema=SCHEMA.with_metadata(table.schema.metadata))


def _mapped(column: pa.ChunkedArray, change: Callable[[Values], Values]) -> pa.Array:
    """The lists of `column` with `change` applied to their values; null lists stay null."""
    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    values = pa.array(change(lists.values.to_numpy(zero_copy_only=False)))
    return pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null())
