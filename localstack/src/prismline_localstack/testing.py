"""Pytest fixtures: an emulator for a test session, and an environment that points at it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def emulator_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of an embedded emulator that the whole test session shares."""
    from prismline_localstack.emulator import Emulator  # noqa: PLC0415  the plugin is imported in every test session

    folder = tmp_path_factory.mktemp("emulator")
    emulator = Emulator.start(folder, folder / "emulator.log")
    yield emulator.endpoint
    emulator.stop()


@pytest.fixture
def aws_env(emulator_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """`os.environ` made to point at the emulator, with an `ENVIRONMENT` that no other test has.

    Resource names contain the environment, so tests that share the emulator do not meet. Returns what was set.
    """
    from prismline_localstack.settings import client_environment  # noqa: PLC0415

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    environment = client_environment(emulator_endpoint) | {"ENVIRONMENT": f"t{secrets.token_hex(4)}"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment
