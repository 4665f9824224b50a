from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests and the children that they start import dlq_world by name.
sys.path.insert(0, str(Path(__file__).parent))

from dlq_world import DlqConsumerWorld


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> DlqConsumerWorld:
    """Queues, table, bucket and bus of an environment of its own, and a dead-letter consumer on them."""
    return DlqConsumerWorld.create(aws_env["ENVIRONMENT"], monkeypatch)
