"""Metrics carry exactly the dimensions that the caller gave them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from aws_lambda_powertools.metrics import MetricUnit

from prismline_runtime import logged_at, logged_document, service_logger, service_metrics


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


def test_a_line_that_a_service_logs_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    service_logger("reader").warning("hello", extra={"run_id": "r"})
    document = logged_document(capsys.readouterr().out)
    assert document is not None
    assert (document["message"], document["run_id"]) == ("hello", "r")
    moment = logged_at(document)
    assert moment is not None
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize("line", ["", "[1]", "{", "Traceback (most recent call last):", b"\xff", "[" * 100_000])
def test_another_line_is_none_of_a_service(line: str | bytes) -> None:
    assert logged_document(line) is None


def test_a_line_without_a_readable_time_has_no_moment() -> None:
    assert logged_at({}) is None
    assert logged_at({"timestamp": "yesterday"}) is None
