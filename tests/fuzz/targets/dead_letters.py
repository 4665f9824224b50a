"""Records of the archive of dead letters: the recovery reads them, and the api shows them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.envelope import Envelope
from tests.fuzz.account import Process, empty
from tests.fuzz.mutations import encoded, json_bytes
from tests.fuzz.target import BrokenRuleError, Target
from tests.fuzz.targets.messages import AWS_EVENTS, examples
from tests.simulation.processes import declared_services

DAY, NAME = "2026-03-01", "message"
KEY = f"dead-letter-archive/sqs/{DAY}/{NAME}.json"
SERVICES = declared_services()
#: Messages of every service that has dead letters.
BODIES = [each for service in ("splitter", "worker", "status", "exporter") for each in examples(SERVICES[service])]
TIMES = {
    "ApproximateReceiveCount": "4",
    "SentTimestamp": "1772366400000",
    "ApproximateFirstReceiveTimestamp": "1772366400000",
}


def record(body: Any) -> dict[str, Any]:
    """The archive's record of a message."""
    attribute = {"stringValue": "2", "dataType": "String", "stringListValues": [], "binaryListValues": []}
    return {
        "body": json.dumps(body),
        "error": "It failed.",
        "execution": None,
        "time": "2026-03-01T12:00:00Z",
        "collection": "grs",
        "granules": ["chunk-0000000"],
        "md5OfBody": "0" * 32,
        "eventSource": "aws:sqs",
        "awsRegion": "us-east-1",
        "messageId": NAME,
        "receiptHandle": "receipt",
        "attributes": TIMES,
        "messageAttributes": {"attempt": attribute, "error": attribute | {"stringValue": "It failed."}},
        "run_id": "2d8e8c2e-24e0-5baa-a51f-9247927e610e",
        "chunk_id": "chunk-0000000",
        "source_queue": "chunks",
        "receive_count": 4,
        "archived_at": "2026-03-01T12:00:00.000Z",
        "recovery": None,
    }


@cache
def recovery() -> Process:
    return Process(SERVICES["recovery"])


@cache
def consumer() -> Process:
    return Process(SERVICES["dlq-consumer"])


def recover(data: bytes) -> str | None:
    """Put a record into the archive, and let the recovery send it back. It is sent, or stays among the failed ones."""
    aws = empty()
    bucket = next(iter(aws.objects))
    aws.s3.put_object(Bucket=bucket, Key=KEY, Body=data)
    command = DeadlettersRecover(operation_id="operation", requested_at="2026-03-01T12:00:00.000Z")
    refusal = recovery().take(Envelope.wrap(command, source="fuzz", traceparent=None).to_json())
    sent = sum(len(queue.messages) for queue in aws.queues.values())
    kept = len(aws.objects[bucket])
    if not sent + kept:
        raise BrokenRuleError("The record is lost: it was neither sent nor kept.")
    return refusal


def archive(data: bytes) -> str | None:
    """Let the dead-letter consumer take a message, with the attributes that its service gave it. It is archived."""
    aws, given = empty(), _message(data)
    attributes = given["attributes"] if isinstance(given.get("attributes"), dict) else {}
    texts = {name: value for name, value in attributes.items() if isinstance(value, str)}
    refusal = consumer().take(str(given.get("body")), texts)
    if not any(aws.objects.values()):
        raise BrokenRuleError("The message was not archived.")
    return refusal


def _message(data: bytes) -> dict[str, Any]:
    """The input as a message: an object with `body` and `attributes`, or the text itself as a body."""
    text = data.decode("utf-8", errors="replace")
    try:
        document = json.loads(re.sub(r"\\ud[89a-f]..", "?", text, flags=re.IGNORECASE))  # SQS carries no surrogates
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) and "body" in document else {"body": text}


def message(body: Any) -> dict[str, Any]:
    """A message in a dead-letter queue."""
    attributes = {"attempt": "2", "error": "It failed.", "first_sent": "2026-03-01T12:00:00.000Z", "waits_for": "gpu"}
    return {"body": json.dumps(body), "attributes": attributes}


AWS_MESSAGES = [event for events in AWS_EVENTS.values() for event in events]
HOSTILE = {
    "an_empty_object": b"",
    "a_list": b"[]",
    "nested_a_hundred_thousand_times": b"[" * 100_000,
    "bytes_that_are_not_utf_8": b'{"body": "\xff"}',
    "a_body_that_is_a_number": b'{"body": 7, "messageId": [], "source_queue": {}}',
    "a_body_with_half_of_a_surrogate_pair": b'{"body": "\\ud800", "messageId": "\\ud800", "source_queue": "chunks"}',
    "an_alarm_with_half_of_a_surrogate_pair": encoded(
        {"body": '{"Type": "Notification", "Message": "\ud800"}', "messageId": "m", "source_queue": "alerts"}
    ),
    "a_number_of_attempts_with_five_thousand_digits": encoded(
        {"body": "{}", "attributes": {"attempt": "9" * 5_000, "first_sent": "9" * 5_000}}
    ),
}
TARGETS = [
    Target("dead-letter-records", recover, json_bytes(*map(record, BODIES + AWS_MESSAGES)), HOSTILE, prepare=recovery),
    Target("dead-letters", archive, json_bytes(*map(message, BODIES + AWS_MESSAGES)), HOSTILE, prepare=consumer),
]
