"""SQS: standard queues with visibility, redrive to dead-letter queues, and retention."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.aws.base import ACCOUNT, REGION, Client, client_error, operation

#: Longest time, in seconds, for which a message is hidden after its receipt.
MAX_VISIBILITY_SECONDS = 43_200
#: Longest delay of a message, in seconds.
MAX_DELAY_SECONDS = 900
#: Most bytes of one message and of one batch, bodies and attributes.
MAX_BYTES = 2**20
#: Most entries of one batch, and most messages of one receive.
MAX_BATCH = 10
#: Seconds for which a queue's name is refused after the queue was deleted.
DELETED_SECONDS = 60
#: The attributes of a queue that was created without attributes.
DEFAULTS = {
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "MaximumMessageSize": str(MAX_BYTES),
}

_URL = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/"


def arn_of(name: str) -> str:
    """The ARN of the queue `name`."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def url_of(name: str) -> str:
    """The URL of the queue `name`."""
    return _URL + name


@dataclass(slots=True)
class Message:
    """A message in a queue."""

    message_id: str
    body: str
    attributes: Mapping[str, Mapping[str, Any]]
    #: When it was first sent, in seconds since the epoch. A move to a dead-letter queue does not change it.
    sent: float
    #: The message is hidden until this moment.
    visible_at: float
    receive_count: int = 0
    first_received: float | None = None
    #: Time of the latest receipt; its receipt handle, "" before the first one.
    received: float = 0.0
    receipt: str = ""
    #: ARN of the queue that moved it to the dead-letter queue.
    source_arn: str | None = None
    #: Whether it is a second delivery of a message that is also in the queue: standard queues deliver at least once.
    duplicate: bool = False

    @property
    def in_flight(self) -> bool:
        """Whether the message is hidden: it was received and not released since, or it is delayed."""
        return bool(self.receipt)


@dataclass
class Queue:
    """A standard queue."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    #: By message id. A duplicate has a different key here, but holds its message's id.
    messages: dict[str, Message] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arn = arn_of(self.name)
        self.url = url_of(self.name)
        self.configure(DEFAULTS | self.attributes)

    def configure(self, attributes: Mapping[str, str]) -> None:
        """Set attributes, in the form of SetQueueAttributes."""
        self.attributes = self.attributes | dict(attributes)
        #: Seconds for which a received message is hidden.
        self.visibility = int(self.attributes["VisibilityTimeout"])
        #: Seconds for which a message is kept after it was sent.
        self.retention = int(self.attributes["MessageRetentionPeriod"])
        self.delay = int(self.attributes["DelaySeconds"])
        redrive = json.loads(self.attributes.get("RedrivePolicy") or "{}")
        #: The dead-letter queue, and the number of receives before a message is moved there.
        self.dead_letter_queue: str | None = redrive["deadLetterTargetArn"].rpartition(":")[2] if redrive else None
        self.max_receive_count = int(redrive["maxReceiveCount"]) if redrive else 0

    def empty_copy(self) -> Queue:
        """A queue like this one, without messages."""
        copy = object.__new__(Queue)
        copy.__dict__.update(self.__dict__)
        copy.messages = {}
        return copy

    def visible(self, now: float) -> list[Message]:
        """Messages that a receive could get."""
        return [message for message in self.messages.values() if message.visible_at <= now]

    def next_visible_at(self) -> float | None:
        """When the first message is or becomes visible. None: the queue is empty."""
        if not self.messages:
            return None
        return min([message.visible_at for message in self.messages.values()])

    def expire(self, now: float) -> None:
        """Remove messages that are older than the retention period."""
        oldest = now - self.retention
        messages = self.messages
        for message in messages.values():
            if message.sent <= oldest:
                self.messages = {key: each for key, each in messages.items() if each.sent > oldest}
                return

    def depths(self, now: float) -> tuple[int, int, int]:
        """How many messages are visible, in flight and delayed."""
        visible = in_flight = delayed = 0
        for message in self.messages.values():
            if message.visible_at <= now:
                visible += 1
            elif message.receipt:
                in_flight += 1
            else:
                delayed += 1
        return visible, in_flight, delayed


class SQS(Client):
    """The part of boto3's SQS client that Prismline uses. A receive never waits: the hub decides when to poll again."""

    service = "sqs"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self._queues: dict[str, Queue] = aws.queues
        #: Whether an older receipt handle still deletes and hides its message. AWS does not guarantee that.
        self.stale_receipts_count = False
        self._numbers = 0
        self._receipts = 0
        #: When queues were deleted, by name.
        self._deleted: dict[str, float] = {}

    # ---- queues

    @operation
    def create_queue(
        self, *, QueueName: str, Attributes: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        existing = self._queues.get(QueueName)
        wanted = dict(Attributes or {})
        if existing is None:
            if self._hub.now() - self._deleted.get(QueueName, float("-inf")) < DELETED_SECONDS:
                raise client_error(
                    "CreateQueue",
                    "AWS.SimpleQueueService.QueueDeletedRecently",
                    "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
                )
            self._queues[QueueName] = Queue(QueueName, wanted, tags=dict(tags or {}))
        elif any(existing.attributes.get(name) != value for name, value in wanted.items()):
            raise client_error(
                "CreateQueue", "QueueAlreadyExists", "A queue already exists with the same name and a different value"
            )
        return {"QueueUrl": url_of(QueueName)}

    @operation
    def delete_queue(self, *, QueueUrl: str) -> dict[str, Any]:
        self.remove(self._queue("DeleteQueue", QueueUrl).name)
        return {}

    def remove(self, name: str) -> None:
        """Delete a queue with its messages, without a gate: a person does that."""
        del self._queues[name]
        self._deleted[name] = self._hub.now()

    @operation
    def list_queue_tags(self, *, QueueUrl: str) -> dict[str, Any]:
        tags = self._queue("ListQueueTags", QueueUrl).tags
        return {"Tags": dict(tags)} if tags else {}

    @operation
    def get_queue_url(self, *, QueueName: str) -> dict[str, Any]:
        return {"QueueUrl": self._queue("GetQueueUrl", QueueName).url}

    @operation
    def list_queues(self, *, QueueNamePrefix: str = "") -> dict[str, Any]:
        urls = [queue.url for name, queue in self._queues.items() if name.startswith(QueueNamePrefix)]
        return {"QueueUrls": urls} if urls else {}

    @operation
    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: Sequence[str] = ()) -> dict[str, Any]:
        queue = self._queue("GetQueueAttributes", QueueUrl)
        now = self._hub.now()
        queue.expire(now)
        visible, in_flight, delayed = queue.depths(now)
        known = {
            **queue.attributes,
            "QueueArn": queue.arn,
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesNotVisible": str(in_flight),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
        }
        if "All" not in AttributeNames:
            known = {name: value for name, value in known.items() if name in AttributeNames}
        return {"Attributes": known} if known else {}

    @operation
    def set_queue_attributes(self, *, QueueUrl: str, Attributes: Mapping[str, str]) -> dict[str, Any]:
        self._queue("SetQueueAttributes", QueueUrl).configure(Attributes)
        return {}

    @operation
    def purge_queue(self, *, QueueUrl: str) -> dict[str, Any]:
        self._queue("PurgeQueue", QueueUrl).messages.clear()
        return {}

    # ---- sending

    @operation
    def send_message(
        self,
        *,
        QueueUrl: str,
        MessageBody: str,
        DelaySeconds: int | None = None,
        MessageAttributes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        queue = self._queue("SendMessage", QueueUrl)
        attributes = MessageAttributes or {}
        problem = _problem(MessageBody, attributes, DelaySeconds)
        if problem:
            raise client_error("SendMessage", *problem)
        message = self.enqueue(queue, MessageBody, attributes, DelaySeconds)
        return {"MessageId": message.message_id, "MD5OfMessageBody": _md5(MessageBody)}

    @operation
    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        queue = self._queue("SendMessageBatch", QueueUrl)
        _check_batch("SendMessageBatch", Entries)
        if sum(_bytes(each["MessageBody"], each.get("MessageAttributes") or {}) for each in Entries) > MAX_BYTES:
            raise client_error(
                "SendMessageBatch",
                "AWS.SimpleQueueService.BatchRequestTooLong",
                f"Batch requests cannot be longer than {MAX_BYTES} bytes.",
            )
        sent, failed = [], []
        for each in Entries:
            body, attributes = each["MessageBody"], each.get("MessageAttributes") or {}
            problem = _problem(body, attributes, each.get("DelaySeconds"))
            if problem:
                failed.append({"Id": each["Id"], "SenderFault": True, "Code": problem[0], "Message": problem[1]})
            else:
                message = self.enqueue(queue, body, attributes, each.get("DelaySeconds"))
                answer = {"Id": each["Id"], "MessageId": message.message_id, "MD5OfMessageBody": _md5(body)}
                sent.append(answer)
        return ({"Successful": sent} if sent else {}) | ({"Failed": failed} if failed else {})

    def enqueue(
        self,
        queue: Queue,
        body: str,
        attributes: Mapping[str, Mapping[str, Any]] | None = None,
        delay: int | None = None,
    ) -> Message:
        """Put a message into a queue, without a gate: for messages that AWS itself sends."""
        now = self._hub.now()
        self._numbers += 1
        identifier = f"00000000-0000-4000-8000-{self._numbers:012d}"
        wait = queue.delay if delay is None else delay
        message = Message(identifier, body, {**attributes} if attributes else {}, now, now + wait)
        queue.messages[identifier] = message
        return message

    def redeliver(self, queue: str, message_id: str) -> Message | None:
        """Make a second delivery of a message visible, as standard queues may. None: the queue does not have it."""
        held = self._queues[queue].messages
        original = held.get(message_id)
        if original is None:
            return None
        self._numbers += 1
        copy = Message(
            message_id,
            original.body,
            original.attributes,
            original.sent,
            self._hub.now(),
            original.receive_count,
            original.first_received,
            source_arn=original.source_arn,
            duplicate=True,
        )
        held[f"{message_id}/{self._numbers}"] = copy
        return copy

    # ---- receiving

    @operation
    def receive_message(
        self,
        *,
        QueueUrl: str,
        MaxNumberOfMessages: int = 1,
        VisibilityTimeout: int | None = None,
        WaitTimeSeconds: int = 0,
        MessageSystemAttributeNames: Sequence[str] = (),
        AttributeNames: Sequence[str] = (),
        MessageAttributeNames: Sequence[str] = (),
    ) -> dict[str, Any]:
        queue = self._queue("ReceiveMessage", QueueUrl)
        if not 1 <= MaxNumberOfMessages <= MAX_BATCH:
            raise client_error(
                "ReceiveMessage",
                "InvalidParameterValue",
                f"Value {MaxNumberOfMessages} for parameter MaxNumberOfMessages is invalid. "
                "Reason: Must be between 1 and 10, if provided.",
            )
        if VisibilityTimeout is not None and not 0 <= VisibilityTimeout <= MAX_VISIBILITY_SECONDS:
            raise _invalid_visibility("ReceiveMessage", VisibilityTimeout)
        now = self._hub.now()
        queue.expire(now)
        hidden = queue.visibility if VisibilityTimeout is None else VisibilityTimeout
        system = frozenset((*MessageSystemAttributeNames, *AttributeNames))
        received: list[dict[str, Any]] = []
        candidates = [(key, message) for key, message in queue.messages.items() if message.visible_at <= now]
        if len(candidates) > 1:
            self._hub.random().shuffle(candidates)
        for key, message in candidates:
            if queue.max_receive_count and message.receive_count >= queue.max_receive_count:
                self.give_up(queue, key, message, now)
                continue
            self._receipts += 1
            message.receive_count += 1
            message.receipt = f"{queue.name}/{key}#{self._receipts}"
            message.received = now
            if message.first_received is None:
                message.first_received = now
            message.visible_at = now + hidden
            received.append(_shown(message, system, MessageAttributeNames))
            if len(received) == MaxNumberOfMessages:
                break
        return {"Messages": received} if received else {}

    def give_up(self, queue: Queue, key: str, message: Message, now: float) -> None:
        """Move a message to the dead-letter queue with its id, count and age."""
        del queue.messages[key]
        message.source_arn = queue.arn
        message.receipt = ""
        message.visible_at = now
        self._queues[queue.dead_letter_queue or ""].messages[key] = message

    @operation
    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> dict[str, Any]:
        self.delete("DeleteMessage", self._queue("DeleteMessage", QueueUrl), ReceiptHandle)
        return {}

    @operation
    def delete_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        queue = self._queue("DeleteMessageBatch", QueueUrl)
        _check_batch("DeleteMessageBatch", Entries)
        return _each(Entries, lambda each: self.delete("DeleteMessageBatch", queue, each["ReceiptHandle"]))

    def delete(self, operation_name: str, queue: Queue, receipt: str) -> None:
        """Delete the message with this latest receipt handle. An older one deletes nothing and is no error."""
        key, message = self.held(operation_name, queue, receipt)
        if message is not None and (message.receipt == receipt or self.stale_receipts_count):
            del queue.messages[key]

    @operation
    def change_message_visibility(self, *, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> dict[str, Any]:
        name = "ChangeMessageVisibility"
        self.hide(name, self._queue(name, QueueUrl), ReceiptHandle, VisibilityTimeout)
        return {}

    @operation
    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        name = "ChangeMessageVisibilityBatch"
        queue = self._queue(name, QueueUrl)
        _check_batch(name, Entries)
        return _each(
            Entries, lambda each: self.hide(name, queue, each["ReceiptHandle"], each.get("VisibilityTimeout", 30))
        )

    def hide(self, operation_name: str, queue: Queue, receipt: str, seconds: int) -> None:
        if not 0 <= seconds <= MAX_VISIBILITY_SECONDS:
            raise _invalid_visibility(operation_name, seconds)
        now = self._hub.now()
        queue.expire(now)
        _, message = self.held(operation_name, queue, receipt)
        if message is None:
            raise client_error(
                operation_name,
                "InvalidParameterValue",
                f"Value {receipt} for parameter ReceiptHandle is invalid. "
                "Reason: Message does not exist or is not available for visibility timeout change.",
            )
        if message.visible_at <= now or (message.receipt != receipt and not self.stale_receipts_count):
            return  # the receipt handle has expired: AWS answers as if it were valid
        if now + seconds - message.received > MAX_VISIBILITY_SECONDS:
            raise client_error(
                operation_name,
                "InvalidParameterValue",
                f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the "
                f"message is beyond the limit [{MAX_VISIBILITY_SECONDS} seconds].",
            )
        message.visible_at = now + seconds

    def held(self, operation_name: str, queue: Queue, receipt: str) -> tuple[str, Message | None]:
        name, slash, rest = receipt.partition("/")
        key, hash_sign, _ = rest.rpartition("#")
        if not slash or not hash_sign or name != queue.name:
            raise client_error(
                operation_name,
                "ReceiptHandleIsInvalid",
                f'The input receipt handle "{receipt}" is not valid.',
                status=404,
            )
        return key, queue.messages.get(key)

    def _queue(self, operation_name: str, url: str) -> Queue:
        try:
            return self._queues[url.rpartition("/")[2]]
        except KeyError:
            raise client_error(
                operation_name,
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist.",
            ) from None


def _each(entries: Iterable[Mapping[str, Any]], act: Any) -> dict[str, Any]:
    """The answer of a batch: which entries succeeded and which were refused."""
    done, failed = [], []
    for each in entries:
        try:
            act(each)
        except ClientError as error:
            details = error.response["Error"]
            failed.append(
                {"Id": each["Id"], "SenderFault": True, "Code": details["Code"], "Message": details["Message"]}
            )
        else:
            done.append({"Id": each["Id"]})
    return ({"Successful": done} if done else {}) | ({"Failed": failed} if failed else {})


def _check_batch(operation_name: str, entries: Sequence[Mapping[str, Any]]) -> None:
    if not entries:
        raise client_error(
            operation_name,
            "AWS.SimpleQueueService.EmptyBatchRequest",
            "There should be at least one entry in the request.",
        )
    if len(entries) > MAX_BATCH:
        raise client_error(
            operation_name,
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MAX_BATCH}. You have sent {len(entries)}.",
        )
    if len({each["Id"] for each in entries}) < len(entries):
        raise client_error(
            operation_name, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "Two or more entries have the same Id."
        )


def _problem(body: str, attributes: Mapping[str, Mapping[str, Any]], delay: int | None) -> tuple[str, str] | None:
    """Error code and message for an invalid message to send."""
    if not body:
        return "MissingParameter", "The request must contain the parameter MessageBody."
    if _bytes(body, attributes) > MAX_BYTES:
        return (
            "InvalidParameterValue",
            f"One or more parameters are invalid. Reason: Message must be shorter than {MAX_BYTES} bytes.",
        )
    if len(attributes) > 10:
        return "InvalidParameterValue", "Number of message attributes [11] exceeds the allowed maximum [10]."
    for name, value in attributes.items():
        if value.get("StringValue") == "" or (value.get("StringValue") is None and not value.get("BinaryValue")):
            return (
                "InvalidParameterValue",
                f"Message (user) attribute '{name}' must contain a non-empty value of type 'String'.",
            )
    if delay is not None and not 0 <= delay <= MAX_DELAY_SECONDS:
        return (
            "InvalidParameterValue",
            f"Value {delay} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
        )
    return None


def _bytes(body: str, attributes: Mapping[str, Mapping[str, Any]]) -> int:
    size = len(body) if body.isascii() else len(body.encode())
    for name, value in attributes.items():
        content = value.get("StringValue")
        size += len(name.encode()) + len(value["DataType"])
        size += len(value.get("BinaryValue", b"")) if content is None else len(content.encode())
    return size


def _invalid_visibility(operation_name: str, seconds: int) -> ClientError:
    return client_error(
        operation_name,
        "InvalidParameterValue",
        f"Value {seconds} for parameter VisibilityTimeout is invalid. "
        "Reason: VisibilityTimeout must be an integer between 0 and 43200.",
    )


@lru_cache(maxsize=1024)
def _md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _shown(message: Message, system: frozenset[str], wanted: Sequence[str]) -> dict[str, Any]:
    """A message in the form of a receive's answer."""
    shown: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt,
        "MD5OfBody": _md5(message.body),
        "Body": message.body,
    }
    if system:
        attributes = {
            "SenderId": ACCOUNT,
            "SentTimestamp": str(round(message.sent * 1000)),
            "ApproximateReceiveCount": str(message.receive_count),
            "ApproximateFirstReceiveTimestamp": str(round((message.first_received or 0.0) * 1000)),
        }
        if message.source_arn is not None:
            attributes["DeadLetterQueueSourceArn"] = message.source_arn
        if "All" not in system:
            attributes = {name: value for name, value in attributes.items() if name in system}
        shown["Attributes"] = attributes
    if wanted and message.attributes:
        found = {
            name: dict(value)
            for name, value in message.attributes.items()
            if any(
                each in {"All", ".*", name} or (each.endswith(".*") and name.startswith(each[:-2])) for each in wanted
            )
        }
        if found:
            shown["MessageAttributes"] = found
    return shown
