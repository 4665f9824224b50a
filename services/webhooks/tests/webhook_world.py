"""The webhooks service over a real queue, real tables and a target that listens on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from prismline_contracts.envelope import traceparent_of
from prismline_contracts.events import RunCancelled, RunCompleted, RunFailed
from prismline_contracts.jobs import JobItem, JobRunItem, Webhook, job_key, job_run_key, jobs_table_name
from prismline_ledger.testing import Clock, Context, lambda_event, split_run
from prismline_localstack.testing import create_runs_table
from prismline_runtime import Table
from prismline_webhooks.deliveries import Deliveries
from prismline_webhooks.dependencies import Dependencies
from prismline_webhooks.handler import build_handler

RUN_ID, JOB_ID, TENANT = "run-1", "job-1", "acme"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CREATED_AT = "2026-03-01T12:00:00.000Z"


@dataclass
class Target:
    """Accepts posts, and gives the answers that a test has set."""

    url: str = ""
    #: Its next answers, as status and headers. After them it answers 200.
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    posts: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)
    #: If present, it does not answer until this event is set.
    hold: threading.Event | None = None

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Target]:
        target = cls()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                target.posts.append((body, {name.lower(): value for name, value in self.headers.items()}))
                if target.hold is not None:
                    target.hold.wait(30)
                status, headers = target.answers.pop(0) if target.answers else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            target.url = f"http://127.0.0.1:{server.server_port}/hook"
            yield target
            server.shutdown()


@dataclass
class WebhookWorld:
    environment: str
    deps: Dependencies
    target: Target
    sqs: Any
    jobs: Table
    clock: Clock

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch, target: Target) -> WebhookWorld:
        sqs, dynamodb = boto3.client("sqs"), boto3.client("dynamodb")
        runs, jobs = f"runs-{environment}", jobs_table_name(environment)
        create_runs_table(dynamodb, runs)
        create_runs_table(dynamodb, jobs)  # the jobs table has the same keys
        for queue in ("webhooks", "webhooks-dlq"):
            sqs.create_queue(QueueName=f"prismline-{environment}-{queue}")
        patch.setenv("RUNS_TABLE", runs)
        patch.setenv("JOBS_TABLE", jobs)
        patch.setenv("WEBHOOK_ALLOW_PRIVATE", "true")
        clock = Clock()
        deps = Dependencies.from_environment()
        deps = replace(deps, deliveries=Deliveries(dynamodb, jobs, clock=clock), clock=clock)
        return cls(environment, deps, target, sqs, Table(dynamodb, jobs), clock)

    def submit(self, *, url: str | None = None, secret: str = SECRET, webhook: bool = True, **fields: Any) -> None:
        """Write a job and its run of two chunks."""
        split_run(self.deps.ledger, RUN_ID, 2, job_id=JOB_ID)
        hook = Webhook(url=url or self.target.url, secret=secret) if webhook else None
        both: dict[str, Any] = {"tenant": TENANT, "job_id": JOB_ID, "survey": "pages", "workload": "urls"}
        both["created_at"] = CREATED_AT
        index = {"GSI1_PK": f"TENANT#{TENANT}", "GSI1_SK": f"{CREATED_AT}#{JOB_ID}"}
        job = JobItem(**job_key(TENANT, JOB_ID), **index, **both, bucket="bucket", webhook=hook, **fields)
        index = {"GSI1_PK": f"TENANT#{TENANT}#RUNS", "GSI1_SK": f"{CREATED_AT}#{RUN_ID}"}
        run = JobRunItem(**job_run_key(RUN_ID), **index, **both)
        for item in (job, run):
            dumped = item.model_dump(exclude_none=True, exclude={"tolerated_failure_percent"})
            assert self.jobs.create(dumped, key="PK")

    def end(self, status: str = "completed") -> None:
        """Deliver the event that the run has ended, as the bus does."""
        data: RunCompleted | RunFailed | RunCancelled
        if status == "failed":
            data = RunFailed(run_id=RUN_ID, completed_at=self.clock.text(), error="All chunks failed.")
        else:
            data = {"completed": RunCompleted, "cancelled": RunCancelled}[status](  # type: ignore[assignment]
                run_id=RUN_ID, completed_at=self.clock.text()
            )
        message = self.deps.transport.wrap(data, traceparent=traceparent_of(RUN_ID))
        self.deps.transport.send("webhooks", [message])

    def handle(self) -> list[str] | None:
        """Let the process handle a message. Returns the ids that it leaves, or None if no message is visible."""
        messages = self._receive("webhooks")
        if not messages:
            return None
        answer = build_handler(self.deps)(lambda_event(messages, self.environment, "webhooks"), Context())
        left = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        for message in messages:
            if message["MessageId"] not in left:
                self.sqs.delete_message(QueueUrl=self._url("webhooks"), ReceiptHandle=message["ReceiptHandle"])
        return left

    def dead_letters(self) -> list[str]:
        """The errors of the dead letters."""
        return [message["MessageAttributes"]["error"]["StringValue"] for message in self._receive("webhooks-dlq")]

    def send_back(self) -> None:
        """A person sends the dead letter back."""
        self.end()

    def item(self) -> dict[str, Any]:
        """The webhook's item."""
        (found,) = [item for item in self._items() if item["SK"].startswith("WEBHOOK#")]
        return found

    def _items(self) -> Iterator[dict[str, Any]]:

        return self.jobs.query(Key("PK").eq(f"RUN#{RUN_ID}"))

    def _url(self, queue: str) -> str:
        url: str = self.sqs.get_queue_url(QueueName=f"prismline-{self.environment}-{queue}")["QueueUrl"]
        return url

    def _receive(self, queue: str) -> list[Any]:
        receive = partial(self.sqs.receive_message, QueueUrl=self._url(queue), MaxNumberOfMessages=10)
        found: list[Any] = receive(MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]).get(
            "Messages", []
        )
        return found
