"""A delivery: one receipt of one SQS message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


@dataclass(frozen=True)
class Delivery:
    """One receipt of one message. A message that is received again is another delivery."""

    queue: str
    message_id: str
    receipt_handle: str
    body: str
    receive_count: int
    #: The message's attributes of type String, by name.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: Returns the milliseconds until the time limit of the invocation.
    remaining_ms: Callable[[], int] = field(default=lambda: 900_000, repr=False)

    @classmethod
    def of(cls, record: SQSRecord, remaining_ms: Callable[[], int]) -> Delivery:
        """Make a delivery from a record of a Lambda SQS event."""
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
        """The end of the invocation minus `margin_seconds`, in seconds of `time.monotonic`."""
        return time.monotonic() + self.remaining_ms() / 1000 - margin_seconds
