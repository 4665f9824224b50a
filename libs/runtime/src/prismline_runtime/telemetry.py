"""Structured logs and EMF metrics, with AWS Lambda Powertools."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from prismline_runtime.settings import ProcessSettings

#: Namespace prefix of all metrics.
METRICS_NAMESPACE = "Prismline"


def service_logger(service: str) -> Logger:
    """The logger of `service`. It writes JSON lines with appended keys such as `run_id` and `chunk_id`."""
    return Logger(service=f"prismline-{service}", utc=True)


def logged_document(line: str | bytes) -> dict[str, Any] | None:
    """A line that a service logged, parsed. None for any other line."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def logged_at(document: Mapping[str, Any]) -> datetime | None:
    """The moment of a line that a service logged. None if the line has none that can be read."""
    try:
        moment = datetime.fromisoformat(str(document.get("timestamp")))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def process_name() -> str:
    """The name of this process: that of its supervisor, its log stream on Lambda, or its host and number."""
    return ProcessSettings().process_name or f"{socket.gethostname()}-{os.getpid()}"


@contextmanager
def log_keys(logger: Logger, **keys: Any) -> Iterator[None]:
    """Add keys to the log lines of this thread in the block. Other threads of the process have their own keys."""
    logger.thread_safe_append_keys(**keys)
    try:
        yield
    finally:
        logger.thread_safe_remove_keys(keys)


@contextmanager
def service_metrics(suffix: str) -> Iterator[AmazonCloudWatchEMFProvider]:
    """EMF metrics in the namespace `Prismline/<suffix>`. They are written to standard output when the block succeeds.

    Each call has its own metric set, so that threads and dimensions do not mix.
    """
    metrics = AmazonCloudWatchEMFProvider(
        namespace=f"{METRICS_NAMESPACE}/{suffix}",
        metric_set={},
        dimension_set={},
        metadata_set={},
        default_dimensions={},
    )
    metrics.service = ""  # no dimension from POWERTOOLS_SERVICE_NAME: only the caller adds dimensions
    yield metrics
    metrics.flush_metrics()
