"""Structured logs and EMF metrics, through AWS Lambda Powertools."""

from __future__ import annotations

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics

#: Namespace prefix of all metrics.
METRICS_NAMESPACE = "Prismline"


def service_logger(service: str) -> Logger:
    """The logger of `service`: JSON lines, with whatever keys are appended (`run_id`, `chunk_id`, ...)."""
    return Logger(service=f"prismline-{service}", utc=True)


def service_metrics(suffix: str) -> EphemeralMetrics:
    """EMF metrics under `Prismline/<suffix>`; a metric set of its own each call, so that threads do not share one."""
    return EphemeralMetrics(namespace=f"{METRICS_NAMESPACE}/{suffix}")
