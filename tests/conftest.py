"""Fixtures of the end-to-end tests: the whole system, running as processes on an emulator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import URL_SERVICES, System

#: Folder with real spectral cubes, if it exists beside the checkout.
SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Emulator and services, running for the whole session: all services except alerting and exporter."""
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(tmp_path_factory.mktemp("system"), patch, services=URL_SERVICES) as running,
    ):
        yield running
    assert "PRISMLINE_HOME" not in os.environ


@pytest.fixture
def faults(system: System) -> Iterator[System]:
    """The system. The fault rules that a test sets are removed after it."""
    yield system
    system.set_faults([])


@pytest.fixture(scope="session")
def grs_cube() -> Path:
    """A real cube of the Galactic Ring Survey: 424 channels, 10 x 10 pixels."""
    path = SHARED_DATA / "grs-test_field_10x10.fits"
    if not path.exists():
        pytest.skip("grs-test_field_10x10.fits is not beside the checkout; put it into ../shared/data to run this")
    return path
