from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests import cli_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from cli_world import CliWorld


@pytest.fixture
def world(aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliWorld]:
    """An environment with empty tables and an empty bucket, the api, and the command in it."""
    home = tmp_path / "home"
    monkeypatch.setenv("PRISMLINE_HOME", str(home))
    world = CliWorld.create(aws_env, home)
    with world.serving_api(monkeypatch):
        yield world
