from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests import cli_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from cli_world import CliWorld


@pytest.fixture
def world(aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliWorld:
    """An environment with empty tables and an empty bucket, and the command in it."""
    home = tmp_path / "home"
    monkeypatch.setenv("PRISMLINE_HOME", str(home))
    return CliWorld.create(aws_env, home)
