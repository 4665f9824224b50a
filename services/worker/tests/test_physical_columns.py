from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from prismline_contracts.objects import CubeGeometry
from prismline_worker.chunk_file import SpectraBlock
from prismline_worker.physical_columns import with_physical_columns
from prismline_worker.schema import FIT_SCHEMA, SCHEMA

BLOCK = SpectraBlock(
    np.zeros((2, 40), np.float32), np.arange(2, dtype=np.int32), np.zeros(2, np.int32),
    longitude=np.array([24.0, np.nan]), latitude=np.array([-0.5, np.nan]),
)  # fmt: skip


def geometry(**changes):
    described = {"ctype": "VRAD", "crval": 5000.0, "crpix": 3.0, "cdelt": -200.0, "cunit": "m/s", "bunit": "K"}
    return CubeGeometry(n_channels=40, ny=1, nx=2, object_name="", cube_key="c", **(described | changes))


def fitted(**errors):
    """A row with two components and a row with none. Without `errors` as phspectra gives them."""
    row = {
        "component_amplitudes": [1.0, 2.0],
        "component_means": [2.0, 12.0],
        "component_stddevs": [1.5, 3.0],
        "component_fluxes": [4.0, 15.0] if errors else None,
    }
    empty = {name: [] if name in errors or values is not None else None for name, values in (row | errors).items()}
    rows = [row | errors, empty]
    columns = {name: pa.array([row[name] for row in rows], pa.list_(pa.float64())) for name in row | errors}
    columns |= {
        name: pa.nulls(2, kind)
        for name, kind in zip(FIT_SCHEMA.names, FIT_SCHEMA.types, strict=True)
        if name not in columns
    }
    return pa.table({name: columns[name] for name in FIT_SCHEMA.names}, schema=FIT_SCHEMA.with_metadata({"a": "b"}))


def test_components_are_given_on_the_axis_of_the_header_with_their_errors():
    errors = {"component_mean_errors": [0.1, 0.2], "component_stddev_errors": [0.3, np.nan]}
    table = with_physical_columns(fitted(**errors), BLOCK, geometry())
    assert table.schema == SCHEMA
    assert table.schema.metadata == {b"a": b"b"}
    # Channel 2, counted from 0, is the reference pixel 3. The axis decreases; widths and areas stay positive.
    assert table["component_means_physical"].to_pylist() == [[5000.0, 3000.0], []]
    assert table["component_mean_errors_physical"].to_pylist()[0] == pytest.approx([20.0, 40.0])
    assert table["component_stddevs_physical"].to_pylist() == [[300.0, 600.0], []]
    assert table["component_stddev_errors_physical"].to_pylist()[0] == pytest.approx([60.0, np.nan], nan_ok=True)
    assert table["component_fluxes_physical"].to_pylist() == [[800.0, 3000.0], []]


def test_columns_that_phspectra_does_not_give_stay_null():
    table = with_physical_columns(fitted(), BLOCK, geometry())
    assert table["component_means_physical"].to_pylist() == [[5000.0, 3000.0], []]
    for name in ("component_mean_errors", "component_stddev_errors", "component_fluxes", "component_flux_errors"):
        assert table[f"{name}_physical"].to_pylist() == [None, None]


def test_the_pixels_celestial_coordinates_are_those_of_the_chunk_and_null_off_the_sky():
    table = with_physical_columns(fitted(), BLOCK, geometry())
    assert table["longitude"].to_pylist() == [24.0, None]
    assert table["latitude"].to_pylist() == [-0.5, None]


@pytest.mark.parametrize("known", [None, geometry(ctype="VOPT-F2W"), geometry(ctype="FELO-LSR")])
def test_without_a_linear_axis_the_physical_columns_are_null(known):
    table = with_physical_columns(fitted(), SpectraBlock(BLOCK.spectra, BLOCK.x, BLOCK.y), known)
    assert table.schema == SCHEMA
    assert table["component_means_physical"].null_count == table["longitude"].null_count == 2


def test_a_velocity_that_names_its_rest_frame_is_linear():
    assert (
        with_physical_columns(fitted(), BLOCK, geometry(ctype="VELO-LSR"))["component_means_physical"].null_count == 0
    )
