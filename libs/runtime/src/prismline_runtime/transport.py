"""Everything that a service sends: commands, events, dead letters, and answers to task tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from prismline_contracts.commands import Queue, dead_letter_queue_name, queue_name, run_queue_prefix
from prismline_contracts.delivery import limits_of
from prismline_contracts.envelope import Envelope, Wrappable
from prismline_contracts.pools import POOL_QUEUE_PREFIX
from prismline_runtime import clients
from prismline_runtime.delivery import Delivery
from prismline_runtime.errors import PermanentError, TransientError, UnavailableError, aws_errors, error_code
from prismline_runtime.settings import TransportSettings

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef, SendMessageBatchRequestEntryTypeDef
    from mypy_boto3_stepfunctions import SFNClient

#: Most entries in one batch of SQS or EventBridge.
BATCH_SIZE = 10
#: Most bytes in one batch of SQS, bodies and attributes together. It equals the limit of one message.
MAX_BATCH_BYTES = 2**20
#: Most bytes in one entry of EventBridge. It is checked here because emulators accept more.
MAX_EVENT_BYTES = 256 * 1024
#: Waits, in seconds, before refused entries of a batch are sent again. They grow exponentially, with jitter.
FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS = 0.1, 5.0
#: Longest delivery delay of SQS, in seconds.
MAX_DELAY_SECONDS = 900
#: How often a batch is sent before the error is raised.
MAX_ATTEMPTS = 6
#: Error codes of a task token whose task no longer waits.
TOKEN_GONE_CODES = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})

#: Message attributes that a message keeps when it moves from queue to queue: its history.
CARRIED_ATTRIBUTES = frozenset({"archived", "attempt", "deferrals", "first_sent", "recovery"})

#: Characters that SQS refuses in an attribute: those that XML does not allow.
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

T = TypeVar("T")


def _until_all_taken(doing: str, batch: list[T], attempt: Callable[[list[T]], list[T]]) -> None:
    """Call `attempt` until AWS has accepted the whole batch. `attempt` returns the entries that were refused."""
    left = batch
    for retry in Retrying(
        retry=retry_if_exception_type(TransientError),
        wait=wait_random_exponential(FIRST_WAIT_SECONDS, LAST_WAIT_SECONDS),
        stop=stop_after_attempt(MAX_ATTEMPTS),
        reraise=True,
    ):
        with retry, aws_errors(doing):
            left = attempt(left)
            if left:
                raise UnavailableError(f"Could not {doing}: {len(left)} of {len(batch)} messages were refused.")


def batches(items: Iterable[T], size: int = BATCH_SIZE) -> Iterator[list[T]]:
    """Split `items` into lists of at most `size`. Only one list is in memory at a time."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class Transport:
    """Sends the messages of a service. Every method returns only after AWS has accepted the message."""

    def __init__(
        self,
        *,
        environment: str,
        service: str,
        sqs: SQSClient,
        events: EventBridgeClient,
        stepfunctions: SFNClient,
        fair_queues: bool = False,
    ) -> None:
        self.environment = environment
        #: CloudEvents source of this service's messages.
        self.source = f"prismline/{environment}/{service}"
        self._sqs = sqs
        self._events = events
        self._stepfunctions = stepfunctions
        self._fair_queues = fair_queues
        self._queue_url = cache(self._look_up_queue_url)

    @classmethod
    def connect(cls, environment: str, service: str) -> Self:
        """The transport of `service` in `environment`, with real clients."""
        return cls(
            environment=environment,
            service=service,
            sqs=clients.sqs(),
            events=clients.events(),
            stepfunctions=clients.stepfunctions(),
            fair_queues=TransportSettings().fair_queues,
        )

    def _look_up_queue_url(self, name: str) -> str:
        with aws_errors(f"find the queue {name}"):
            return self._sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def wrap(
        self,
        data: Wrappable,
        *,
        traceparent: str | None,
        key: tuple[str, ...] = (),
        tasktoken: str | None = None,
    ) -> Envelope:
        """Put `data` into an envelope whose source is this service. `key` and `tasktoken` as in `Envelope.wrap`."""
        return Envelope.wrap(data, source=self.source, traceparent=traceparent, key=key, tasktoken=tasktoken)

    def send(self, queue: str, messages: Iterable[Envelope], *, delay_seconds: int = 0) -> None:
        """Send commands to `queue` (its short name, see `prismline_contracts.Queue`) in batches of ten.

        delay_seconds: delivery delay, at most `MAX_DELAY_SECONDS`.

        With fair queues, messages to the shared queue of tasks and to those of pools have their run as message group:
        SQS then delivers the messages of small runs before the backlog of a larger one.

        Raises TransientError if SQS still refuses a message after all retries. Other messages may have been sent.
        """
        fair = self._fair_queues and (queue == Queue.TASKS or queue.startswith(POOL_QUEUE_PREFIX))
        url = self._queue_url(queue_name(self.environment, queue))

        def entry(name: str, message: Envelope) -> SendMessageBatchRequestEntryTypeDef:
            one: SendMessageBatchRequestEntryTypeDef
            one = {"Id": name, "MessageBody": message.to_json(), "DelaySeconds": delay_seconds}
            if fair and message.runid:
                one["MessageGroupId"] = message.runid
            return one

        def attempt(batch: list[Envelope]) -> list[Envelope]:
            answer = self._sqs.send_message_batch(
                QueueUrl=url,
                Entries=[entry(str(n), message) for n, message in enumerate(batch)],
            )
            return [batch[int(failure["Id"])] for failure in answer.get("Failed", [])]

        for batch in batches(messages):
            _until_all_taken(f"send to {queue}", batch, attempt)

    def publish_event(self, data: Wrappable, *, traceparent: str | None, key: tuple[str, ...] = ()) -> None:
        """Publish `data` as an event of this service. `key` as in `Envelope.wrap`, errors as in `publish`."""
        self.publish(self.wrap(data, traceparent=traceparent, key=key))

    def publish(self, *messages: Envelope) -> None:
        """Publish events on the bus. Raises PermanentError if one is too large, and TransientError as `send` does."""
        entries: list[PutEventsRequestEntryTypeDef] = []
        for message in messages:
            detail = message.to_json()
            if len(detail.encode()) > MAX_EVENT_BYTES:
                raise PermanentError(f"The event {message.type} is larger than {MAX_EVENT_BYTES} bytes.")
            bus = f"prismline-{self.environment}"
            entries.append(
                {"EventBusName": bus, "Source": message.source, "DetailType": message.type, "Detail": detail}
            )

        def attempt(batch: list[PutEventsRequestEntryTypeDef]) -> list[PutEventsRequestEntryTypeDef]:
            answers = self._events.put_events(Entries=batch)["Entries"]
            return [entry for entry, answer in zip(batch, answers, strict=True) if answer.get("ErrorCode")]

        for batch in batches(entries):
            _until_all_taken("publish", batch, attempt)

    def dead_letter(self, delivery: Delivery, why: Mapping[str, str]) -> None:
        """Copy a message unchanged to the dead-letter queue of its queue, with the reason `why` as an attribute.

        `why` has one of these names: `error`, a permanent error; `raised`, the error of the last receive; `unknown`, a
        message that another release of the service may understand; `waits_for`, the resource that must be up first. The
        copy also keeps the `CARRIED_ATTRIBUTES` of the message.
        """
        source = self._source_of(delivery)
        url = self._queue_url(dead_letter_queue_name(source))
        carried = {name: value for name, value in delivery.attributes.items() if name in CARRIED_ATTRIBUTES}
        reason = {name: _REFUSED.sub("\ufffd", value[:1024]) or "unknown" for name, value in why.items()}
        attributes = {**reason, "source_queue": source, **carried}
        with aws_errors(f"move a message to {dead_letter_queue_name(source)}"):
            self._sqs.send_message(
                QueueUrl=url,
                MessageBody=delivery.body,
                MessageAttributes=_string_attributes(attributes),
            )

    def is_last(self, delivery: Delivery) -> bool:
        """Whether SQS would move the message to the dead-letter queue if it was received once more."""
        queue = self._source_of(delivery).removeprefix(queue_name(self.environment, ""))
        limits = limits_of(queue)
        return limits is not None and delivery.receive_count >= limits.max_receives

    def _source_of(self, delivery: Delivery) -> str:
        """The full name of the queue to whose dead-letter queue the message belongs.

        The queues that belong to one run have the dead-letter queue of the shared queue of tasks.
        """
        own = delivery.queue.startswith(run_queue_prefix(self.environment))
        return queue_name(self.environment, Queue.TASKS) if own else delivery.queue

    def send_back(
        self, queue: str, messages: Iterable[tuple[str, Mapping[str, str]]], *, delay_seconds: int = 0
    ) -> None:
        """Send existing messages, each a body and its text attributes, to `queue` unchanged.

        delay_seconds and errors as in `send`.
        """
        url = self._queue_url(queue_name(self.environment, queue))

        def attempt(batch: list[tuple[str, Mapping[str, str]]]) -> list[tuple[str, Mapping[str, str]]]:
            answer = self._sqs.send_message_batch(
                QueueUrl=url,
                Entries=[
                    {
                        "Id": str(n),
                        "MessageBody": body,
                        "MessageAttributes": _string_attributes(attributes),
                        "DelaySeconds": delay_seconds,
                    }
                    for n, (body, attributes) in enumerate(batch)
                ],
            )
            return [batch[int(failure["Id"])] for failure in answer.get("Failed", [])]

        for batch in _sized_batches(messages):
            _until_all_taken(f"send to {queue}", batch, attempt)

    def postpone(self, delivery: Delivery, seconds: int) -> None:
        """Hide a message for `seconds`. An expired receipt is ignored, because its message is already visible."""
        url = self._queue_url(delivery.queue)
        with aws_errors(f"postpone a message of {delivery.queue}"):
            try:
                self._sqs.change_message_visibility(
                    QueueUrl=url, ReceiptHandle=delivery.receipt_handle, VisibilityTimeout=seconds
                )
            except ClientError as error:
                if error_code(error) not in {"MessageNotInflight", "InvalidParameterValue", "ReceiptHandleIsInvalid"}:
                    raise

    def answer(self, token: str, output: Mapping[str, Any]) -> None:
        """Report success for a task token, if the task still waits."""
        self._answer("answer a task", "send_task_success", taskToken=token, output=json.dumps(output))

    def refuse(self, token: str, error: str, cause: str) -> None:
        """Report failure for a task token, if the task still waits."""
        self._answer("fail a task", "send_task_failure", taskToken=token, error=error, cause=cause[:32768])

    def _answer(self, doing: str, operation: str, **arguments: str) -> None:
        with aws_errors(doing):
            try:
                getattr(self._stepfunctions, operation)(**arguments)
            except ClientError as error:
                if error_code(error) not in TOKEN_GONE_CODES:
                    raise


def _sized_batches(messages: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[list[tuple[str, Mapping[str, str]]]]:
    """Split messages into batches of at most `BATCH_SIZE` messages and `MAX_BATCH_BYTES` bytes."""
    batch: list[tuple[str, Mapping[str, str]]] = []
    size = 0
    for body, attributes in messages:
        own = len(body.encode()) + sum(len(name) + len(value.encode()) + 6 for name, value in attributes.items())
        if batch and (len(batch) == BATCH_SIZE or size + own > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((body, attributes))
        size += own
    if batch:
        yield batch


def _string_attributes(attributes: Mapping[str, str]) -> dict[str, MessageAttributeValueTypeDef]:
    return {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
