from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests and the children that they start import export_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from export_world import ExportWorld


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ExportWorld:
    """Queues, tables and a bucket of an environment of its own, and an exporter on them."""
    return ExportWorld.create(aws_env["ENVIRONMENT"], monkeypatch)
