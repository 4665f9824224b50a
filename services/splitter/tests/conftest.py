from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests import splitter_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from splitter_world import SplitterWorld


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SplitterWorld:
    """Queues, table, bucket and bus of an environment of its own, and a splitter on them."""
    return SplitterWorld.create(aws_env["ENVIRONMENT"], monkeypatch, tmp_path)
