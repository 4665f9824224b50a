"""The consumer: calls a Lambda handler with messages from an SQS queue, outside Lambda.

It does the work of a Lambda event source mapping. It receives batches by long polling, calls `handler(event, context)`,
deletes the messages that succeeded, and leaves the messages that `batchItemFailures` names. The same handler also runs
in Lambda, without the consumer.

A consumer may have more queues, which come and go while it runs. It then polls all of them in turn, by their
priorities (see `queue_choice`).

The consumer also renews the visibility timeout of messages in flight. The timeout therefore limits how long a dead
worker's messages stay hidden, and not how long the work takes. The first renewal comes after half of the visibility
timeout. A handler that changes the visibility of a message itself should return before that.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from prismline_runtime.errors import PrismlineError, error_code
from prismline_runtime.queue_choice import QueueChoice
from prismline_runtime.run_queues import NO_QUEUE_CODES
from prismline_runtime.settings import ConsumerSettings

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        ChangeMessageVisibilityBatchRequestEntryTypeDef,
        DeleteMessageBatchRequestEntryTypeDef,
        MessageTypeDef,
    )

#: Pause in seconds after a call that SQS did not answer, at least and at most. Between the two it is a share of the
#: time since the first such call: a consumer asks seldom in a long outage, and is back soon after a short one.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PAUSE_SHARE = 1.0, 15.0, 0.1
#: Grace period, in seconds, that a receive or an invocation may exceed its time limit before the health check fails.
HEALTHY_MARGIN_SECONDS = 15.0
#: Seconds after which a consumer calls `more_queues` again.
MORE_QUEUES_SECONDS = 5.0
#: Longest long poll, in seconds, of a consumer of several queues. Messages in the other queues wait for its end.
SHORT_WAIT_SECONDS = 1
#: Priority of the consumer's permanent queue, compared with those of queues that come and go.
OWN_PRIORITY = 5

Handler = Callable[[dict[str, Any], Any], Any]
#: Returns the full names of the other queues that exist now, with their priorities.
MoreQueues = Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class _Queue:
    """A queue that exists."""

    name: str
    url: str
    arn: str


@dataclass
class InvocationContext:
    """The parts of Lambda's `context` that handlers use."""

    function_name: str
    deadline: float
    memory_limit_in_mb: int = 0
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    invoked_function_arn: str = ""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the time limit of the invocation."""
        return max(0, round((self.deadline - time.monotonic()) * 1000))


@dataclass(frozen=True)
class Polled:
    """The queues that a consumer polls."""

    queue_name: str
    #: Most messages of one invocation.
    batch_size: int
    #: Returns the queues to poll besides `queue_name`. It is called every `MORE_QUEUES_SECONDS`.
    more_queues: MoreQueues | None = None


def polled_in_turns(
    queues: Iterable[str], *, batch_size: int = 10, parallel: int = 1, more_queues: MoreQueues | None = None
) -> list[list[Polled]]:
    """What the consumers of a process poll: a list for each of the `parallel` batches of a queue at a time.

    If there are several, the first one polls no queues that come and go, so that a message in a permanent queue does
    not wait until one of theirs is done.
    """
    return [
        [Polled(queue, batch_size, more_queues if number or parallel == 1 else None) for queue in queues]
        for number in range(parallel)
    ]


class Consumer:
    """Polls one queue, or several in turn, and calls `handler` with each batch.

    Consumers that share the lock `turn` run the handler one invocation at a time, as in Lambda.
    """

    def __init__(
        self,
        *,
        sqs: SQSClient,
        polled: Polled,
        handler: Handler,
        settings: ConsumerSettings,
        logger: Logger,
        turn: threading.Lock,
    ) -> None:
        self._sqs = sqs
        self._queue_name = polled.queue_name
        self._handler = handler
        self._batch_size = polled.batch_size
        self._settings = settings
        self._logger = logger
        self._turn = turn
        self._more_queues = polled.more_queues
        self._stopping = threading.Event()
        self._choice = QueueChoice()
        self._found: dict[str, _Queue] = {}
        #: When the other queues were last looked for (`time.monotonic` seconds).
        self._looked_at = float("-inf")
        #: The queue of the messages in flight.
        self._current = _Queue(polled.queue_name, "", "")
        #: Receipt handles of the messages in flight, by message id.
        self._in_flight: dict[str, str] = {}
        self._lock = threading.Lock()
        #: When SQS first did not answer (`time.monotonic` seconds). None: the last call had an answer.
        self._failing_since: float | None = None
        #: The consumer is healthy until this moment (`time.monotonic` seconds).
        self._healthy_until = 0.0

    @property
    def healthy(self) -> bool:
        """Whether the consumer is healthy: its current receive or invocation is within its time limit."""
        return time.monotonic() < self._healthy_until

    def _healthy_for(self, seconds: float) -> None:
        self._healthy_until = time.monotonic() + seconds + HEALTHY_MARGIN_SECONDS

    def stop(self) -> None:
        """Stop receiving. Messages in flight continue until `run` returns or `release` gives them back."""
        self._stopping.set()

    def run(self) -> None:
        """Poll the queue until `stop` is called."""
        if not self._find_queue():
            return
        while not self._stopping.is_set():
            self._look_for_more_queues()
            name, idle = self._choice.next(time.monotonic())
            queue = self._find(name)
            if queue is None:
                continue
            wait = self._settings.wait_seconds
            if self._choice.several:
                wait = min(SHORT_WAIT_SECONDS, wait) if idle else 0
            try:
                answer = self._sqs.receive_message(
                    QueueUrl=queue.url,
                    MaxNumberOfMessages=self._batch_size,
                    WaitTimeSeconds=wait,
                    VisibilityTimeout=self._settings.visibility_seconds,
                    MessageSystemAttributeNames=["All"],
                    MessageAttributeNames=["All"],
                )
            except (ClientError, BotoCoreError) as error:
                self._receive_failed(queue, error)
                continue
            self._failing_since = None
            self._healthy_for(self._settings.wait_seconds)
            if messages := answer.get("Messages", []):
                self._choice.had_messages(name, sum(work_of(message["Body"]) for message in messages))
                self._current = queue
                self._invoke(messages)
            else:
                self._choice.was_empty(name, time.monotonic())

    def _receive_failed(self, queue: _Queue, error: ClientError | BotoCoreError) -> None:
        """Forget the queue if it comes and goes and was deleted. Otherwise pause."""
        gone = isinstance(error, ClientError) and error_code(error) in NO_QUEUE_CODES
        if gone and queue.name != self._queue_name:
            self._forget(queue.name)
            return
        self._logger.warning("receive_failed", extra={"queue": queue.name, "reason": str(error)})
        self._pause()

    def _pause(self) -> None:
        """Wait before the next call, longer while SQS has not answered for long."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        share = (now - self._failing_since) * PAUSE_SHARE
        self._stopping.wait(min(max(share, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def _forget(self, name: str) -> None:
        self._choice.remove(name)
        self._found.pop(name, None)

    def _look_for_more_queues(self) -> None:
        """Offer the queues that exist now to the choice, if `MORE_QUEUES_SECONDS` have passed."""
        if self._more_queues is None or time.monotonic() - self._looked_at < MORE_QUEUES_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            more = self._more_queues()
        except PrismlineError as error:  # the consumer continues to poll the queues that it knows
            self._logger.warning("queues_not_listed", extra={"reason": str(error)})
            return
        self._choice.offer({self._queue_name: OWN_PRIORITY, **more})
        self._found = {name: queue for name, queue in self._found.items() if name in {self._queue_name, *more}}

    def _find_queue(self) -> bool:
        """Wait until the queue exists, because services may start before their queues. False if `stop` was called."""
        self._choice.offer({self._queue_name: OWN_PRIORITY})
        while not self._stopping.is_set():
            try:
                self._found[self._queue_name] = self._look_up(self._queue_name)
                self._failing_since = None
                self._healthy_for(self._settings.wait_seconds)
                return True
            except (ClientError, BotoCoreError) as error:
                self._logger.warning("queue_not_ready", extra={"queue": self._queue_name, "reason": str(error)})
                self._pause()
        return False

    def _find(self, name: str) -> _Queue | None:
        """The queue with this full name. None if it is gone, or if SQS does not answer."""
        if name not in self._found:
            try:
                self._found[name] = self._look_up(name)
            except (ClientError, BotoCoreError) as error:
                self._logger.info("queue_not_found", extra={"queue": name, "reason": str(error)})
                self._forget(name)
        return self._found.get(name)

    def _look_up(self, name: str) -> _Queue:
        url = self._sqs.get_queue_url(QueueName=name)["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return _Queue(name, url, attributes["Attributes"]["QueueArn"])

    def _invoke(self, messages: list[MessageTypeDef]) -> None:
        with self._lock:
            self._in_flight = {message["MessageId"]: message["ReceiptHandle"] for message in messages}
        self._healthy_for(self._settings.invocation_seconds)
        done = threading.Event()
        renewal = threading.Thread(target=self._keep_hidden, args=(done,), daemon=True)
        renewal.start()
        try:
            with self._turn:
                if self._stopping.is_set():
                    self.release()
                    return
                failed = self._call_handler(messages)
        finally:
            done.set()
            renewal.join()
        self._healthy_for(self._settings.wait_seconds)
        with self._lock:
            finished = [handle for key, handle in self._in_flight.items() if key not in failed]
            self._in_flight = {}
        self._delete(finished)

    def _call_handler(self, messages: list[MessageTypeDef]) -> set[str]:
        """Invoke the handler. Return the ids of the messages that it did not finish."""
        received = {message["MessageId"] for message in messages}
        context = InvocationContext(self._current.name, time.monotonic() + self._settings.invocation_seconds)
        try:
            answer = self._handler(
                {"Records": [lambda_record(message, self._current.arn) for message in messages]}, context
            )
        except Exception:
            self._logger.exception("handler_raised", extra={"queue": self._current.name})
            return received
        return unfinished(answer, received)

    def _keep_hidden(self, done: threading.Event) -> None:
        """Renew the visibility timeout of the messages in flight whenever half of it has passed, until `done`."""
        while not done.wait(self._settings.visibility_seconds / 2):
            with self._lock:  # held during the call to AWS, because a renewal must not overtake a release
                self._set_visibility(self._settings.visibility_seconds)

    def release(self) -> None:
        """Make the messages in flight visible to other consumers at once."""
        with self._lock:
            self._set_visibility(0)
            self._in_flight = {}

    def _set_visibility(self, seconds: int) -> None:
        entries: list[ChangeMessageVisibilityBatchRequestEntryTypeDef] = [
            {"Id": str(n), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for n, handle in enumerate(self._in_flight.values())
        ]
        with self._logged("visibility_not_changed"):
            if entries:
                self._sqs.change_message_visibility_batch(QueueUrl=self._current.url, Entries=entries)

    def _delete(self, handles: list[str]) -> None:
        """Delete messages. SQS delivers a message again if this fails, and handlers are idempotent."""
        entries: list[DeleteMessageBatchRequestEntryTypeDef] = [
            {"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)
        ]
        with self._logged("delete_failed"):
            if entries:
                self._sqs.delete_message_batch(QueueUrl=self._current.url, Entries=entries)

    @contextmanager
    def _logged(self, event: str) -> Iterator[None]:
        """Log the errors of AWS in the block and continue."""
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            self._logger.warning(event, extra={"queue": self._current.name, "reason": str(error)})


def work_of(body: str) -> int:
    """The number of units of work in a message: the tasks that it names, or 1."""
    try:
        names = json.loads(body)["data"]["task_ids"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return 1
    return max(1, len(names)) if isinstance(names, list) else 1


def unfinished(answer: Any, received: set[str]) -> set[str]:
    """The ids of the messages that the handler's `answer` reports as failed.

    The rules are Lambda's: an invalid answer fails the whole batch, and an empty answer is a success.
    """
    if not answer:
        return set()
    try:
        failed = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures") or ()}
    except (AttributeError, KeyError, TypeError):
        return received
    return failed if failed <= received else received


def lambda_record(message: MessageTypeDef, arn: str) -> dict[str, Any]:
    """Convert a message to a record of Lambda's SQS event."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "md5OfBody": message.get("MD5OfBody", ""),
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: {
                "stringValue": value.get("StringValue"),
                "binaryValue": value.get("BinaryValue"),
                "dataType": value.get("DataType"),
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": arn.split(":")[3],
    }
