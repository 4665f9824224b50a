"""The lines of a run on the channels of its cube."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prismline_contracts.base import noise_can_have
from prismline_contracts.manifest import FitParams, KnownLine, LineTable
from prismline_cube.errors import CubeError
from prismline_cube.header import CubeHeader, describe
from prismline_gaussline import decompose, kernel_available
from prismline_gaussline.hyperfine import GROUPS
from prismline_runtime import PermanentError
from prismline_splitter.geometry import geometry_of
from prismline_splitter.submission import parse_manifest

VELOCITY = {"CTYPE3": "VRAD", "CRVAL3": 0.0, "CRPIX3": 1.0, "CDELT3": -200.0, "CUNIT3": "m/s"}


def cube(**cards: object) -> CubeHeader:
    return describe(fits.PrimaryHDU(np.zeros((9, 2, 3), np.float32), fits.Header(cards)).header, 2880)


def test_the_names_of_the_contract_are_those_that_gaussline_knows() -> None:
    assert set(get_args(KnownLine)) == set(GROUPS)


def test_a_named_line_has_its_offsets_in_channels() -> None:
    line = geometry_of(cube(**VELOCITY), "c", FitParams(line="hcn_1-0", decomposer="hyperfine")).line
    assert line is not None
    assert line.name == "hcn_1-0"
    np.testing.assert_allclose(line.offsets, np.array(GROUPS["hcn_1-0"].offsets) / -0.2)
    assert sum(line.weights) == pytest.approx(1.0)


def test_a_table_has_no_name_and_weights_with_the_sum_one() -> None:
    table = LineTable(offsets=[0.0, 4.0], weights=[3.0, 1.0])
    line = geometry_of(cube(**VELOCITY), "c", FitParams(line=table, decomposer="hyperfine")).line
    assert line is not None
    assert (line.name, line.offsets, line.weights) == (None, [0.0, -20.0], [0.75, 0.25])


def test_a_given_rest_frequency_comes_before_that_of_the_header() -> None:
    frequency = {"CTYPE3": "FREQ", "CRVAL3": 1.1e11, "CRPIX3": 1.0, "CDELT3": 1e5, "CUNIT3": "Hz", "RESTFRQ": 1.09e11}
    assert geometry_of(cube(**frequency), "c", FitParams()).rest_frequency == 1.09e11
    assert geometry_of(cube(**frequency), "c", FitParams(rest_frequency=1.1e11)).rest_frequency == 1.1e11


@pytest.mark.skipif(not kernel_available(), reason="the kernel takes correlations")
@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=7))
def test_the_contract_refuses_the_correlations_that_gaussline_refuses(lags: list[float]) -> None:
    distances = np.abs(np.subtract.outer(range(len(lags) + 1), range(len(lags) + 1)))
    assume(abs(np.linalg.eigvalsh(np.array([1.0, *lags])[distances])[0] + 0.05) > 1e-9)
    try:
        decompose(np.zeros((1, 5)), noise=1.0, correlation=[1.0, *lags])
    except ValueError:
        accepted = False
    else:
        accepted = True
    assert noise_can_have([1.0, *lags]) == accepted


def test_a_correlation_that_no_noise_can_have_is_refused_with_the_manifest() -> None:
    with pytest.raises(PermanentError, match=r"params\.correlation.*no noise has this correlation"):
        parse_manifest(b'{"survey": "s", "cube_key": "k", "params": {"correlation": [1.0, 0.9, -0.9]}}', "m")


def test_a_line_without_an_axis_for_it_is_refused() -> None:
    with pytest.raises(CubeError, match="gives no velocities"):
        geometry_of(cube(CTYPE3="WAVE"), "c", FitParams(line="hcn_1-0", decomposer="hyperfine"))
