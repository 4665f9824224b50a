"""An event source mapping: receives messages from a queue, invokes a function with them, deletes those that succeeded.

The rules are Lambda's:

- A function is invoked when the batch is full, or when the batching window is over.
- Without `ReportBatchItemFailures`, an answer means that all messages succeeded. With it, the messages that the answer
  names failed. If the answer does not have the form of a partial answer, all messages failed.
- A failed message stays hidden until the visibility timeout of its queue is over. The mapping never changes that time,
  but handlers may.
- At most `MaximumConcurrency` invocations are in progress at a time.
- If the function has no concurrency left, the mapping tries the batch again until the visibility timeout is over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, Field

from prismline_localstack.functions.environment import Outcome
from prismline_localstack.functions.function import THROTTLED
from prismline_runtime.consumer import lambda_record, unfinished

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

#: Maximum number of messages that one receive returns.
RECEIVE_MESSAGES = 10
#: Longest poll in seconds. A mapping needs up to this long to end.
POLL_SECONDS = 1
#: Pause in seconds after an error of the queue or a refused invocation, so that neither is called in a tight loop.
PAUSE_SECONDS = 1.0
#: Response type of functions that name the failed messages of a batch.
PARTIAL = "ReportBatchItemFailures"


class Scaling(BaseModel):
    """The maximum number of concurrent invocations of a mapping."""

    maximum_concurrency: int | None = Field(default=None, alias="MaximumConcurrency")


class Source(BaseModel, frozen=True):
    """An event source mapping, as `ListEventSourceMappings` describes it."""

    uuid: str = Field(alias="UUID")
    queue_arn: str = Field(alias="EventSourceArn")
    function_arn: str = Field(alias="FunctionArn")
    state: str = Field(default="Enabled", alias="State")
    batch_size: int = Field(default=10, alias="BatchSize")
    window_seconds: float = Field(default=0, alias="MaximumBatchingWindowInSeconds")
    answer_types: list[str] = Field(default=[], alias="FunctionResponseTypes")
    scaling: Scaling = Field(default=Scaling(), alias="ScalingConfig")

    @property
    def function_name(self) -> str:
        """Name of the function that it invokes."""
        return self.function_arn.split(":")[6]


class EventSourceMapping:
    """Invokes a function with messages from a queue, from its creation until `stop`.

    invoke: invokes the function with an event. concurrency: the maximum number of concurrent invocations on this
    machine. A lower maximum of the mapping takes precedence.
    """

    def __init__(
        self, source: Source, sqs: SQSClient, invoke: Callable[[bytes], Outcome], concurrency: int, logger: Logger
    ) -> None:
        self.source = source
        self._sqs = sqs
        self._invoke = invoke
        self._logger = logger
        self._stopping = threading.Event()
        limit = min(concurrency, source.scaling.maximum_concurrency or concurrency)
        self._slots = threading.Semaphore(limit)
        self._invocations = ThreadPoolExecutor(limit)
        self._url = ""
        self._visibility_seconds = 0.0
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def stop(self) -> None:
        """Stop receiving. Invocations in progress continue."""
        self._stopping.set()
        self._invocations.shutdown(wait=False)

    def join(self, seconds: float) -> None:
        """Wait for the end of the last receive."""
        self._poller.join(seconds)

    def _poll(self) -> None:
        while not self._stopping.is_set():
            if not self._slots.acquire(timeout=POLL_SECONDS):
                continue
            batch: list[MessageTypeDef] = []
            try:
                batch = self._receive()
                if batch:
                    self._invocations.submit(self._work_off, batch)
            except (ClientError, BotoCoreError, RuntimeError) as error:  # RuntimeError: it was stopped meanwhile
                batch = []
                self._logger.warning("batch_not_received", extra={"queue": self.source.queue_arn, "reason": str(error)})
                self._stopping.wait(PAUSE_SECONDS)
            finally:
                if not batch:
                    self._slots.release()

    def _find_queue(self) -> None:
        url = self._sqs.get_queue_url(QueueName=self.source.queue_arn.split(":")[5])["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
        self._visibility_seconds = float(attributes["VisibilityTimeout"])
        self._url = url

    def _receive(self) -> list[MessageTypeDef]:
        """The next batch: a full one, or the messages that have arrived when the batching window is over."""
        if not self._url:
            self._find_queue()
        batch: list[MessageTypeDef] = []
        until = 0.0
        while len(batch) < self.source.batch_size and not self._stopping.is_set():
            left = until - time.monotonic() if batch else POLL_SECONDS
            if batch and left <= 0:
                break
            found = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=min(RECEIVE_MESSAGES, self.source.batch_size - len(batch)),
                WaitTimeSeconds=max(0, min(POLL_SECONDS, round(left))),
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            if not batch:
                if not found:
                    break
                until = time.monotonic() + self.source.window_seconds
            batch += found
        return batch

    def _work_off(self, batch: list[MessageTypeDef]) -> None:
        try:
            done = self._done(batch, self._outcome(self._event(batch)))
            for start in range(0, len(done), RECEIVE_MESSAGES):
                entries: Any = [
                    {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
                    for n, message in enumerate(done[start : start + RECEIVE_MESSAGES])
                ]
                self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        except (ClientError, BotoCoreError) as error:  # the messages become visible again; handlers are idempotent
            self._logger.warning("batch_not_deleted", extra={"queue": self.source.queue_arn, "reason": str(error)})
        finally:
            self._slots.release()

    def _outcome(self, event: bytes) -> Outcome:
        """Invoke the function and return the outcome. While it has no concurrency left, try again."""
        until = time.monotonic() + self._visibility_seconds - PAUSE_SECONDS
        outcome = self._invoke(event)
        while outcome is THROTTLED and time.monotonic() < until and not self._stopping.wait(PAUSE_SECONDS):
            outcome = self._invoke(event)
        return outcome

    def _event(self, batch: list[MessageTypeDef]) -> bytes:
        return json.dumps({"Records": [lambda_record(message, self.source.queue_arn) for message in batch]}).encode()

    def _done(self, batch: list[MessageTypeDef], outcome: Outcome) -> list[MessageTypeDef]:
        """The messages that succeeded."""
        if outcome.answer is None:
            return []
        if PARTIAL not in self.source.answer_types:
            return batch
        try:
            answer = outcome.json()
        except ValueError:
            return []
        failed = unfinished(answer, {message["MessageId"] for message in batch})
        return [message for message in batch if message["MessageId"] not in failed]
