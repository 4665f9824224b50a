"""Metrics carry exactly the dimensions that the caller gave them."""

from __future__ import annotations

import json

import pytest
from aws_lambda_powertools.metrics import MetricUnit

from prismline_runtime import service_metrics


def emitted(capsys: pytest.CaptureFixture[str]) -> list[list[list[str]]]:
    """The dimension sets of each line of EMF on standard output."""
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line)["_aws"]["CloudWatchMetrics"][0]["Dimensions"] for line in lines]


def test_metrics_have_the_dimensions_that_were_added_and_no_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "prismline-status")
    for name in ("First", "Second"):
        with service_metrics("Status") as metrics:
            metrics.add_dimension(name=name, value="x")
            metrics.add_metric(name="StatusUpdates", unit=MetricUnit.Count, value=1)
    assert emitted(capsys) == [[["First"]], [["Second"]]]


def test_a_block_that_failed_emits_no_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with service_metrics("Status") as metrics:
            metrics.add_metric(name="StatusUpdates", unit=MetricUnit.Count, value=1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert capsys.readouterr().out == ""
