"""Fixtures of the tests of releases. Wheels are built once, even if tests run in several processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.releases import wheels


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> wheels.MadeOnce:
    """Makes a folder once for all processes of this test session. The other processes wait until it is complete."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # left by a process that failed or skipped
                make(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def built(made_once: wheels.MadeOnce) -> Path:
    """The folder of the wheels of this checkout."""
    return made_once("built", lambda folder: wheels.build(wheels.copy_of_sources(folder))) / "dist"


@pytest.fixture(scope="session")
def commands(built: Path, made_once: wheels.MadeOnce) -> Path:
    """The folder of commands of an environment with the harness, which needs all other packages."""
    return made_once("venv", lambda folder: wheels.environment_of(built, ["prismline-localstack"], folder)) / "bin"


@pytest.fixture(scope="session")
def home(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a system that runs from the wheels, with its services as functions."""
    folder = tmp_path_factory.mktemp("running")
    try:
        wheels.run([str(commands / "prismline"), "up", "--functions"], folder)
        yield folder
    finally:
        wheels.run([str(commands / "prismline"), "down"], folder)
