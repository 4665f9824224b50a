"""A dead-letter consumer over real queues, a real table and a real bucket of the emulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import ChunkProcess
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.prefixes import ARCHIVE_PREFIX
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.handler import build_handler
from prismline_ledger import Ledger, Outcome, Started
from prismline_ledger.testing import Context, lambda_event, split_run
from prismline_localstack.testing import create_runs_table, observe_bus
from prismline_runtime import Bucket

QUEUES = ("alerts", "split", "chunks", "tasks", "refits", "status", "runs", "recoveries", "exports")
#: Clients that the consumer uses.
CLIENTS = ("dynamodb", "events", "s3", "sqs", "ssm", "stepfunctions")


class Client:
    """A client of the emulator that records its calls and fails on demand."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._failures: dict[str, tuple[str, int]] = {}
        self._answers: dict[str, Callable[..., Any]] = {}
        self._calls: list[tuple[str, dict[str, Any]]] = []
        self._noting = True

    def fail(self, operation: str, code: str = "ServiceUnavailable", *, times: int = 10**6) -> None:
        """Make an operation fail. `*` means every operation."""
        self._failures[operation] = (code, times)

    def answer(self, operation: str, answer: Callable[..., Any]) -> None:
        """Answer an operation with a function of its arguments."""
        self._answers[operation] = answer

    def mend(self) -> None:
        self._failures.clear()

    def forget(self) -> None:
        """Stop recording calls, and drop the recorded ones."""
        self._noting = False
        self._calls.clear()

    def calls(self, operation: str) -> list[dict[str, Any]]:
        """The arguments of the calls of an operation so far."""
        return [arguments for name, arguments in self._calls if name == operation]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        def call(*positional: Any, **arguments: Any) -> Any:
            if self._noting:
                self._calls.append((name, arguments))
            failing = name if name in self._failures else "*"
            code, times = self._failures.get(failing, ("", 0))
            if times > 0:
                self._failures[failing] = (code, times - 1)
                raise ClientError({"Error": {"Code": code, "Message": "no"}}, name)
            return self._answers.get(name, method)(*positional, **arguments)

        return call


@dataclass
class DlqConsumerWorld:
    environment: str
    deps: Dependencies
    sqs: Any
    s3: Any
    urls: dict[str, str]
    bucket: Bucket
    #: The consumer's own clients, by service.
    clients: dict[str, Client]
    #: Deliveries by queue, for tests that limit their number.
    delivered: dict[str, int] = field(default_factory=dict)

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch) -> DlqConsumerWorld:
        sqs, s3 = boto3.client("sqs"), boto3.client("s3")
        dynamodb, table, bucket = boto3.client("dynamodb"), f"runs-{environment}", f"bucket-{environment}"
        s3.create_bucket(Bucket=bucket)
        create_runs_table(dynamodb, table)
        events, bus = boto3.client("events"), f"prismline-{environment}"
        events.create_event_bus(Name=bus)
        urls = {}
        for queue in QUEUES:
            name = f"prismline-{environment}-{queue}"
            urls[f"{queue}-dlq"] = sqs.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
            redrive = {"deadLetterTargetArn": _arn(sqs, urls[f"{queue}-dlq"]), "maxReceiveCount": 5}
            attributes = {"RedrivePolicy": json.dumps(redrive), "VisibilityTimeout": "0"}
            urls[queue] = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        urls["observer"] = observe_bus(sqs, events, bus)
        patch.setenv("RUNS_TABLE", table)
        patch.setenv("BUCKET", bucket)
        patch.setenv("RESEND_SECONDS", "0")
        clients = {name: Client(boto3.client(name)) for name in CLIENTS}
        for name, client in clients.items():
            patch.setattr(f"prismline_runtime.clients.{name}", lambda client=client: client)
        return cls(environment, Dependencies.from_environment(), sqs, s3, urls, Bucket(s3, bucket), clients)

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def arn(self, queue: str) -> str:
        return _arn(self.sqs, self.urls[queue])

    def ledger_at(self, moment: datetime) -> Ledger:
        """The ledger at another time."""
        return Ledger(boto3.client("dynamodb"), self.deps.settings.runs_table, clock=lambda: timestamp(moment))

    def set(self, **settings: Any) -> None:
        """Replace settings."""
        self.deps = replace(self.deps, settings=self.deps.settings.model_copy(update=settings))

    def run(self, run_id: str, n_chunks: int = 1) -> list[str]:
        """Make a run that has been split. Returns the ids of its chunks."""
        return split_run(self.ledger, run_id, n_chunks)

    def item(self, run_id: str) -> RunItem:
        return self.ledger.run(run_id)

    def attempt(self, run_id: str, chunk_id: str, *, ago: float = 0.0) -> ChunkItem:
        """Begin an attempt at a chunk, some seconds ago."""
        started = self.ledger_at(now() - timedelta(seconds=ago)).start_chunk(run_id, chunk_id)
        assert isinstance(started, Started)
        return started.chunk

    def exhaust(self, run_id: str, chunk_id: str, *, ago: float = 86_400.0, error: str = "S3 said 503.") -> None:
        """Use up all attempts at a chunk, some seconds ago."""
        for _ in range(self.deps.settings.max_attempts):
            self.ledger.end_attempt(self.attempt(run_id, chunk_id, ago=ago), error, interrupted=False)

    def complete(self, run_id: str, chunk_id: str, **fields: Any) -> None:
        self.ledger.complete_chunk(self.attempt(run_id, chunk_id), Outcome("o", **fields), duration_ms=1)

    def fail(self, run_id: str, chunk_id: str, error: str = "given up") -> None:
        self.ledger.fail_chunk(self.ledger.chunk(run_id, chunk_id), error)

    def send(self, queue: str, body: str, **attributes: str) -> None:
        """Put a message into a queue."""
        self.sqs.send_message(
            QueueUrl=self.urls[queue],
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
            },
        )

    def receive(self, queue: str, batch: int = 10, visibility: int = 30, wait: int = 0) -> dict[str, Any] | None:
        """A batch as Lambda's SQS event, or None after `wait` seconds."""
        messages = self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=batch,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            VisibilityTimeout=visibility,
            WaitTimeSeconds=wait,
        ).get("Messages", [])
        self.delivered[queue] = self.delivered.get(queue, 0) + len(messages)
        if not messages:
            return None
        return lambda_event(messages, self.environment, queue)

    def handle(self, queue: str, batch: int = 10, visibility: int = 30, wait: int = 0) -> list[str] | None:
        """Let the consumer handle a batch. Returns the ids that it leaves; None if nothing came in `wait` seconds."""
        event = self.receive(queue, batch, visibility, wait)
        if event is None:
            return None
        answer = build_handler(self.deps)(event, Context())
        left = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        for record in event["Records"]:
            if record["messageId"] not in left:
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=record["receiptHandle"])
        return left

    def drain(self, queue: str) -> None:
        """Let the consumer work on a queue until it is empty."""
        while self.depth(queue):
            self.handle(queue, wait=1)

    def taken(self, queue: str) -> list[dict[str, Any]]:
        """Take all messages out of a queue. Returns their bodies."""
        return [json.loads(record["body"]) for record in self.taken_records(queue)]

    def taken_records(self, queue: str) -> list[dict[str, Any]]:
        """Take all messages out of a queue. Returns their records."""
        found = []
        while (event := self.receive(queue)) is not None:
            for record in event["Records"]:
                found.append(record)
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=record["receiptHandle"])
        return found

    def depth(self, queue: str) -> int:
        names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.urls[queue], AttributeNames=names)["Attributes"]
        return sum(int(attributes.get(name, "0")) for name in names)

    def delays(self) -> list[int]:
        """The delivery delay, in seconds, of each message that was sent so far."""
        calls = self.clients["sqs"].calls("send_message_batch")
        return [entry.get("DelaySeconds", 0) for call in calls for entry in call["Entries"]]

    def records(self, prefix: str = ARCHIVE_PREFIX) -> dict[str, dict[str, Any]]:
        """The archive: every record, by key."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket.name, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: json.loads(self.bucket.read(key)) for key in keys}

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds, such as `chunk.failed`, that were published since the last call."""
        found = []
        while messages := self.sqs.receive_message(
            QueueUrl=self.urls["observer"], MaxNumberOfMessages=10, VisibilityTimeout=60
        ).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.urls["observer"], ReceiptHandle=message["ReceiptHandle"])
        return [event for event in found if event["type"] in {f"prismline.{kind}.v1" for kind in kinds}]


def chunk_message(run_id: str, chunk_id: str, **fields: Any) -> str:
    """A `chunk.process` command as the splitter sends it."""
    command = ChunkProcess(
        run_id=run_id,
        job_id="j",
        survey="grs",
        workload="spectra",
        chunk_id=chunk_id,
        n_items=1,
        bucket="b",
        chunk_key=f"chunks/{run_id}/{chunk_id}.npz",
        params={},
        **fields,
    )
    return Envelope.wrap(command, source="prismline/test", traceparent=None, key=(chunk_id,)).to_json()


def _arn(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])
