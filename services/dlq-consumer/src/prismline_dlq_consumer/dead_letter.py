"""A dead letter, read as far as it makes sense. Pure, and total: whatever the message holds, it can be described."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from prismline_contracts import ChunkProcess, Envelope, RunSplit, SpectraRefit, dead_letter_queue_name
from prismline_contracts.schemas import MESSAGES
from prismline_runtime import describe_invalid

#: Events of AWS services that our queues subscribe to.
AWS_EVENTS = (
    ("aws.events", "Scheduled Event"),
    ("aws.s3", "Object Created"),
    ("aws.states", "Step Functions Execution Status Change"),
)
#: How a message of an SNS topic calls itself.
SNS_MESSAGE = "Notification"
#: How a Step Functions status change calls itself.
EXECUTION_CHANGE = "Step Functions Execution Status Change"
#: How often SQS has counted a message as received when it moves it to a dead-letter queue: our queues' maxReceiveCount.
#: The count goes on across queues (API reference of ReceiveMessage), so receipts by the consumer begin after these.
RECEIVES_BEFORE_MOVE = 5


@dataclass(frozen=True)
class DeadLetter:
    """What a message in a dead-letter queue turned out to be."""

    message_id: str
    #: Short name of the queue that gave up on it.
    source_queue: str
    body: str
    #: Receipts by the dead-letter consumer, this one included.
    receive_count: int
    #: Why the service that had it gave up on it at once, where it said so: repeating the work would be no use.
    error: str | None = None
    #: The resource that was down when the service wanted to work on it.
    waits_for: str | None = None
    #: Why it is no message of a contract.
    invalid: str | None = None
    envelope: Envelope | None = None
    #: Its command, where it is one whose progress the ledger knows.
    command: RunSplit | ChunkProcess | SpectraRefit | None = None
    #: How often the message has been dispatched, the first time included.
    attempt: int = 1
    #: Deferrals of its chunk before this dispatch.
    deferrals: int = 0
    #: The recovery that it is part of.
    recovery: str | None = None

    @property
    def chunk_name(self) -> tuple[str, str] | None:
        """Run and chunk id of the chunk that the command is about."""
        if isinstance(self.command, ChunkProcess | SpectraRefit):
            return self.command.run_id, self.command.chunk_id
        return None

    @property
    def workload(self) -> str | None:
        """The workload of its chunk."""
        return self.command.workload if isinstance(self.command, ChunkProcess) else None


def source_queue_of(queue_arn: str, environment: str) -> str:
    """The short name of the queue whose dead-letter queue this is: `...:prismline-dev-chunks-dlq` -> `chunks`."""
    name = queue_arn.rsplit(":", 1)[-1]
    return name.removeprefix(f"prismline-{environment}-").removesuffix(dead_letter_queue_name(""))


def text_attributes(record: Mapping[str, Any]) -> dict[str, str]:
    """The text attributes of a message in a Lambda SQS event."""
    attributes = record.get("messageAttributes") or {}
    return {
        name: value["stringValue"]
        for name, value in attributes.items()
        if isinstance(value, Mapping) and isinstance(value.get("stringValue"), str)
    }


def sqs_receive_count(record: Mapping[str, Any]) -> int:
    """How often SQS says that the message was received."""
    return _count((record.get("attributes") or {}).get("ApproximateReceiveCount"), default=1)


def read_dead_letter(record: Mapping[str, Any], environment: str) -> DeadLetter:
    """The dead letter in a record of a Lambda SQS event."""
    carried = text_attributes(record)
    received = sqs_receive_count(record)
    if "DeadLetterQueueSourceArn" in (record.get("attributes") or {}):
        received = max(1, received - RECEIVES_BEFORE_MOVE)
    envelope, command, invalid = parse(record["body"])
    attempt, deferrals, recovery = _count(carried.get("attempt"), default=1), 0, carried.get("recovery")
    if isinstance(command, ChunkProcess):
        attempt, deferrals, recovery = command.attempt, command.deferrals, command.recovery
    return DeadLetter(
        message_id=record["messageId"],
        source_queue=source_queue_of(record.get("eventSourceARN") or "", environment),
        body=record["body"],
        receive_count=received,
        error=carried.get("error"),
        waits_for=carried.get("waits_for"),
        invalid=invalid,
        envelope=envelope,
        command=command,
        attempt=attempt,
        deferrals=deferrals,
        recovery=recovery,
    )


def parse(body: str) -> tuple[Envelope | None, RunSplit | ChunkProcess | SpectraRefit | None, str | None]:
    """The envelope and the command in `body`, as far as there are, and why it is no contract message if it is none."""
    document = json_object(body)
    if document is None:
        return None, None, "It is not a JSON object."
    if "specversion" not in document:
        if (document.get("source"), document.get("detail-type")) in AWS_EVENTS or document.get("Type") == SNS_MESSAGE:
            return None, None, None
        return None, None, "It is neither an envelope nor an AWS event that a service takes."
    try:
        envelope = Envelope.model_validate(document)
    except ValidationError as error:
        return None, None, f"It is not a valid envelope: {describe_invalid(error)}."
    if envelope.type not in MESSAGES:
        return envelope, None, f"There is no message type {envelope.type}."
    try:
        data = MESSAGES[envelope.type].model_validate(envelope.data)
    except ValidationError as error:
        return envelope, None, f"It is not a valid {envelope.type}: {describe_invalid(error)}."
    return envelope, data if isinstance(data, RunSplit | ChunkProcess | SpectraRefit) else None, None


def json_object(text: object) -> dict[str, Any] | None:
    """The JSON object that `text` is or holds; None where it is none."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return text if isinstance(text, dict) else None


@dataclass(frozen=True)
class Description:
    """What the archive says of a message beyond what SQS does. All of it may be missing."""

    error: str | None = None
    execution: str | None = None
    time: str | None = None
    collection: str | None = None
    granules: list[str | None] | None = None
    state_machine: str | None = None
    status: str | None = None
    run_id: str | None = None
    chunk_id: str | None = None


def describe(body: str) -> Description:
    """Find in a body, valid or not, what the archive is searched by.

    A Step Functions status change is unwrapped: its detail and the execution's input may be objects or JSON text.
    """
    document = json_object(body) or {}
    time = _text(document, "time")
    if document.get("detail-type") == EXECUTION_CHANGE:
        detail = json_object(document.get("detail")) or {}
        given = json_object(detail.get("input")) or {}
        chunk_id = _text(given, "chunk_id")
        return Description(
            error=_text(detail, "error") or _text(detail, "cause"),
            execution=_text(detail, "executionArn"),
            time=time,
            collection=_text(given, "survey"),
            granules=[chunk_id] if chunk_id else None,
            state_machine=_text(detail, "stateMachineArn"),
            status=_text(detail, "status"),
            run_id=_text(given, "run_id") or _text(detail, "name"),
            chunk_id=chunk_id,
        )
    data = json_object(document.get("data")) or {}
    chunk_id = _text(data, "chunk_id")
    return Description(
        execution=_text(data, "execution_arn"),
        time=time,
        collection=_text(data, "survey"),
        granules=[chunk_id] if chunk_id else None,
        status=_text(data, "status"),
        run_id=_text(data, "run_id") or _text(document, "runid") or _text(data, "job_id"),
        chunk_id=chunk_id,
    )


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def _count(value: object, *, default: int) -> int:
    """`value` as a count of at least one; `default` where it is none."""
    try:
        return max(1, int(value))  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError):
        return default
