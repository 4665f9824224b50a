"""The services as Lambda functions: deployed as to AWS, run by awslambdaric, fed from queues as Lambda feeds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_localstack.home import Home
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import System

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system whose services are functions."""
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(tmp_path_factory.mktemp("functions"), patch, functions=True) as running,
    ):
        yield running


def invocations(function: str) -> list[dict[str, Any]]:
    """What the driver logged about the invocations of a function, by its short name."""
    lines = Home.at(None).log("functions").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in found if each["message"] == "invocation" and each["function"].endswith(f"-{function}")]


def test_a_cube_is_decomposed_by_functions(functions: System, tmp_path: Path) -> None:
    run_id = functions.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=5), chunk_size=5)
    view = functions.wait(run_id)
    assert (view.status, view.completed, view.failed, view.total) == ("completed", 4, 0, 4)
    assert len(functions.table(run_id)) == 20
    assert_invariants(functions, run_id, nx=5)
    for function in ("splitter", "worker", "status"):
        assert [each for each in invocations(function) if "error" in each] == []
        assert invocations(function), "each service did its part as a function"
