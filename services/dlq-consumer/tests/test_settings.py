"""The consumer's default settings."""

from __future__ import annotations

import pytest

from prismline_dlq_consumer.settings import DlqConsumerSettings


def test_captions_wait_for_the_gpu_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS_TABLE", "runs")
    monkeypatch.setenv("BUCKET", "bucket")
    assert DlqConsumerSettings().workload_resources == {"captions": "gpu"}
    monkeypatch.setenv("WORKLOAD_RESOURCES", "{}")
    assert DlqConsumerSettings().workload_resources == {}
