"""Fixtures of the compose tests, which run the stack in real containers, and the figures that they measure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
import pytest

from prismline_localstack.settings import client_environment
from tests.compose.stack import LOCALSTACK_IMAGE, Stack, available, missing_engine, run, valkey_image
from tests.system import System


@dataclass(frozen=True)
class Figure:
    """The measured figures of one run, disturbed or not."""

    what: str
    chunks: int
    #: Attempts after the first one of each chunk.
    duplicates: int
    seconds: float


FIGURES: list[Figure] = []


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A container engine with the images of the services. Skips with the reason if no engine answers."""
    if reason := missing_engine():
        pytest.skip(f"No container engine: {reason}.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VALKEY_IMAGE", valkey_image())
        run("docker", "compose", "--profile", "*", "build")
        yield


@contextmanager
def connected(stack: Stack) -> Iterator[System]:
    """The system in the containers of a stack, used from the host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it may hold the credentials of another system
        for name, value in client_environment(stack.endpoint, stack.secret).items():
            patch.setenv(name, value)
        yield System.connected("local", stack.faults_file)


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack on the emulator that the module names as `EMULATOR`."""
    emulator: str = request.module.EMULATOR
    if emulator == "localstack" and not available(LOCALSTACK_IMAGE):
        pytest.skip(f"{LOCALSTACK_IMAGE} is not here and cannot be pulled.")
    with Stack.running(tmp_path_factory.mktemp("compose"), emulator) as running:
        yield running


@pytest.fixture(scope="module")
def system(stack: Stack) -> Iterator[System]:
    """The system in the stack's containers."""
    with connected(stack) as system:
        yield system


@contextmanager
def measured(system: System, run_id: str, what: str) -> Iterator[None]:
    """Record the figures of a run in the block. The run has to exist before."""
    began = time.monotonic()
    yield
    chunks = system.chunks(run_id)
    duplicates = sum(chunk.attempts - 1 for chunk in chunks)
    FIGURES.append(Figure(what, len(chunks), duplicates, time.monotonic() - began))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    if FIGURES:
        terminalreporter.section("figures")
        terminalreporter.write_line(f"{'disturbance':48} chunks  attempts too many  seconds")
        for figure in FIGURES:
            line = f"{figure.what:48} {figure.chunks:6}  {figure.duplicates:17}  {figure.seconds:7.1f}"
            terminalreporter.write_line(line)
