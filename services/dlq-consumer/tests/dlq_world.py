"""A dead-letter consumer over real queues, a real table and a real bucket of the emulator."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest

from prismline_contracts import ARCHIVE_PREFIX, ChunkProcess, Envelope, RunItem
from prismline_dlq_consumer.dependencies import Dependencies, from_environment
from prismline_dlq_consumer.handler import build_handler
from prismline_ledger import Ledger, NewChunk
from prismline_localstack.testing import create_runs_table, observe_bus

QUEUES = ("alerts", "split", "chunks", "refits", "status", "runs", "recoveries")


class Context:
    """What Lambda passes as context."""

    def get_remaining_time_in_millis(self) -> int:
        return 900_000


@dataclass
class World:
    environment: str
    deps: Dependencies
    sqs: Any
    s3: Any
    urls: dict[str, str]
    #: Deliveries by queue, for what must be bounded.
    delivered: dict[str, int] = field(default_factory=dict)

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch) -> World:
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
        return cls(environment, from_environment(), sqs, s3, urls)

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def set(self, **settings: Any) -> None:
        """Replace settings."""
        self.deps = replace(self.deps, settings=self.deps.settings.model_copy(update=settings))

    def run(self, run_id: str, n_chunks: int = 1) -> list[str]:
        """A run that has been split; the ids of its chunks."""
        self.ledger.open_run(run_id=run_id, survey="grs", job_id="j", workload="spectra", params=None, traceparent=None)
        chunks = [NewChunk(f"chunk-{n:07d}", f"chunks/{run_id}/{n}.npz", 1) for n in range(n_chunks)]
        self.ledger.add_chunks(run_id, chunks)
        self.ledger.set_total(run_id, jobs_total=n_chunks, n_spectra=n_chunks, n_blank=0)
        self.ledger.latch(run_id)
        return [chunk.chunk_id for chunk in chunks]

    def item(self, run_id: str) -> RunItem:
        return self.ledger.run(run_id)

    def send(self, queue: str, body: str, **attributes: str) -> None:
        """Put a message into a queue."""
        self.sqs.send_message(
            QueueUrl=self.urls[queue],
            MessageBody=body,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
            },
        )

    def receive(self, queue: str, batch: int = 10, visibility: int = 30) -> dict[str, Any] | None:
        """A batch as Lambda's SQS event, or None."""
        messages = self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=batch,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            VisibilityTimeout=visibility,
        ).get("Messages", [])
        self.delivered[queue] = self.delivered.get(queue, 0) + len(messages)
        if not messages:
            return None
        return {
            "Records": [
                {
                    "messageId": message["MessageId"],
                    "receiptHandle": message["ReceiptHandle"],
                    "body": message["Body"],
                    "md5OfBody": message["MD5OfBody"],
                    "attributes": message["Attributes"],
                    "messageAttributes": {
                        name: {"stringValue": value.get("StringValue"), "dataType": value["DataType"]}
                        for name, value in message.get("MessageAttributes", {}).items()
                    },
                    "eventSource": "aws:sqs",
                    "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:prismline-{self.environment}-{queue}",
                    "awsRegion": "us-east-1",
                }
                for message in messages
            ]
        }

    def handle(self, queue: str, batch: int = 10, visibility: int = 30) -> list[str] | None:
        """Have the consumer take a batch; the message ids that it leaves. None: the queue is empty."""
        event = self.receive(queue, batch, visibility)
        if event is None:
            return None
        answer = build_handler(self.deps)(event, Context())
        left = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        for record in event["Records"]:
            if record["messageId"] not in left:
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=record["receiptHandle"])
        return left

    def depth(self, queue: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.urls[queue], AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def records(self, prefix: str = ARCHIVE_PREFIX) -> dict[str, dict[str, Any]]:
        """The archive: every record, by key."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.deps.bucket.name, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: json.loads(self.deps.bucket.read(key)) for key in keys}

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """What was said on the bus since the last look, of these kinds, such as `chunk.failed`."""
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
