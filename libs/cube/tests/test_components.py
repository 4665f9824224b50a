"""Values of maps from the rows of a decomposition, and the spectral axis that they are on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy import units

from prismline_contracts.maps import MapName
from prismline_contracts.objects import CubeGeometry, LineProfile
from prismline_cube import MAP_COLUMNS, DisplayAxis, gaussians, is_thick, map_values, single_gaussians

AXIS = DisplayAxis("Velocity", "km/s", start=-5.0, step=-0.5)

#: Two components, the second of which is the strongest; none; no data; out of time.
ROWS: list[dict[str, Any]] = [
    {"a": [1.0, 3.0], "m": [10.0, 20.0], "s": [4.0, 2.0], "status": "fitted", "n": 2, "rms": 0.1, "chi2": 1.5, "f": 1},
    {"a": [], "m": [], "s": [], "status": "empty", "n": 0, "rms": 0.2, "chi2": None, "f": 0},
    {"a": [], "m": [], "s": [], "status": "blank", "n": 0, "rms": None, "chi2": None, "f": 64},
    {"a": None, "m": None, "s": None, "status": "timed_out", "n": -1, "rms": 0.4, "chi2": None, "f": 16},
]
NAMES = {
    "a": "component_amplitudes",
    "m": "component_means",
    "s": "component_stddevs",
    "status": "status",
    "n": "n_components",
    "rms": "rms",
    "chi2": "chi2_reduced",
    "f": "flags",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (MapName.INTEGRATED, [math.sqrt(2 * math.pi) * 10.0 * 0.5, 0.0, math.nan, math.nan]),
        (MapName.COMPONENTS, [2.0, 0.0, math.nan, math.nan]),
        (MapName.CENTROID, [-5.0 - 0.5 * 16.0, math.nan, math.nan, math.nan]),
        (MapName.VELOCITY, [-15.0, math.nan, math.nan, math.nan]),
        (MapName.WIDTH, [1.0, math.nan, math.nan, math.nan]),
        (MapName.RMS, [0.1, 0.2, math.nan, 0.4]),
        (MapName.CHI2, [1.5, math.nan, math.nan, math.nan]),
        (MapName.FLAGS, [1.0, 0.0, 64.0, 16.0]),
    ],
)
@pytest.mark.parametrize("rows", [ROWS, ROWS[1:], []])
def test_the_value_of_each_row(name: MapName, expected: list[float], rows: list[dict[str, Any]]) -> None:
    lists = pa.list_(pa.float64())
    types = {"a": lists, "m": lists, "s": lists, "status": pa.string(), "n": pa.int32(), "f": pa.int32()}
    columns = {
        long: pa.array([row[short] for row in rows], types.get(short, pa.float64())) for short, long in NAMES.items()
    }
    columns["component_fluxes"] = pa.nulls(len(rows), lists)  # as phspectra leaves them
    table = pa.table({column: columns[column] for column in MAP_COLUMNS[name]})
    np.testing.assert_allclose(map_values(table, name, AXIS), expected[4 - len(rows) :])


@pytest.mark.parametrize(("usual", "unusual"), [("m/s", "m s-1"), ("km/s", "km s-1"), ("Hz", "s-1"), ("GHz", "ns-1")])
def test_a_unit_is_shown_the_same_however_the_header_spells_it(usual: str, unusual: str) -> None:
    geometry = CubeGeometry(
        n_channels=9, ny=1, nx=1, ctype="VRAD", crval=7.0, crpix=1.0, cdelt=2.0, cunit=usual, bunit="K",
        object_name="", cube_key="c",
    )  # fmt: skip
    axis = DisplayAxis.of(geometry)
    other = DisplayAxis.of(geometry.model_copy(update={"cunit": unusual}))
    assert (axis.unit, axis.start, axis.step) == (other.unit, pytest.approx(other.start), pytest.approx(other.step))


@pytest.mark.parametrize("cunit", ["Hz", "MHz", "GHz", "ns-1"])
def test_frequencies_are_radio_velocities_where_the_rest_frequency_is_known(cunit: str) -> None:
    rest, first, step = 115.2712018e9, 115.30e9, -61e3
    scale = units.Hz.to(units.Unit(cunit))
    geometry = CubeGeometry(
        n_channels=900, ny=1, nx=1, ctype="FREQ", crval=first * scale, crpix=1.0, cdelt=step * scale, cunit=cunit,
        bunit="K", object_name="", cube_key="c", rest_frequency=rest,
    )  # fmt: skip
    axis = DisplayAxis.of(geometry)
    channels = np.arange(900)
    expected = ((first + step * channels) * units.Hz).to_value("km/s", units.doppler_radio(rest * units.Hz))
    assert (axis.name, axis.unit) == ("Velocity", "km/s")
    np.testing.assert_allclose(axis.at(channels), expected, rtol=1e-10, atol=1e-9)


def test_frequencies_stay_frequencies_without_a_rest_frequency() -> None:
    geometry = CubeGeometry(
        n_channels=9, ny=1, nx=1, ctype="FREQ", crval=1e9, crpix=1.0, cdelt=1e6, cunit="Hz", bunit="K",
        object_name="", cube_key="c",
    )  # fmt: skip
    assert (DisplayAxis.of(geometry).unit, DisplayAxis.of(geometry).start) == ("GHz", pytest.approx(1.0))


def test_a_component_with_a_line_is_the_sum_of_its_lines() -> None:
    line = LineProfile(offsets=[-5.0, 0.0, 7.5], weights=[0.25, 0.5, 0.25])
    components, channels = np.array([[2.0, 20.0, 1.5], [4.0, 30.0, 2.0]]), np.arange(60.0)
    parts = single_gaussians(components, line)
    assert parts[:3].tolist() == [[0.5, 15.0, 1.5], [1.0, 20.0, 1.5], [0.5, 27.5, 1.5]]
    summed = gaussians(parts, channels).reshape(2, 3, 60).sum(axis=1)
    np.testing.assert_allclose(gaussians(components, channels, line), summed, atol=1e-12)
    assert single_gaussians(components) is components


def test_an_optical_depth_flattens_the_sum_of_the_lines() -> None:
    line = LineProfile(offsets=[-5.0, 0.0], weights=[0.25, 0.75])
    components, channels = np.array([[2.0, 20.0, 1.5, 6.0], [4.0, 30.0, 2.0, math.nan]]), np.arange(60.0)
    thin = gaussians(components[:, :3], channels, line)
    thick = gaussians(components, channels, line)
    np.testing.assert_allclose(thick[0], 2.0 / 6.0 * (1.0 - np.exp(-6.0 * thin[0] / 2.0)), atol=1e-12)
    np.testing.assert_array_equal(thick[1], thin[1])
    assert (is_thick(components), is_thick(components[1:]), is_thick(components[:, :3])) == (True, False, False)


def test_areas_are_those_of_the_table_where_it_has_them() -> None:
    """The area of a component with an optical depth is less than that of a Gaussian."""
    lists = pa.list_(pa.float64())
    table = pa.table(
        {
            "component_amplitudes": pa.array([[2.0, 1.0], [3.0], []], lists),
            "component_means": pa.array([[2.0, 8.0], [4.0], []], lists),
            "component_stddevs": pa.array([[1.0, 2.0], [1.0], []], lists),
            "component_fluxes": pa.array([[1.0, 3.0], None, []], lists),
            "status": ["fitted", "fitted", "empty"],
        }
    )
    step = abs(AXIS.step)
    expected = [4.0 * step, 3.0 * math.sqrt(2 * math.pi) * step, 0.0]
    np.testing.assert_allclose(map_values(table, MapName.INTEGRATED, AXIS), expected)
    np.testing.assert_allclose(map_values(table, MapName.CENTROID, AXIS)[:2], AXIS.at(np.array([6.5, 4.0])))
