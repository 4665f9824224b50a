"""Fixtures of the tests of releases: wheels are built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.releases import wheels


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheels of this checkout."""
    return wheels.build(wheels.copy_of_sources(tmp_path_factory.mktemp("wheels") / "checkout"))


@pytest.fixture(scope="session")
def commands(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the harness, which needs all other packages."""
    return wheels.environment_of(built, ["prismline-localstack"], tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="session")
def home(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a system that runs from the wheels, its services as functions."""
    folder = tmp_path_factory.mktemp("running")
    try:
        wheels.run([str(commands / "prismline"), "up", "--functions"], folder)
        yield folder
    finally:
        wheels.run([str(commands / "prismline"), "down"], folder)
