"""Parameters of older and newer releases."""

from __future__ import annotations

import pytest

from prismline_contracts.manifest import FitParams
from prismline_runtime import PermanentError, UnavailableError
from prismline_worker.params import read_params


def test_a_parameter_that_was_not_given_has_its_default() -> None:
    assert read_params(FitParams, {"beta": 4.0}) == FitParams(beta=4.0)


@pytest.mark.parametrize("given", [{"smoothing": 2}, {"preset": "fastest"}])
def test_a_parameter_of_a_newer_release_waits_for_a_newer_worker(given: dict[str, object]) -> None:
    with pytest.raises(UnavailableError, match="deploy a newer worker"):
        read_params(FitParams, given)


def test_a_value_that_no_release_accepts_fails_the_chunk() -> None:
    with pytest.raises(PermanentError, match="beta: Input should be greater than 0"):
        read_params(FitParams, {"beta": -1.0})
