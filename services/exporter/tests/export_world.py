"""An exporter over real queues, real tables and a real bucket of the emulator."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import boto3
import pytest

from prismline_contracts.envelope import traceparent_of
from prismline_contracts.events import ExportRequested
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import ExportItem, export_object_key, jobs_table_name
from prismline_contracts.tasks import TaskResult, result_key
from prismline_exporter.dependencies import Dependencies
from prismline_exporter.exports import Exports
from prismline_exporter.handler import build_handler
from prismline_ledger import Ledger, TaskEnding
from prismline_ledger.testing import Clock, Context, ingest_run, lambda_event
from prismline_localstack.testing import create_environment, drained, observe_bus

QUEUES = ("exports", "exports-dlq")
RUN_ID, EXPORT_ID = "run-1", "export-1"


def body_of(index: int) -> bytes:
    """The page that the task with this index fetched."""
    return (f"<html>{index}</html>" * (index % 50)).encode()


@dataclass
class ExportWorld:
    environment: str
    deps: Dependencies
    s3: Any
    sqs: Any
    bucket: str
    #: The clock that decides whether a lease has ended.
    clock: Clock
    #: Queue that receives every event on the bus.
    ear: str = ""

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch) -> ExportWorld:
        """Create queues, tables and a bucket, and an exporter that uses them."""
        sqs, dynamodb, events = boto3.client("sqs"), boto3.client("dynamodb"), boto3.client("events")
        bucket = create_environment(environment, patch, QUEUES)
        create_jobs_table(dynamodb, jobs_table_name(environment))
        world = cls.connect(environment, bucket)
        world.ear = observe_bus(sqs, events, f"prismline-{environment}")
        return world

    @classmethod
    def connect(cls, environment: str, bucket: str) -> ExportWorld:
        """An exporter that uses existing resources, as the environment variables name them."""
        clock = Clock()
        exports = Exports(boto3.client("dynamodb"), jobs_table_name(environment), timedelta(seconds=60), clock=clock)
        deps = replace(Dependencies.from_environment(), exports=exports)
        return cls(environment, deps, boto3.client("s3"), boto3.client("sqs"), bucket, clock)

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def set(self, **settings: Any) -> None:
        """Replace settings."""
        self.deps = replace(self.deps, settings=self.deps.settings.model_copy(update=settings))

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        content: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def keys(self, prefix: str) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return [item["Key"] for item in found]

    # ---- runs

    def run_of_tasks(
        self, bodies: Sequence[bytes | None], *, shard_count: int = 1, end: bool = True, run_id: str = RUN_ID
    ) -> RunItem:
        """Make a run whose tasks stored `bodies`. A task without a body failed with HTTP 404."""
        urls = [f"https://example.org/{n}" for n in range(len(bodies))]
        fields = {"job_id": "job-1", "traceparent": traceparent_of(run_id)}
        by_shard = ingest_run(self.ledger, run_id, urls, shard_count=shard_count, **fields)
        if end:
            for names in by_shard.values():
                self.end(self.ledger.run(run_id), names, bodies)
        return self.ledger.run(run_id)

    def end(self, run: RunItem, names: Sequence[str], bodies: Sequence[bytes | None]) -> None:
        """Let tasks store their bodies and end."""
        started = self.ledger.start_tasks(run, self.ledger.read_tasks(run, names).values())
        endings = []
        for task in started:
            body = bodies[task.index]
            if body is None:
                endings.append(TaskEnding(task, error="HTTP 404: there is no such page."))
                continue
            key = result_key(run.run_id, task.task_id)
            self.put(key, body)
            result = TaskResult(
                key=key,
                http_status=200,
                content_type="text/html; charset=utf-8",
                length=len(body),
                sha256=sha256(body).hexdigest(),
                final_url=task.source,
            )
            endings.append(TaskEnding(task, result=result, duration_ms=5))
        self.ledger.end_tasks(run, endings)

    # ---- exports

    def request(self, run_id: str = RUN_ID, export_id: str = EXPORT_ID, **fields: str) -> None:
        """Put a request into the exporter's queue, as the bus delivers it."""
        data = ExportRequested(run_id=run_id, export_id=export_id, tenant="acme", **fields)
        message = self.deps.transport.wrap(data, traceparent=traceparent_of(run_id), key=(export_id,))
        self.deps.transport.send("exports", [message])

    def handle(self, *, seconds: float = 900.0) -> list[str] | None:
        """Let the exporter handle a message. Returns the message ids that it leaves, or None if the queue is empty."""
        url = self.sqs.get_queue_url(QueueName=f"prismline-{self.environment}-exports")["QueueUrl"]
        messages = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=1, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages", [])
        if not messages:
            return None
        event = lambda_event(messages, self.environment, "exports")
        answer = build_handler(self.deps)(event, Context(seconds))
        left = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        for message in messages:
            if message["MessageId"] not in left:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return left

    def item(self, run_id: str = RUN_ID, export_id: str = EXPORT_ID) -> ExportItem:
        item = self.deps.exports.get(run_id, export_id)
        assert item is not None
        return item

    def begun(self, run_id: str) -> bool:
        """Whether the export of the run has begun its upload."""
        item = self.deps.exports.get(run_id, EXPORT_ID)
        return item is not None and item.upload_id is not None

    def archived(self, run_id: str) -> bool:
        """Whether the export of the run is complete."""
        item = self.deps.exports.get(run_id, EXPORT_ID)
        return item is not None and item.status == "COMPLETED"

    def announced(self) -> list[dict[str, Any]]:
        """The events published since the last call: their data with id and type."""
        events = drained(self.sqs, self.ear, wait_seconds=1)
        return [event["data"] | {"id": event["id"], "type": event["type"]} for event in events]

    def archive(
        self, run_id: str = RUN_ID, export_id: str = EXPORT_ID
    ) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
        """The files of an export by name, without its manifest, and the lines of the manifest."""
        content = self.get(export_object_key(run_id, export_id, "zip"))
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            files = {name: opened.read(name) for name in opened.namelist()}
        return files, [json.loads(line) for line in files.pop("manifest.jsonl").splitlines()]


def create_jobs_table(dynamodb: Any, table: str) -> None:
    """A table with the keys of the jobs table."""
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    )
