"""The spectral axis as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.objects import CubeGeometry
from prismline_cube import SpectralAxis


def axis(cunit: str) -> SpectralAxis:
    fields: dict[str, Any] = {"ctype": "VRAD", "bunit": "K", "object_name": "", "cube_key": "c"}
    return SpectralAxis.of(
        CubeGeometry(n_channels=3, ny=1, nx=1, crval=5.0, crpix=1.0, cdelt=2.0, cunit=cunit, **fields)
    )


@pytest.mark.parametrize(
    ("cunit", "shown", "start"), [("m/s", "km/s", 5e-3), ("cm/s", "km/s", 5e-5), ("um", "um", 5.0)]
)
def test_a_unit_that_can_be_converted_is_shown_as_people_read_it(cunit: str, shown: str, start: float) -> None:
    assert (axis(cunit).unit, axis(cunit).start) == (shown, pytest.approx(start))


@pytest.mark.parametrize("cunit", ["m**(1/0)", "m**9999999999999999", "(" * 900, "1e999 m/s", "km/s/km*", "\x00"])
def test_any_other_text_is_the_label_of_the_axis(cunit: str) -> None:
    assert axis(cunit).unit == cunit
