"""The running system, as the end-to-end tests use it."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prismline_cli.connection import Connection
from prismline_cli.submission import submit
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.manifest import run_id_of
from prismline_emulator.permissions import LOG_VARIABLE, read_decisions
from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.testing import observe_bus
from prismline_runtime import clients
from tests.run_view import RunView, load_run

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: Visibility timeout of messages in seconds. After it, another process takes over the work of a killed one.
VISIBILITY_SECONDS = 5
#: How long a receive waits for messages, seconds. Thirty consumers that ask every second take a tenth of a core; a
#: consumer that is stopped first lets its receive end.
POLL_SECONDS = 3
#: Seconds between two sweeps, and the longest wait before the harness restarts a killed process.
SWEEP_SECONDS, RESTART_SECONDS = 5, 1
#: Longest wait for anything, in seconds.
PATIENCE = 120.0
#: The shortest and the longest pause between two polls, in seconds. Polls cost processor time that the system itself
#: needs, so the pauses grow with the wait.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
#: The services of a run of chunks, with dead letters and sweeps. A system with only these starts half the processes.
CHUNK_SERVICES = ("api", "dlq-consumer", "splitter", "status", "worker")
#: The services of a run of URLs; Valkey is a stand-in.
URL_SERVICES = (*CHUNK_SERVICES, "standins")
#: The endpoint of an emulator that is already running. None: each system starts its own.
SHARED_ENDPOINT = os.environ.get("AWS_ENDPOINT_URL") or None

T = TypeVar("T")


def settings_for(faults_file: Path) -> dict[str, str]:
    """The settings of a test system: short intervals and timeouts, and faults can be injected."""
    return {
        "PRISMLINE_VISIBILITY_SECONDS": str(VISIBILITY_SECONDS),
        "PRISMLINE_WAIT_SECONDS": str(POLL_SECONDS),
        "PRISMLINE_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "PRISMLINE_RESTART_SECONDS": str(RESTART_SECONDS),
        "PRISMLINE_FAULTS_FILE": str(faults_file),
        # The site of the tests is on this machine.
        "URLS_ALLOW_PRIVATE": "true",
        "WEBHOOK_ALLOW_PRIVATE": "true",
    }


def wait_for(condition: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """Poll `condition` and return its first true result. Fails after `patience` seconds; `what` is for the message."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience:
        if result := condition():
            return result
        time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, waited / 10)))
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}")


class Observer:
    """A subscriber of the bus that keeps every event that it received."""

    def __init__(self, sqs: SQSClient, url: str) -> None:
        self._sqs = sqs
        self.url = url
        self._seen: list[dict[str, Any]] = []

    @classmethod
    def subscribe(cls, environment: str) -> Observer:
        """Make a queue, and a rule that sends it every event of Prismline in `environment`."""
        sqs = clients.sqs()
        return cls(sqs, observe_bus(sqs, clients.events(), f"prismline-{environment}"))

    def events(self) -> list[dict[str, Any]]:
        """All events so far in the order of arrival, with repeated ones."""
        while messages := self._sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._seen.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return self._seen


@dataclass
class System:
    """A running system, and a connection to it."""

    connection: Connection
    faults_file: Path
    observer: Observer
    sqs: Any

    @classmethod
    def connected(cls, environment: str, faults_file: Path) -> System:
        """The system of `environment` at the endpoint in the environment variables."""
        return cls(Connection(environment), faults_file, Observer.subscribe(environment), clients.sqs())

    @classmethod
    @contextmanager
    def running(
        cls,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        services: Sequence[str] | None = None,
        endpoint: str | None = None,
        parameters: dict[str, str] | None = None,
        root: Path = REPOSITORY,
        functions: bool = False,
        pools: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Iterator[System]:
        """Start the system in `folder` and stop it afterwards. Environment variables are set through `patch`.

        services: the services to run, if the test does not need all; all stacks are deployed.
        endpoint: the emulator to use. By default this is the emulator that is already running, with a new environment
        name. If there is none, the system starts its own, even if the variables of another system are set.
        parameters: parameters of the templates. root: the checkout whose services run. functions: run the services as
        Lambda functions, always with a new emulator. pools: the pools, with the interpreters of their functions.
        """
        home, faults_file = folder / "home", folder / "faults.json"
        patch.setenv("PRISMLINE_HOME", str(home))
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of another system
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        if endpoint := endpoint or (None if functions else SHARED_ENDPOINT):
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
        state = harness.up(
            home,
            environment=f"t{secrets.token_hex(4)}" if endpoint else "local",
            workers=2,
            services=services,
            parameters=parameters,
            root=root,
            functions=functions,
            pools=pools,
            settings=settings_for(faults_file) | settings,
        )
        try:
            for name, value in state.env.items():
                patch.setenv(name, value)
            yield cls.connected(state.environment, faults_file)
        finally:
            harness.down(home)

    @classmethod
    @contextmanager
    def as_functions(cls, folder: Path, patch: pytest.MonkeyPatch, **given: Any) -> Iterator[System]:
        """A system whose services are functions with the credentials of their roles, on an emulator that enforces IAM.

        Afterwards it fails if a function was denied an action. `given` is for `running`.
        """
        log = folder / "iam.jsonl"
        patch.setenv(LOG_VARIABLE, str(log))
        with cls.running(folder, patch, functions=True, **given) as system:
            yield system
        decisions = read_decisions(log)
        denied = "\n".join(str(decision) for decision in decisions if not decision.allowed)
        assert not denied, f"A function was denied an action:\n{denied}"
        assert any("-FunctionRole" in decision.principal for decision in decisions), "the emulator judged the functions"

    def set_faults(self, rules: list[dict[str, Any]]) -> None:
        """Replace the fault rules and reset their counts."""
        for marker in self.faults_file.parent.glob(f"{self.faults_file.name}.*"):
            marker.unlink()
        draft = self.faults_file.with_suffix(".draft")
        draft.write_text(json.dumps(rules))
        draft.replace(self.faults_file)

    def faults_that_struck(self) -> int:
        """Number of injected faults since the rules were set."""
        return sum(1 for _ in self.faults_file.parent.glob(f"{self.faults_file.name}.*"))

    def submit(self, cube: Path | str, survey: str = "test", **fields: Any) -> str:
        """Submit a cube; the id of its run."""
        return submit(self.connection, str(cube), {"survey": survey, **fields})

    def run_id_for(self, idempotency_key: str) -> str:
        """The run id of a submission with this key."""
        return run_id_of(self.connection.bucket, idempotency_key)

    def put_manifest(self, body: bytes, key: str | None = None) -> str:
        """Upload any bytes as a manifest. Return the key."""
        key = key or f"manifests/{uuid4()}.json"
        self.connection.s3.put_object(Bucket=self.connection.bucket, Key=key, Body=body)
        return key

    def view(self, run_id: str) -> RunView | None:
        """The present state of the run."""
        return load_run(self.connection, run_id)

    def wait(self, run_id: str, patience: float = PATIENCE) -> RunView:
        """Wait for the run to end and return it."""

        def ended() -> RunView | None:
            view = self.view(run_id)
            return view if view is not None and view.ended else None

        return wait_for(ended, f"run {run_id} to end; it is {self.view(run_id)}", patience)

    def cancel_in_mid_run(self, run_id: str) -> None:
        """Cancel a run after its first chunk has completed, and wait until its end is recorded."""
        wait_for(lambda: self.events(run_id, "chunk.completed"), "the first chunk to complete")
        self.cli("cancel", run_id)
        assert self.wait(run_id).status == "cancelled"
        wait_for(lambda: self.item(run_id).ended_status == "cancelled", "its end to be recorded")

    def item(self, run_id: str) -> RunItem:
        """The run's ledger item."""
        return self.connection.ledger.run(run_id)

    def chunks(self, run_id: str, status: ChunkStatus | None = None) -> list[ChunkItem]:
        """The run's chunk items."""
        return list(self.connection.ledger.chunks(run_id, status=status))

    def table(self, run_id: str) -> pa.Table:
        """The run's dataset, read from the bucket."""
        found = {chunk.output_key for chunk in self.chunks(run_id, ChunkStatus.COMPLETED)}
        keys = sorted(key for key in found if key is not None)
        return pa.concat_tables([pq.read_table(io.BytesIO(self.read(key))) for key in keys])

    def read(self, key: str) -> bytes:
        """An object of the bucket."""
        return self.connection.s3.get_object(Bucket=self.connection.bucket, Key=key)["Body"].read()

    def events(self, run_id: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The events of the run so far, repeated ones included; `kind` as in `run.drained`."""
        of_run = [event for event in self.observer.events() if event.get("runid") == run_id]
        return of_run if kind is None else [event for event in of_run if event["type"] == f"prismline.{kind}.v1"]

    def depth(self, queue: str) -> int:
        """Messages in a queue (its short name), visible or not."""
        url = self.sqs.get_queue_url(QueueName=f"prismline-{self.connection.environment}-{queue}")["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def wait_until_idle(self) -> None:
        """Wait until no work queue holds a message: all duplicates have arrived."""
        queues = ("split", "chunks", "refits", "status", "runs")
        wait_for(lambda: not any(self.depth(queue) for queue in queues), "all queues to be empty")

    def cli(self, *arguments: str, expect: int = 0, stream: str = "stdout") -> str:
        """Run the `prismline` command as a process. Return what it printed."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("prismline")), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == expect, f"prismline {arguments} ended with {done.returncode}: {done.stderr}"
        return str(getattr(done, stream))
