"""The service without a consumer: the test passes messages to its handler one by one, and can fail any call to AWS."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from prismline_contracts.commands import Queue, StatusUpdate, queue_name
from prismline_contracts.envelope import Envelope, Wrappable
from prismline_contracts.events import RunCheckRequested, RunDrained, RunSubmitted
from prismline_contracts.items import RunItem
from prismline_ledger import Ledger, Outcome
from prismline_ledger.testing import Context, lambda_event_of, split_run
from prismline_localstack.testing import create_runs_table, observe_bus
from prismline_runtime import Transport, clients, service_logger
from prismline_status.dependencies import Dependencies
from prismline_status.executions import Executions
from prismline_status.handler import build_handler
from prismline_status.workflow_state import RunState, WorkflowStateTable

#: The executions' ARN, without their names.
EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:prismline-test-run"
#: Seconds without another event, after which the list of events counts as complete.
SILENCE = 0.1


class Crash(BaseException):
    """Simulates the death of the process. Derived from BaseException, so that no error handler catches it."""


def refused(code: str, operation: str = "x") -> ClientError:
    """An error that AWS answers with."""
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


@dataclass
class StepFunctions:
    """A fake Step Functions: the tokens of waiting tasks, the answers to them, and the running executions."""

    waiting: set[str] = field(default_factory=set)
    answers: dict[str, Any] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    #: Called before every operation, and after it.
    hook: Callable[[str], None] = lambda _: None

    def _tell(self, token: str, what: Any) -> None:
        self.hook("before")
        if token not in self.waiting:
            raise refused("TaskTimedOut")
        self.waiting.remove(token)
        self.answers[token] = what
        self.hook("after")

    def send_task_success(self, *, taskToken: str, output: str) -> None:  # noqa: N803  boto3's name
        self._tell(taskToken, json.loads(output))

    def send_task_failure(self, *, taskToken: str, error: str, cause: str) -> None:  # noqa: N803
        self._tell(taskToken, error)

    def start_execution(self, *, name: str, **_: Any) -> None:
        self.hook("before")
        self.running.add(name)
        self.hook("after")

    def describe_execution(self, *, executionArn: str) -> dict[str, str]:  # noqa: N803
        self.hook("before")
        return {"status": "RUNNING" if executionArn.rpartition(":")[2] in self.running else "ABORTED"}

    def stop_execution(self, *, executionArn: str, **_: Any) -> None:  # noqa: N803
        self.hook("before")
        self.running.discard(executionArn.rpartition(":")[2])
        self.hook("after")


@dataclass
class StatusScene:
    """The service with real tables and a real bus, and the actions of a test."""

    environment: str
    table: WorkflowStateTable
    ledger: Ledger
    stepfunctions: StepFunctions
    handler: Any
    clients: list[Any]
    sqs: Any
    observer_url: str
    #: The run that all methods act on.
    run_id: str = "run"
    events: list[dict[str, Any]] = field(default_factory=list)

    # ---- actions of other services

    def submit(self, *, tolerated: float = 0.0, failures: int | None = None) -> None:
        """Submit a run: the service creates its item and starts its execution."""
        submitted = RunSubmitted(
            run_id=self.run_id,
            job_id="job",
            bucket="b",
            manifest_key="m",
            tolerated_failure_percent=tolerated,
            tolerated_failures=failures,
        )
        assert self.deliver(submitted)

    def open(self, chunks: int = 4) -> list[str]:
        """Act as the splitter. Return the chunks' ids."""
        return split_run(self.ledger, self.run_id, chunks)

    def running(self, *, tolerated: float = 0.0, failures: int | None = None) -> list[str]:
        """Submit and split a run, and set it to RUNNING. Return the ids of its four chunks."""
        self.submit(tolerated=tolerated, failures=failures)
        chunk_ids = self.open()
        assert self.deliver(StatusUpdate(job_id=self.run_id, status="RUNNING"))
        return chunk_ids

    def wait(self, token: str) -> bool:
        """Make a task of the state machine wait until the run has drained. Return whether it was acknowledged."""
        self.stepfunctions.waiting.add(token)
        return self.deliver(StatusUpdate(job_id=self.run_id, status="RUNNING", wait_for="drained"), token=token)

    def end_chunk(self, chunk_id: str, *, succeeds: bool = True) -> RunItem:
        """Act as the worker: end one chunk. Return the run after that."""
        chunk = self.ledger.chunk(self.run_id, chunk_id)
        if succeeds:
            return self.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1).run
        return self.ledger.fail_chunk(chunk, "spoiled").run

    def drain(self, chunk_ids: list[str], *, failed: int = 0) -> None:
        """End all of these chunks; the last `failed` of them fail."""
        for index, chunk_id in enumerate(chunk_ids):
            self.end_chunk(chunk_id, succeeds=index < len(chunk_ids) - failed)

    def reopen(self, chunk_id: str) -> None:
        """Act as a recovery of one chunk."""
        self.ledger.resume_run(self.item())
        assert self.ledger.reopen_chunk(self.ledger.chunk(self.run_id, chunk_id), "operation")

    # ---- messages

    def deliver(self, data: Wrappable | dict[str, Any], *, token: str | None = None) -> bool:
        """Pass one message to the handler, as a consumer would. Return whether it was acknowledged."""
        if isinstance(data, dict):
            body = json.dumps(data)
        else:
            body = Envelope.wrap(data, source="test", traceparent=None, tasktoken=token).to_json()
        try:
            return not self.handler(lambda_event_of(body, self.environment, Queue.RUNS), Context(30.0))[
                "batchItemFailures"
            ]
        except Crash:
            return False

    def check(self) -> bool:
        """Act as the sweeper, which requests a check of the run."""
        return self.deliver(RunCheckRequested(run_id=self.run_id))

    def execution_ended(self, status: str = "FAILED", **detail: str) -> dict[str, Any]:
        """End the execution of the run before the run has ended. Return the event of Step Functions about it."""
        self.stepfunctions.running.discard(self.run_id)
        return {
            "source": "aws.states",
            "detail-type": "Step Functions Execution Status Change",
            "detail": {"name": self.run_id, "executionArn": f"{EXECUTION}:{self.run_id}", "status": status, **detail},
        }

    # ---- faults

    def on_calls(self, hook: Callable[[str], None] | None) -> None:
        """Call `hook`, which may raise, before and after every call of the service to AWS. None removes the hook."""
        self.stepfunctions.hook = hook or (lambda _: None)
        for client in self.clients:
            for moment in ("before", "after"):
                client.meta.events.unregister(f"{moment}-call", unique_id=f"test-{moment}")
                if hook is not None:
                    call = partial(_called, hook, moment)
                    client.meta.events.register(f"{moment}-call", call, unique_id=f"test-{moment}")

    # ---- observations

    def run(self) -> RunState:
        """The run's item in the workflow-state table, which the outside sees."""
        run = self.table.get(self.run_id)
        assert run is not None
        return run

    def item(self) -> RunItem:
        """The run's item in the ledger."""
        return self.ledger.run(self.run_id)

    def announced(self) -> list[str]:
        """The published statuses of the run (`started`, `failed` ...), without repeats of the same event id."""
        events = {event["id"]: event["type"] for event in self._heard() if event["type"] != RunDrained.TYPE}
        return sorted(kind.removeprefix("prismline.run.").removesuffix(".v1") for kind in events.values())

    def drains_announced(self) -> list[int]:
        """The numbers of the run's drains that were published."""
        drained = [event for event in self._heard() if event["type"] == RunDrained.TYPE]
        return sorted({event["data"]["drains"] for event in drained})

    def unknown_to_it(self) -> list[str]:
        """The reasons for which messages wait in the dead-letter queue for a newer release."""
        url = self.sqs.get_queue_url(QueueName=queue_name(self.environment, "runs-dlq"))["QueueUrl"]
        found = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        return [message["MessageAttributes"]["unknown"]["StringValue"] for message in found.get("Messages", [])]

    def _heard(self) -> list[dict[str, Any]]:
        """Every event of the run so far."""
        deadline = time.monotonic() + SILENCE
        while time.monotonic() < deadline:
            answer = self.sqs.receive_message(QueueUrl=self.observer_url, MaxNumberOfMessages=10)
            for message in answer.get("Messages", []):
                self.events.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.observer_url, ReceiptHandle=message["ReceiptHandle"])
                deadline = time.monotonic() + SILENCE
        return [event for event in self.events if event["runid"] == self.run_id]


def _called(hook: Callable[[str], None], moment: str, **_: Any) -> None:
    hook(moment)


def make_scene(environment: str) -> StatusScene:
    """A scene on the emulator that the environment points at."""
    dynamodb, events, sqs = clients.dynamodb(), clients.events(), clients.sqs()
    runs, states, bus = (f"prismline-{environment}{suffix}" for suffix in ("-runs", "-workflow-state", ""))
    create_runs_table(dynamodb, runs)
    dynamodb.create_table(
        TableName=states,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "run_id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "run_id", "KeyType": "HASH"}],
    )
    events.create_event_bus(Name=bus)
    for queue in (Queue.RUNS, "runs-dlq"):
        sqs.create_queue(QueueName=queue_name(environment, queue))
    stepfunctions: Any = StepFunctions()
    # The service and the test have different clients, so that only the service's calls fail.
    own, announcements = clients.dynamodb(), clients.events()
    deps = Dependencies(
        table=WorkflowStateTable(own, states),
        transport=Transport(
            environment=environment, service="status", sqs=sqs, events=announcements, stepfunctions=stepfunctions
        ),
        logger=service_logger("test"),
        ledger=Ledger(own, runs),
        executions=Executions(stepfunctions, EXECUTION.replace(":execution:", ":stateMachine:")),
    )
    return StatusScene(
        environment=environment,
        table=WorkflowStateTable(dynamodb, states),
        ledger=Ledger(dynamodb, runs),
        stepfunctions=stepfunctions,
        handler=build_handler(deps),
        clients=[own, announcements],
        sqs=sqs,
        observer_url=observe_bus(sqs, events, bus),
    )
