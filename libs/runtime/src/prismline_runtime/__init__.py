"""The runtime of every Prismline service: routing, sending, storage, DynamoDB, errors, settings, telemetry."""

from prismline_runtime.delivery import Delivery
from prismline_runtime.downloads import Download, download_of
from prismline_runtime.dynamodb import (
    CALLS_SIDE_BY_SIDE,
    Change,
    Page,
    RefusedError,
    Table,
    decode,
    encode,
    side_by_side,
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
    SENT_AGAIN,
    Message,
    Work,
    describe_error,
    describe_invalid,
    queue_handler,
    undelivered_envelope,
)
from prismline_runtime.run_queues import NO_QUEUE_CODES, RunQueues
from prismline_runtime.settings import ServiceSettings
from prismline_runtime.storage import Bucket, TooLargeError
from prismline_runtime.telemetry import service_logger, service_metrics
from prismline_runtime.transport import Transport, batches

__all__ = [
    "CALLS_SIDE_BY_SIDE",
    "NO_QUEUE_CODES",
    "SENT_AGAIN",
    "Bucket",
    "Change",
    "Delivery",
    "Download",
    "Instances",
    "Message",
    "NewerReleaseError",
    "Page",
    "PermanentError",
    "PresignedRanges",
    "PrismlineError",
    "RefusedError",
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
    "cause_of",
    "decode",
    "describe_error",
    "describe_invalid",
    "download_of",
    "encode",
    "error_code",
    "fault_point",
    "is_unexpected",
    "queue_handler",
    "reader_errors",
    "service_logger",
    "service_metrics",
    "side_by_side",
    "unchanged",
    "undelivered_envelope",
]
