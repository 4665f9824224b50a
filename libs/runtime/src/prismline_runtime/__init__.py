"""The runtime of every Prismline service: routing, sending, storage, DynamoDB, errors, settings, telemetry.

A name is imported when it is first used, because boto3 and the batch processor take half a second that a command or a
process which does not need them would wait for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prismline_runtime.delivery import Delivery
    from prismline_runtime.downloads import Download, download_of
    from prismline_runtime.dynamodb import (
        CONCURRENT_CALLS,
        Change,
        ConditionFailedError,
        Page,
        Table,
        call_concurrently,
        decode,
        encode,
        unchanged,
    )
    from prismline_runtime.errors import (
        NewerReleaseError,
        PermanentError,
        PrismlineError,
        ResourceUnavailableError,
        TransientError,
        UnavailableError,
        aws_errors,
        cause_of,
        error_code,
        is_unexpected,
        reader_errors,
    )
    from prismline_runtime.faults import fault_point
    from prismline_runtime.instances import Instances
    from prismline_runtime.presigned import PresignedRanges
    from prismline_runtime.routing import (
        FIRST_BACKOFF_SECONDS,
        MAX_BACKOFF_SECONDS,
        SENT_AGAIN,
        Message,
        Work,
        describe_error,
        describe_invalid,
        queue_handler,
        undelivered_envelope,
        without_credentials,
    )
    from prismline_runtime.run_queues import NO_QUEUE_CODES, RunQueues
    from prismline_runtime.settings import ServiceSettings
    from prismline_runtime.storage import Bucket, TooLargeError
    from prismline_runtime.telemetry import logged_at, logged_document, process_name, service_logger, service_metrics
    from prismline_runtime.transport import Transport, batches

#: The module of each name.
_MODULES = {
    "CONCURRENT_CALLS": "dynamodb",
    "NO_QUEUE_CODES": "run_queues",
    "FIRST_BACKOFF_SECONDS": "routing",
    "MAX_BACKOFF_SECONDS": "routing",
    "SENT_AGAIN": "routing",
    "Bucket": "storage",
    "Change": "dynamodb",
    "Delivery": "delivery",
    "Download": "downloads",
    "Instances": "instances",
    "Message": "routing",
    "NewerReleaseError": "errors",
    "Page": "dynamodb",
    "PermanentError": "errors",
    "PresignedRanges": "presigned",
    "PrismlineError": "errors",
    "ConditionFailedError": "dynamodb",
    "ResourceUnavailableError": "errors",
    "RunQueues": "run_queues",
    "ServiceSettings": "settings",
    "Table": "dynamodb",
    "TooLargeError": "storage",
    "TransientError": "errors",
    "Transport": "transport",
    "UnavailableError": "errors",
    "Work": "routing",
    "aws_errors": "errors",
    "batches": "transport",
    "cause_of": "errors",
    "decode": "dynamodb",
    "describe_error": "routing",
    "describe_invalid": "routing",
    "download_of": "downloads",
    "encode": "dynamodb",
    "error_code": "errors",
    "fault_point": "faults",
    "is_unexpected": "errors",
    "logged_at": "telemetry",
    "logged_document": "telemetry",
    "process_name": "telemetry",
    "queue_handler": "routing",
    "reader_errors": "errors",
    "service_logger": "telemetry",
    "service_metrics": "telemetry",
    "call_concurrently": "dynamodb",
    "unchanged": "dynamodb",
    "undelivered_envelope": "routing",
    "without_credentials": "routing",
}

__all__ = [
    "CONCURRENT_CALLS",
    "FIRST_BACKOFF_SECONDS",
    "MAX_BACKOFF_SECONDS",
    "NO_QUEUE_CODES",
    "SENT_AGAIN",
    "Bucket",
    "Change",
    "ConditionFailedError",
    "Delivery",
    "Download",
    "Instances",
    "Message",
    "NewerReleaseError",
    "Page",
    "PermanentError",
    "PresignedRanges",
    "PrismlineError",
    "ResourceUnavailableError",
    "RunQueues",
    "ServiceSettings",
    "Table",
    "TooLargeError",
    "TransientError",
    "Transport",
    "UnavailableError",
    "Work",
    "aws_errors",
    "batches",
    "call_concurrently",
    "cause_of",
    "decode",
    "describe_error",
    "describe_invalid",
    "download_of",
    "encode",
    "error_code",
    "fault_point",
    "is_unexpected",
    "logged_at",
    "logged_document",
    "process_name",
    "queue_handler",
    "reader_errors",
    "service_logger",
    "service_metrics",
    "unchanged",
    "undelivered_envelope",
    "without_credentials",
]


def __getattr__(name: str) -> Any:
    """Import `name` from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
