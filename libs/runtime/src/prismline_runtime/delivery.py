"""A received message, as a service sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


@dataclass(frozen=True)
class Delivery:
    """One receipt of one message from a queue."""

    queue: str
    message_id: str
    receipt_handle: str
    body: str
    receive_count: int
    #: Text attributes of the message, by name.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: Milliseconds that the invocation may still take.
    remaining_ms: Callable[[], int] = field(default=lambda: 900_000, repr=False)

    @classmethod
    def of(cls, record: SQSRecord, remaining_ms: Callable[[], int]) -> Delivery:
        """Read a record of a Lambda SQS event."""
        return cls(
            queue=record.event_source_arn.rsplit(":", 1)[-1],
            message_id=record.message_id,
            receipt_handle=record.receipt_handle,
            body=record.body,
            receive_count=int(record.attributes.approximate_receive_count),
            attributes={
                name: value["stringValue"]
                for name, value in (record.raw_event.get("messageAttributes") or {}).items()
                if value.get("stringValue") is not None
            },
            remaining_ms=remaining_ms,
        )

    def deadline(self, margin_seconds: float) -> float:
        """The moment (`time.monotonic` seconds) by which work must end to leave `margin_seconds` for the rest."""
        return time.monotonic() + self.remaining_ms() / 1000 - margin_seconds
