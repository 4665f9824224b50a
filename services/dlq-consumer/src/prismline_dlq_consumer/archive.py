"""The archive: one object for each receipt of each dead letter, by the date on which it was archived."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from prismline_contracts import FAILED_DEAD_LETTERS_PREFIX, DeadLetterRecord, dead_letter_key
from prismline_dlq_consumer.dead_letter import DeadLetter, describe, sqs_receive_count
from prismline_runtime import Bucket


def dead_letter_record(record: Mapping[str, Any], message: DeadLetter, archived_at: str) -> DeadLetterRecord:
    """What the archive keeps of a record of a Lambda SQS event."""
    found = describe(message.body)
    return DeadLetterRecord.model_construct(  # not validated: what is kept is what came, whatever it is
        body=message.body,
        error=message.error or message.invalid or found.error,
        execution=found.execution,
        time=found.time,
        collection=found.collection,
        granules=found.granules,
        stateMachine=found.state_machine,
        status=found.status,
        md5OfBody=record.get("md5OfBody"),
        eventSource=record.get("eventSource"),
        awsRegion=record.get("awsRegion"),
        messageId=message.message_id,
        receiptHandle=record.get("receiptHandle"),
        attributes=record.get("attributes"),
        messageAttributes=record.get("messageAttributes"),
        run_id=found.run_id,
        chunk_id=found.chunk_id,
        source_queue=message.source_queue,
        receive_count=sqs_receive_count(record),
        archived_at=archived_at,
        recovery=operation_of(message.recovery),
    )


def operation_of(recovery: str | None) -> str | None:
    """The operation that a message's recovery token belongs to."""
    return recovery.partition("/")[0] if recovery else None


def to_json(record: DeadLetterRecord) -> bytes:
    """The record as an object's content: ASCII, so that even text that is no Unicode survives; on one line."""
    return json.dumps(dict(record), default=_base64).encode()


def _base64(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


def failed_key(key: str, date: str) -> str:
    """Where a record goes that could not be recovered; `date` as `2026-03-01`."""
    return f"{FAILED_DEAD_LETTERS_PREFIX}{date}/{PurePosixPath(key).name}"


class Archive:
    """Writes dead letters. Raises TransientError when S3 cannot be reached."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def write(self, record: DeadLetterRecord) -> str:
        """Keep `record`; its key. Written again, it is the same object."""
        date = (record.archived_at or "")[:10]
        key = dead_letter_key(date, record.messageId or "", record.receive_count or 0)
        self._bucket.write(key, to_json(record))
        return key
