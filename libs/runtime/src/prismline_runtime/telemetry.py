"""Structured logs and EMF metrics, through AWS Lambda Powertools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

#: Namespace prefix of all metrics.
METRICS_NAMESPACE = "Prismline"


def service_logger(service: str) -> Logger:
    """The logger of `service`: JSON lines, with whatever keys are appended (`run_id`, `chunk_id`, ...)."""
    return Logger(service=f"prismline-{service}", utc=True)


@contextmanager
def service_metrics(suffix: str) -> Iterator[AmazonCloudWatchEMFProvider]:
    """EMF metrics under `Prismline/<suffix>`, written to standard output when the block ends well.

    Each call has a metric set of its own, so that neither threads nor dimensions mix.
    """
    metrics = AmazonCloudWatchEMFProvider(
        namespace=f"{METRICS_NAMESPACE}/{suffix}",
        metric_set={},
        dimension_set={},
        metadata_set={},
        default_dimensions={},
    )
    metrics.service = ""  # dimensions are those that the caller adds, whatever POWERTOOLS_SERVICE_NAME says
    yield metrics
    metrics.flush_metrics()
