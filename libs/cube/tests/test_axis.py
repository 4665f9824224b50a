"""The spectral axis as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.objects import CubeGeometry
from prismline_cube import DisplayAxis
from prismline_cube.axis import velocity_axis
from prismline_cube.errors import CubeError


def cube(**given: Any) -> CubeGeometry:
    fields: dict[str, Any] = {"ctype": "VRAD", "bunit": "K", "object_name": "", "cube_key": "c"}
    fields |= {"n_channels": 3, "ny": 1, "nx": 1, "crval": 5.0, "crpix": 1.0, "cdelt": 2.0}
    return CubeGeometry(**{**fields, **given})


def axis(cunit: str) -> DisplayAxis:
    return DisplayAxis.of(cube(cunit=cunit))


@pytest.mark.parametrize(
    ("cunit", "shown", "start"), [("m/s", "km/s", 5e-3), ("cm/s", "km/s", 5e-5), ("um", "um", 5.0)]
)
def test_a_unit_that_can_be_converted_is_shown_as_people_read_it(cunit: str, shown: str, start: float) -> None:
    assert (axis(cunit).unit, axis(cunit).start) == (shown, pytest.approx(start))


@pytest.mark.parametrize("cunit", ["m**(1/0)", "m**9999999999999999", "(" * 900, "1e999 m/s", "km/s/km*", "\x00"])
def test_any_other_text_is_the_label_of_the_axis(cunit: str) -> None:
    assert axis(cunit).unit == cunit


@pytest.mark.parametrize(
    "given", [{"cunit": "m/s"}, {"cunit": "km/s"}, {"ctype": "FREQ", "cunit": "Hz", "rest_frequency": 1.1e11}]
)
def test_velocities_and_frequencies_of_a_known_line_are_an_axis_for_lines(given: dict[str, Any]) -> None:
    assert velocity_axis(cube(**given)) == DisplayAxis.of(cube(**given))
    assert velocity_axis(cube(**given)).unit == "km/s"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ctype": "FREQ", "cunit": "Hz"}, "has no rest frequency; give the rest frequency of the line"),
        ({"ctype": "WAVE", "cunit": "um"}, "WAVE in um gives no velocities"),
        ({"ctype": "ZOPT", "cunit": ""}, "ZOPT in no unit gives no velocities"),
        ({"ctype": "VOPT-F2W", "cunit": "m/s"}, "VOPT-F2W has no constant step"),
        ({"cunit": "m/s", "cdelt": 0.0}, "gives no velocities"),
    ],
)
def test_any_other_axis_is_none_for_lines(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CubeError, match=message):
        velocity_axis(cube(**given))
