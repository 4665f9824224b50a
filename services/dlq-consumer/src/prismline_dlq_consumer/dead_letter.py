"""Parses dead letters. The functions are pure and accept any message, even one that no service understands.

A dead letter is parsed from Lambda's SQS event or from its record in the archive, with the same result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from prismline_contracts.base import now
from prismline_contracts.commands import (
    ChunkProcess,
    Queue,
    RunSplit,
    SpectraRefit,
    TasksProcess,
    dead_letter_queue_name,
)
from prismline_contracts.delivery import LIMITS, state_machine_name
from prismline_contracts.envelope import Envelope
from prismline_contracts.messages import MESSAGES
from prismline_runtime import Work, describe_invalid, undelivered_envelope

#: The AWS events that queues of Prismline subscribe to, as source and detail type.
AWS_EVENTS = (
    ("aws.events", "Scheduled Event"),
    ("aws.s3", "Object Created"),
    ("aws.states", "Step Functions Execution Status Change"),
)
#: `Type` of an SNS message.
SNS_MESSAGE = "Notification"
#: `detail-type` of a Step Functions status change.
EXECUTION_CHANGE = "Step Functions Execution Status Change"
#: Message attributes in which EventBridge reports why it could not deliver an event.
EVENTBRIDGE_REASONS = ("ERROR_CODE", "ERROR_MESSAGE")


@dataclass(frozen=True)
class DeadLetterMessage:
    """A parsed message of a dead-letter queue."""

    message_id: str
    #: Short name of the queue that it comes from.
    source_queue: str
    #: The message body, unchanged.
    body: str
    #: The text that is sent back: the body, or the envelope in an event that EventBridge could not deliver.
    content: str
    #: When the message was first sent, by its producer or by a recovery.
    first_sent: datetime
    #: When its service moved it to the dead-letter queue; if SQS moved it, when it was sent to its queue.
    sent: datetime
    #: Receipts from the dead-letter queue, this one included. Only the backoff uses it.
    receive_count: int = 1
    #: The permanent error for which its service moved it.
    error: str | None = None
    #: The error that it raised at its last receive. A later attempt may succeed.
    raised: str | None = None
    #: The resource that was down.
    waits_for: str | None = None
    #: Why the message matches no contract.
    invalid: str | None = None
    #: Why the message may belong to a newer release of its service, or of this one.
    unknown: str | None = None
    envelope: Envelope | None = None
    #: The message's data, as the model of its type.
    data: BaseModel | None = None
    #: How often the message has been dispatched, the first time included.
    attempt: int = 1
    #: The recovery that sent the message.
    recovery: str | None = None
    #: The key of the record that the archive has of the message's last return to its queue, if its type is unknown.
    archived: str | None = None

    @property
    def command(self) -> RunSplit | ChunkProcess | TasksProcess | SpectraRefit | None:
        """The message's command, if the ledger tracks the progress of such commands."""
        return self.data if isinstance(self.data, RunSplit | ChunkProcess | TasksProcess | SpectraRefit) else None

    @property
    def chunk_name(self) -> tuple[str, str] | None:
        """The run id and chunk id of the command's chunk."""
        if isinstance(self.data, ChunkProcess | SpectraRefit):
            return self.data.run_id, self.data.chunk_id
        return None

    @property
    def work(self) -> Work | None:
        """What the message asks for. None if it is invalid or belongs to no run."""
        return Work.of(json.loads(self.content)) if self.invalid is None else None

    @property
    def workload(self) -> str | None:
        """The workload of the command's chunk or tasks."""
        return self.data.workload if isinstance(self.data, ChunkProcess | TasksProcess) else None


def source_queue_of(queue_arn: str, environment: str) -> str:
    """The short name of the queue that a dead-letter queue belongs to: `...:prismline-dev-chunks-dlq` -> `chunks`."""
    name = queue_arn.rsplit(":", 1)[-1]
    return name.removeprefix(f"prismline-{environment}-").removesuffix(dead_letter_queue_name(""))


def text_attributes(record: Mapping[str, Any]) -> dict[str, str]:
    """The attributes of type String of a message in a Lambda SQS event."""
    return {
        name: value["stringValue"]
        for name, value in _mapping(record, "messageAttributes").items()
        if isinstance(value, Mapping) and isinstance(value.get("stringValue"), str)
    }


def sqs_receive_count(record: Mapping[str, Any]) -> int:
    """The receive count of the message, by the count of SQS."""
    return _count(_mapping(record, "attributes").get("ApproximateReceiveCount"))


def sqs_moment(record: Mapping[str, Any], attribute: str) -> datetime | None:
    """The time in a system attribute such as `SentTimestamp`."""
    try:
        return datetime.fromtimestamp(int(_mapping(record, "attributes")[attribute]) / 1000, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def read_dead_letter(record: Mapping[str, Any], source_queue: str) -> DeadLetterMessage:
    """Parse a dead letter from a record of Lambda's SQS event."""
    body, carried = record["body"], text_attributes(record)
    document = json_object(body)
    event = undelivered_envelope(document) if document is not None else None
    content = body if event is None else json.dumps(event)
    envelope, data, invalid, unknown = _parse(document if event is None else event)
    attempt, recovery = _count(carried.get("attempt")), carried.get("recovery")
    if isinstance(data, ChunkProcess | TasksProcess):
        attempt, recovery = data.attempt, data.recovery
    sent = sqs_moment(record, "SentTimestamp") or now()
    return DeadLetterMessage(
        message_id=record["messageId"],
        source_queue=source_queue,
        body=body,
        content=content,
        first_sent=_moment(carried.get("first_sent")) or _published_at(document, envelope) or sent,
        sent=sent,
        receive_count=_own_receipts(record, source_queue),
        error=carried.get("error"),
        raised=carried.get("raised"),
        waits_for=carried.get("waits_for"),
        invalid=invalid,
        unknown=carried.get("unknown") or unknown,
        envelope=envelope,
        data=data,
        attempt=attempt,
        recovery=recovery,
        archived=carried.get("archived"),
    )


def read_archived(document: Mapping[str, Any]) -> DeadLetterMessage:
    """Parse a dead letter from a record of the archive, valid or not."""
    queue, message_id = str(document.get("source_queue")), _text(document, "messageId") or ""
    letter = read_dead_letter({**document, "body": _text(document, "body") or "", "messageId": message_id}, queue)
    if queue not in set(Queue) or not message_id:
        return replace(letter, invalid="It is not a record of a dead letter: it must name a message and its queue.")
    try:
        letter.content.encode()
    except UnicodeEncodeError:  # JSON can hold it, and so can a record that a person has changed
        invalid = "Its body cannot be sent: it has half of a surrogate pair, which UTF-8 cannot encode."
        return replace(letter, invalid=invalid)
    return letter


def _own_receipts(record: Mapping[str, Any], source_queue: str) -> int:
    """Receipts from the dead-letter queue. The count of SQS also includes the receipts before the move."""
    received = sqs_receive_count(record)
    if "DeadLetterQueueSourceArn" in _mapping(record, "attributes") and source_queue in set(Queue):
        received -= LIMITS[Queue(source_queue)].max_receives
    return max(1, received)


def _parse(
    document: Mapping[str, Any] | None,
) -> tuple[Envelope | None, BaseModel | None, str | None, str | None]:
    """Parse a document. Returns the envelope, its data, why it is invalid, and why it may be of a newer release."""
    if document is None:
        return None, None, "It is not a JSON object.", None
    if "specversion" not in document:
        if (document.get("source"), document.get("detail-type")) in AWS_EVENTS or document.get("Type") == SNS_MESSAGE:
            return None, None, None, None
        return None, None, "It is neither an envelope nor an AWS event that a service takes.", None
    try:
        envelope = Envelope.model_validate(document)
    except ValidationError as error:
        return None, None, f"It is not a valid envelope: {describe_invalid(error)}.", None
    if envelope.type not in MESSAGES:
        return envelope, None, None, f"The message type {envelope.type} is not known here."
    try:
        return envelope, MESSAGES[envelope.type].model_validate(envelope.data), None, None
    except ValidationError as error:
        return envelope, None, f"It is not a valid {envelope.type}: {describe_invalid(error)}.", None


def _published_at(document: Mapping[str, Any] | None, envelope: Envelope | None) -> datetime | None:
    """The time in the message: `time` of an envelope or an AWS event, `Timestamp` of an SNS message."""
    if envelope is not None:
        return _moment(envelope.time)
    return _moment(document.get("time") or document.get("Timestamp")) if document is not None else None


def json_object(text: object) -> dict[str, Any] | None:
    """The JSON object in `text`, which may be an object already. None if there is none."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return text if isinstance(text, dict) else None


@dataclass(frozen=True)
class Description:
    """The fields of an archive record that come from the message's body. Each may be absent."""

    error: str | None = None
    execution: str | None = None
    time: str | None = None
    collection: str | None = None
    granules: list[str | None] | None = None
    state_machine: str | None = None
    status: str | None = None
    run_id: str | None = None
    chunk_id: str | None = None


def describe(body: str, queue_arn: str = "", environment: str = "") -> Description:
    """Find the searchable fields in a message body, valid or not.

    In a status change of Step Functions, the detail and the execution's input may be objects or JSON text. For any
    other message, the execution's ARN is built from the run id and the account and region of `queue_arn`.
    """
    document = json_object(body) or {}
    document = undelivered_envelope(document) or document
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
    run_id = _text(data, "run_id") or _text(document, "runid") or _text(data, "job_id")
    execution, state_machine = _execution_of(run_id, queue_arn, environment)
    return Description(
        execution=_text(data, "execution_arn") or execution,
        time=time,
        collection=_text(data, "survey"),
        granules=[chunk_id] if chunk_id else _texts(data, "task_ids"),
        state_machine=state_machine,
        status=_text(data, "status"),
        run_id=run_id,
        chunk_id=chunk_id,
    )


def _execution_of(run_id: str | None, queue_arn: str, environment: str) -> tuple[str | None, str | None]:
    """The ARNs of a run's execution and of its state machine. The execution's name is the run's id."""
    match queue_arn.split(":"):
        case ["arn", partition, "sqs", region, account, _] if run_id is not None:
            name, states = state_machine_name(environment), f"arn:{partition}:states:{region}:{account}"
            return f"{states}:execution:{name}:{run_id}", f"{states}:stateMachine:{name}"
    return None, None


def _mapping(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def _texts(document: Mapping[str, Any], name: str) -> list[str | None] | None:
    """The texts in a list. None if there is no list or nothing in it is a text."""
    found = document.get(name)
    texts: list[str | None] = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return texts or None


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    """`value` as a count of at least 1. The result is 1 for anything that is not a number."""
    try:
        return max(1, int(value))  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError, OverflowError):
        return 1


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment is not None else None
