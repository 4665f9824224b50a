"""The status service on the emulator: its stacks are deployed, and real consumers in threads call its handler."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

# The tests import status_scene by name.
sys.path.insert(0, str(Path(__file__).parent))

from status_scene import StatusScene, make_scene

from prismline_contracts.commands import Queue, queue_name
from prismline_contracts.envelope import Envelope, Wrappable, traceparent_of
from prismline_contracts.events import RunSubmitted
from prismline_contracts.items import RunItem
from prismline_ledger import Ledger, Outcome
from prismline_ledger.testing import split_run
from prismline_localstack.stacks import create_stacks
from prismline_localstack.state import make_client
from prismline_localstack.testing import observe_bus, stacks_around
from prismline_runtime import service_logger
from prismline_runtime.consumer import Consumer, Polled
from prismline_runtime.settings import ConsumerSettings
from prismline_status.dependencies import Dependencies
from prismline_status.handler import build_handler
from prismline_status.workflow_state import RunState

#: Longest wait for a condition, in seconds.
PATIENCE = 40.0

T = TypeVar("T")


@dataclass
class RunningStatus:
    """The running service. The test acts as the splitter and the workers."""

    deps: Dependencies
    sqs: Any
    events: Any
    stepfunctions: Any
    state_machine_arn: str
    observer_url: str
    observed: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def wait_for(condition: Callable[[], T | None], what: str) -> T:
        """The first result of `condition` that is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.05)
        raise AssertionError(f"waited {PATIENCE:.0f} s in vain for {what}")

    @property
    def environment(self) -> str:
        return self.deps.transport.environment

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def submit(self, *, tolerated: float = 0.0, failures: int | None = None) -> str:
        """Announce a run. Return its id."""
        run_id = str(uuid4())
        self.publish(self.submitted(run_id, tolerated, failures))
        return run_id

    @staticmethod
    def submitted(run_id: str, tolerated: float = 0.0, failures: int | None = None) -> RunSubmitted:
        return RunSubmitted(
            run_id=run_id,
            job_id="job",
            bucket="b",
            manifest_key="m",
            tolerated_failure_percent=tolerated,
            tolerated_failures=failures,
        )

    def publish(self, data: Wrappable) -> None:
        """Publish an event on the bus, as another service would."""
        envelope = Envelope.wrap(data, source="test", traceparent=traceparent_of(data.run_id))
        self.deps.transport.publish(envelope)

    def split_command(self, run_id: str) -> Envelope:
        """Wait for the state machine's `run.split` command of the run."""
        url = self.sqs.get_queue_url(QueueName=queue_name(self.environment, Queue.SPLIT))["QueueUrl"]

        def received() -> Envelope | None:
            for message in self.sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages", []):
                envelope = Envelope.model_validate_json(message["Body"])
                if envelope.runid == run_id:
                    self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                    return envelope
            return None

        return self.wait_for(received, "the command to split")

    def split(self, run_id: str, chunks: int = 4) -> list[str]:
        """Act as the splitter: write the ledger and answer the state machine."""
        envelope = self.split_command(run_id)
        chunk_ids = self.open(run_id, chunks)
        assert envelope.tasktoken is not None
        self.deps.transport.answer(envelope.tasktoken, {"jobs_total": chunks})
        return chunk_ids

    def open(self, run_id: str, chunks: int = 4) -> list[str]:
        """Act as the splitter, but only write the ledger. Return the chunks' ids."""
        return split_run(self.ledger, run_id, chunks)

    def run(self, run_id: str) -> RunState | None:
        return self.deps.table.get(run_id)

    def wait_for_status(self, run_id: str, status: str) -> RunState:
        def there() -> RunState | None:
            run = self.run(run_id)
            return run if run is not None and run.status == status else None

        return self.wait_for(there, f"the run to be {status}; it is {self.run(run_id)}")

    def execution_status(self, run_id: str) -> str:
        arn = self.deps.executions.arn(run_id)
        return str(self.stepfunctions.describe_execution(executionArn=arn)["status"])

    def endings(self, run_id: str) -> list[str]:
        """Types of the events that ended the run, one for each different event id."""
        while messages := self.sqs.receive_message(QueueUrl=self.observer_url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self.observed.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.observer_url, ReceiptHandle=message["ReceiptHandle"])
        ends = {f"prismline.run.{end}.v1" for end in ("completed", "failed", "cancelled")}
        return [
            kind
            for kind, _ in {(e["type"], e["id"]) for e in self.observed if e["runid"] == run_id and e["type"] in ends}
        ]

    def end_chunks(self, run_id: str, chunk_ids: list[str], *, failed: int = 0) -> RunItem:
        """Act as the worker: end these chunks; the last `failed` of them fail. Return the run after that."""
        run = self.ledger.run(run_id)
        for index, chunk_id in enumerate(chunk_ids):
            self.ledger.start_chunk(run_id, chunk_id)
            run = self.end_chunk(run_id, chunk_id, succeeds=index < len(chunk_ids) - failed)
        return run

    def end_chunk(self, run_id: str, chunk_id: str, *, succeeds: bool = True) -> RunItem:
        """Act as the worker: end one chunk."""
        chunk = self.ledger.chunk(run_id, chunk_id)
        if succeeds:
            return self.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1).run
        return self.ledger.fail_chunk(chunk, "spoiled").run


@pytest.fixture(scope="module")
def running(
    emulator_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, str], RunningStatus]]:
    """The running service and its environment variables. Deployed once per module; each test has its own runs."""
    variables = emulator_env | {"ENVIRONMENT": f"t{secrets.token_hex(4)}"}
    cloudformation, s3 = make_client("cloudformation", variables), make_client("s3", variables)
    root = stacks_around(Path(__file__).parents[1], tmp_path_factory.mktemp("stacks"))
    outputs = create_stacks(cloudformation, s3, root, variables["ENVIRONMENT"])
    variables |= outputs
    with pytest.MonkeyPatch.context() as patch:
        set_variables(patch, variables)
        deps = Dependencies.from_environment()
    handler, logger, turn = build_handler(deps), service_logger("test"), threading.Lock()
    consumers = [
        Consumer(
            sqs=make_client("sqs", variables),
            polled=Polled(queue_name(variables["ENVIRONMENT"], queue), batch_size=10),
            handler=handler,
            settings=ConsumerSettings(wait_seconds=1, visibility_seconds=5),
            logger=logger,
            turn=turn,
        )
        for queue in (Queue.STATUS, Queue.RUNS)
    ]
    threads = [threading.Thread(target=consumer.run) for consumer in consumers]
    for thread in threads:
        thread.start()
    sqs, events = make_client("sqs", variables), make_client("events", variables)
    yield (
        variables,
        RunningStatus(
            deps,
            sqs,
            events,
            make_client("stepfunctions", variables),
            outputs["STATE_MACHINE_ARN"],
            observe_bus(sqs, events, outputs["EVENT_BUS"]),
        ),
    )
    for consumer in consumers:
        consumer.stop()
    for thread in threads:
        thread.join()


def set_variables(patch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set environment variables, and remove the machine's own variables for AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in variables.items():
        patch.setenv(name, value)


@pytest.fixture
def stage(running: tuple[dict[str, str], RunningStatus], monkeypatch: pytest.MonkeyPatch) -> RunningStatus:
    """The running service, for one test."""
    variables, status = running
    set_variables(monkeypatch, variables)
    return status


@pytest.fixture
def scene(aws_env: dict[str, str]) -> StatusScene:
    """The service without consumers, for one test."""
    return make_scene(aws_env["ENVIRONMENT"])
