"""Routing: calls the function for each message of a Lambda SQS event, and acts on what the function raises.

The handler module of a service says which function takes which message:

    handler = queue_handler(transport, logger, {RunSplit: on_run_split}, {"aws.s3/Object Created": on_object_created})

The function ...                the message ...
returns                         is acknowledged
raises PermanentError           is moved to the dead-letter queue with the reason
does not exist for this type    is moved to the dead-letter queue, where it waits for a newer release of the service
raises NewerReleaseError        likewise
raises ResourceUnavailableError is moved to the dead-letter queue, where it waits for the resource
raises anything else            is delivered again after a backoff; at its last receive, it is moved to the dead-letter
                                queue with the error. An error that is neither permanent nor transient, nor an outage,
                                is also noted for the run (`ErrorNotes`), until the message succeeds
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Protocol, Self

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from prismline_contracts.envelope import Envelope
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, TaskId
from prismline_runtime.delivery import Delivery
from prismline_runtime.errors import (
    NewerReleaseError,
    PermanentError,
    ResourceUnavailableError,
    TransientError,
    is_unexpected,
    one_line,
)
from prismline_runtime.telemetry import log_keys
from prismline_runtime.transport import Transport

#: Seconds until a message that failed once is delivered again. The time doubles with each receive.
FIRST_BACKOFF_SECONDS = 1
#: Longest time in seconds between two deliveries of a failing message.
MAX_BACKOFF_SECONDS = 120

LambdaHandler = Callable[[dict[str, Any], Any], PartialItemFailureResponse]


@dataclass(frozen=True)
class Message:
    """A valid message: its envelope and its delivery."""

    envelope: Envelope
    delivery: Delivery


@dataclass(frozen=True)
class Work:
    """What a message of a run asks for. A message that is sent again, perhaps with another id, asks for the same."""

    run_id: str
    #: The type of the message. For an AWS event: its source and detail type.
    type: str
    #: What it is about, if that is not the whole run: a chunk, an export, or the first of its tasks.
    part: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self | None:
        """The work of a valid message: an envelope, or an event of an AWS service. None if it names no run."""
        inner = document.get("data") or document.get("detail")
        data = inner if isinstance(inner, dict) else {}
        if "specversion" in document:
            run_id, kind = document.get("runid"), document["type"]
        else:  # the execution of a run has the run's id as its name
            run_id, kind = data.get("name"), f"{document.get('source')}/{document.get('detail-type')}"
        tasks = data.get("task_ids")
        named = (data.get("chunk_id"), data.get("export_id"), *(tasks[:1] if isinstance(tasks, list) else ()))
        part = next((each for each in named if isinstance(each, str)), None)
        return cls(run_id, kind, part) if isinstance(run_id, str) else None


class ErrorNotes(Protocol):
    """Where the router writes down the unexpected errors of a run's messages, for people. The ledger has them."""

    def note_error(self, work: Work, *, service: str, error: str) -> None:
        """Count an error that `service` raised for a message."""

    def forget_error(self, work: Work) -> None:
        """Record that a message which may have raised has succeeded."""


#: A function returns this if it has sent its message again, so that the message is acknowledged but its work not done.
SENT_AGAIN = "sent again"

#: Takes the data of a Prismline command or event, and the message.
MessageFunction = Callable[[Any, Message], str | None]
#: Takes a whole EventBridge event of an AWS service, and its delivery.
AwsEventFunction = Callable[[dict[str, Any], Delivery], None]


#: Most characters of the path of an error in a document, because field names may have any length.
LONGEST_PLACE = 200


def describe_invalid(error: ValidationError) -> str:
    """The first error of a validation as one clause, e.g. `params.beta: Input should be greater than 0`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "document"
    if len(where) > LONGEST_PLACE:
        where = f"{where[:LONGEST_PLACE]}..."
    return one_line(f"{where}: {first['msg']}")


_TASK_IDS = TypeAdapter(Annotated[list[TaskId], Field(max_length=MAX_TASKS_PER_MESSAGE)])

#: Most characters of the text of an error.
MAX_ERROR_CHARS = 500
#: The user, and the query, of a URL. Either may be a secret.
_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#@]+@|(?<=\?)[^\s'\"<>,)]+")


def without_credentials(text: str) -> str:
    """A text without the users and queries of the URLs in it."""
    return _CREDENTIALS.sub(lambda found: "" if found[0].endswith("@") else "...", text)


def describe_error(error: Exception) -> str:
    """The type of an error and the first line of its text, e.g. `ZeroDivisionError: division by zero`.

    Values that a validation error quotes, and users and queries of URLs, are left out.
    """
    text = describe_invalid(error) if isinstance(error, ValidationError) else str(error).partition("\n")[0]
    shown = without_credentials(text)
    return (f"{type(error).__name__}: {shown}" if shown else type(error).__name__)[:MAX_ERROR_CHARS]


def backoff_seconds(receive_count: int) -> int:
    """Seconds until the next delivery: exponential backoff with jitter, at least one second."""
    longest: int = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (receive_count - 1))
    return max(1, round(random.uniform(0.5, 1.0) * longest))


@dataclass(frozen=True)
class _Call:
    """The function for a message, with its arguments."""

    function: Callable[[], str | None]
    work: Work | None
    #: Whether the message was sent before, so that an earlier delivery may have raised.
    sent_before: bool = False
    #: What every log line about the message has.
    log_keys: Mapping[str, Any] = field(default_factory=dict)


class Router:
    """The handler that `queue_handler` makes."""

    def __init__(
        self,
        transport: Transport,
        logger: Logger,
        messages: Mapping[type[BaseModel], MessageFunction],
        aws_events: Mapping[str, AwsEventFunction],
        errors: ErrorNotes | None,
    ) -> None:
        self.transport = transport
        self._errors = errors
        self._logger = logger
        #: The model and the function of each message type.
        self.messages = {_type_of(model): (model, function) for model, function in messages.items()}
        self._aws_events = aws_events

    def __call__(self, event: dict[str, Any], context: Any) -> PartialItemFailureResponse:
        """Handle Lambda's SQS event. The answer names the messages that failed."""
        processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
        return process_partial_response(
            event=event,
            record_handler=lambda record: self._handle(Delivery.of(record, context.get_remaining_time_in_millis)),
            processor=processor,
        )

    def _handle(self, delivery: Delivery) -> None:
        with ExitStack() as keys:  # the lines about the errors below have all keys too
            keys.enter_context(
                log_keys(self._logger, message_id=delivery.message_id, receive_count=delivery.receive_count)
            )
            try:
                self.dispatch(delivery, keys)
            except PermanentError as error:
                self._logger.warning("message_dead_lettered", extra={"reason": str(error), "queue": delivery.queue})
                self.transport.dead_letter(delivery, {"error": str(error)})
            except NewerReleaseError as error:
                self._logger.warning("message_unknown", extra={"reason": str(error), "queue": delivery.queue})
                self.transport.dead_letter(delivery, {"unknown": str(error)})
            except ResourceUnavailableError as error:
                self._logger.info("message_waits", extra={"reason": str(error), "resource": error.resource})
                self.transport.dead_letter(delivery, {"waits_for": error.resource})
            except Exception as error:
                self._note_error(delivery, error)
                if not self._postpone(delivery, error):
                    raise

    def dispatch(self, delivery: Delivery, keys: ExitStack) -> None:
        """Call the function for a message. Raises its errors, and PermanentError if the message is invalid.

        keys: gets the keys of the message's log lines.
        """
        call = self._route(delivery)
        keys.enter_context(log_keys(self._logger, **call.log_keys))
        if call.function() != SENT_AGAIN and (call.sent_before or delivery.receive_count > 1):
            self._forget_error(call.work)

    def _note_error(self, delivery: Delivery, error: Exception) -> None:
        """Write down an unexpected error, while no other consumer can receive the message."""
        if self._errors is not None and is_unexpected(error):
            with self._without_harm():
                service = self.transport.source.rpartition("/")[2]
                if (work := Work.of(_document(delivery))) is not None:
                    self._errors.note_error(work, service=service, error=describe_error(error))

    def _forget_error(self, work: Work | None) -> None:
        """Write down that a message which may have raised before has succeeded."""
        if self._errors is not None and work is not None:
            with self._without_harm():
                self._errors.forget_error(work)

    @contextmanager
    def _without_harm(self) -> Iterator[None]:
        """Only log an error of the block: what becomes of the message does not depend on a note for people."""
        try:
            yield
        except Exception as lost:
            self._logger.warning("error_not_noted", extra={"reason": str(lost)})

    def _postpone(self, delivery: Delivery, error: Exception) -> bool:
        """Hide a message that raised. At its last receive, move it to the dead-letter queue. Return whether it moved.

        SQS would move it too, but without the error.
        """
        expected = isinstance(error, TransientError)
        if self.transport.is_last(delivery):
            self._logger.warning("message_moved", extra={"reason": str(error)}, exc_info=not expected)
            self.transport.dead_letter(delivery, {"raised": describe_error(error)})
            return True
        wait = error.retry_after if isinstance(error, TransientError) else None
        wait = backoff_seconds(delivery.receive_count) if wait is None else wait
        self._logger.warning("message_postponed", extra={"reason": str(error), "seconds": wait}, exc_info=not expected)
        self.transport.postpone(delivery, wait)
        return False

    def _route(self, delivery: Delivery) -> _Call:
        """Find the function for a message. Raises PermanentError if the message is invalid."""
        document = _document(delivery)
        if "specversion" not in document:
            return self._route_aws_event(document, delivery)
        try:
            envelope = Envelope.model_validate(document)
        except ValidationError as error:
            raise PermanentError(f"The message is not a valid envelope: {describe_invalid(error)}.") from error
        if envelope.type not in self.messages:
            raise NewerReleaseError(f"The message type {envelope.type} is not one that this service takes.")
        model, function = self.messages[envelope.type]
        keys = {
            "trace_id": envelope.trace_id,
            "run_id": envelope.runid,
            "chunk_id": envelope.data.get("chunk_id"),
            "task_ids": _task_ids(envelope.data),
        }

        def call() -> str | None:
            try:
                data = model.model_validate(envelope.data)
            except ValidationError as error:
                raise PermanentError(f"The {envelope.type} message is invalid: {describe_invalid(error)}.") from error
            return function(data, Message(envelope, delivery))

        sent_before = bool(delivery.attributes) or envelope.data.get("attempt", 1) != 1
        return _Call(call, Work.of(document), sent_before, {key: value for key, value in keys.items() if value})

    def _route_aws_event(self, document: dict[str, Any], delivery: Delivery) -> _Call:
        if "TopicArn" in document:
            name = f"aws.sns/{document.get('Type')}"
        else:
            name = f"{document.get('source')}/{document.get('detail-type')}"
        if name not in self._aws_events:
            raise PermanentError("The message is neither an envelope nor an AWS event that this service takes.")
        return _Call(partial(self._aws_events[name], document, delivery), Work.of(document), bool(delivery.attributes))


def undelivered_envelope(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The envelope in an event that EventBridge could not deliver to its queue. None if `document` is no such event.

    EventBridge sends the complete event to the dead-letter queue, with the envelope as its `detail`. A person may then
    redrive it to the queue unchanged.
    """
    if "specversion" in document or "detail-type" not in document:
        return None
    detail = document.get("detail")
    return detail if isinstance(detail, dict) and "specversion" in detail else None


def _task_ids(data: Mapping[str, Any]) -> list[str] | None:
    """The tasks that a message names. None if it names none, or not as a valid message does."""
    try:
        return _TASK_IDS.validate_python(data.get("task_ids"), strict=True)
    except ValidationError:
        return None


def _type_of(model: type[BaseModel]) -> str:
    return str(getattr(model, "TYPE"))  # noqa: B009


def _document(delivery: Delivery) -> dict[str, Any]:
    """The message: an envelope, or an event of an AWS service. Raises PermanentError if it is not a JSON object."""
    try:
        # Unlike `json`, it refuses unpaired surrogates, which no client of AWS can encode.
        document = from_json(delivery.body)
    except ValueError as error:
        raise PermanentError(f"The message is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise PermanentError("The message is not a JSON object.")
    return undelivered_envelope(document) or document


def queue_handler(
    transport: Transport,
    logger: Logger,
    messages: Mapping[type[BaseModel], MessageFunction],
    aws_events: Mapping[str, AwsEventFunction] | None = None,
    *,
    errors: ErrorNotes | None = None,
) -> LambdaHandler:
    """Make a Lambda handler for SQS events that answers with `batchItemFailures`.

    `messages` maps contract models to functions. `aws_events` maps `source/detail-type` of EventBridge events to
    functions; the name of an SNS message is `aws.sns/Notification`. `errors` takes notes of unexpected errors.
    """
    return Router(transport, logger, messages, aws_events or {}, errors)
