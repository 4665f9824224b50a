"""A worker for tasks with real queues, ledger, bucket, bus and Valkey, and the site that it fetches from."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import boto3

from prismline_contracts.commands import TasksProcess, queue_name
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, task_id
from prismline_coordination import CoordinationServer, Leases
from prismline_ledger import Ledger
from prismline_ledger.testing import Context, ingest_run, lambda_event_of
from prismline_localstack.standins.site import Site
from prismline_localstack.testing import ValkeyServer, create_environment, drained, observe_bus
from prismline_runtime.consumer import lambda_record
from prismline_worker.dependencies import Dependencies
from prismline_worker.handler import build_handler

RUN_ID = "run-1"


@dataclass
class TasksWorld:
    """A run of tasks, and one worker."""

    environment: str
    bucket: str
    url: str
    site: Site
    valkey: ValkeyServer
    deps: Dependencies
    handler: Callable[[dict[str, Any], Any], Any]
    observer: str

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    @property
    def run(self) -> RunItem:
        return self.ledger.run(RUN_ID)

    @property
    def leases(self) -> Leases:
        return Leases(CoordinationServer.at(self.valkey.url))

    def worker(self, **settings: Any) -> TasksWorld:
        """Another worker of the same run."""
        deps = dataclasses.replace(self.deps, settings=self.deps.settings.model_copy(update=settings))
        return dataclasses.replace(self, deps=deps, handler=build_handler(deps))

    # ---- the run

    def open_run(self, paths: Sequence[str], *, shard_count: int = 1, latch: bool = True) -> list[str]:
        """Open a run with a task for each path of the site, or each URL. Return the ids of its tasks."""
        sources = [self.url + path if path.startswith("/") else path for path in paths]
        ingest_run(self.ledger, RUN_ID, sources, latch=latch, shard_count=shard_count, survey="list")
        return [task_id(RUN_ID, n) for n in range(len(paths))]

    def tasks(self, ids: Sequence[str]) -> list[TaskItem]:
        found = self.ledger.read_tasks(self.run, ids)
        return [found[name] for name in ids]

    def statuses(self, ids: Sequence[str]) -> list[str]:
        return [task.status for task in self.tasks(ids)]

    def body(self, task: TaskItem) -> bytes:
        assert task.result is not None
        body: bytes = boto3.client("s3").get_object(Bucket=self.bucket, Key=task.result.key)["Body"].read()
        assert hashlib.sha256(body).hexdigest() == task.result.sha256
        assert len(body) == task.result.length
        return body

    # ---- messages

    def command(self, ids: Sequence[str], **changes: Any) -> TasksProcess:
        given: dict[str, Any] = {
            "run_id": RUN_ID,
            "job_id": "j",
            "survey": "list",
            "workload": "urls",
            "bucket": self.bucket,
            "task_ids": list(ids),
            "params": {"timeout_s": 5},
        }
        return TasksProcess(**(given | changes))

    def process(self, ids: Sequence[str], *, seconds: float = 900.0, **changes: Any) -> bool:
        """Deliver a message. Return whether it was acknowledged."""
        body = Envelope.wrap(self.command(ids, **changes), source="test", traceparent=None).to_json()
        answer = self.handler(lambda_event_of(body, self.environment, "tasks"), Context(seconds))
        return not answer["batchItemFailures"]

    def take(self, *, wait: int = 0, queue: str = "tasks") -> list[TasksProcess]:
        """Receive and delete the messages of a queue. Wait up to `wait` seconds for the first."""
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName=queue_name(self.environment, queue))["QueueUrl"]
        return [TasksProcess.model_validate(body["data"]) for body in drained(sqs, url, wait_seconds=wait)]

    def depth(self) -> int:
        """Number of messages in the queue of tasks, including delayed ones."""
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName=queue_name(self.environment, "tasks"))["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(map(int, attributes.values()))

    def work_off(self, seconds: float = 60.0) -> None:
        """Process messages of the queue, also those that are sent meanwhile, until the run has drained."""
        sqs, until = boto3.client("sqs"), time.monotonic() + seconds
        url = sqs.get_queue_url(QueueName=queue_name(self.environment, "tasks"))["QueueUrl"]
        while self.run.drained_at is None:
            assert time.monotonic() < until, "the run has not drained in time"
            answer = sqs.receive_message(
                QueueUrl=url, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
            )
            for message in answer.get("Messages", []):
                arn = f"arn:aws:sqs:us-east-1:000000000000:{queue_name(self.environment, 'tasks')}"
                answered = self.handler({"Records": [lambda_record(message, arn)]}, Context())
                if not answered["batchItemFailures"]:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def announced(self) -> list[tuple[str, str]]:
        """Short types and ids of the events that were published since the last call."""
        events = drained(boto3.client("sqs"), self.observer, wait_seconds=1)
        return [(event["type"].removeprefix("prismline.").removesuffix(".v1"), event["id"]) for event in events]


def tasks_world(environment: str, monkeypatch: Any, site: tuple[str, Site], valkey: ValkeyServer) -> TasksWorld:
    """A world with no run in it yet. Its worker may reach the loopback address."""
    bucket = create_environment(environment, monkeypatch, ("tasks", "tasks-dlq"))
    monkeypatch.setenv("URLS_ALLOW_PRIVATE", "true")
    monkeypatch.setenv("PRISMLINE_VALKEY_URL", valkey.url)
    deps = Dependencies.from_environment()
    observer = observe_bus(boto3.client("sqs"), boto3.client("events"), f"prismline-{environment}")
    return TasksWorld(environment, bucket, *site, valkey, deps, build_handler(deps), observer)
