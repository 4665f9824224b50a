from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests import splitter_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from splitter_world import SplitterWorld


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SplitterWorld:
    """A splitter with its own environment: queues, table, bucket and bus."""
    return SplitterWorld.create(aws_env["ENVIRONMENT"], monkeypatch, tmp_path)
