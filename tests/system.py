"""The running system, as the end-to-end tests use it."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prismline_cli import results
from prismline_cli.connection import Connection
from prismline_cli.runs import RunView, load_run
from prismline_cli.submission import submit
from prismline_contracts import ChunkItem, ChunkStatus, RunItem, run_id_of
from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.testing import observe_bus
from prismline_runtime import clients

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: Visibility time of messages, seconds: how soon the work of a killed process is picked up again.
VISIBILITY_SECONDS = 5
#: How long a receive waits for messages, seconds. Thirty consumers that ask every second take a tenth of a core; a
#: consumer that is stopped first lets its receive end.
POLL_SECONDS = 3
#: How often the harness asks for a sweep, and the longest wait before it restarts a process that was killed, seconds.
SWEEP_SECONDS, RESTART_SECONDS = 5, 1
#: Longest time, in seconds, that anything here is waited for.
PATIENCE = 120.0
#: The shortest and the longest pause between two looks at what is waited for, seconds. Looks cost processor time that
#: the system itself needs, so they come less often the longer it takes.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
#: The services that take part in a run of chunks, with dead letters and sweeps. A system whose test needs no others
#: starts half the processes.
CHUNK_SERVICES = ("dlq-consumer", "splitter", "status", "worker")
#: Those that take part in a run of URLs: Valkey is a stand-in.
URL_SERVICES = (*CHUNK_SERVICES, "standins")
#: The emulator that somebody else runs for these tests; None: each system has one of its own.
SHARED_ENDPOINT = os.environ.get("AWS_ENDPOINT_URL") or None

T = TypeVar("T")


def settings_for(faults_file: Path) -> dict[str, str]:
    """The settings of a system that tests run: everything happens soon, and faults can be injected."""
    return {
        "PRISMLINE_VISIBILITY_SECONDS": str(VISIBILITY_SECONDS),
        "PRISMLINE_WAIT_SECONDS": str(POLL_SECONDS),
        "PRISMLINE_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "PRISMLINE_RESTART_SECONDS": str(RESTART_SECONDS),
        "PRISMLINE_FAULTS_FILE": str(faults_file),
        # The site of the tests is on this machine.
        "URLS_ALLOW_PRIVATE": "true",
    }


def wait_for(condition: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """The first result of `condition` that is true."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience:
        if result := condition():
            return result
        time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, waited / 10)))
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}")


class Observer:
    """A subscriber of the bus that remembers every event it was ever sent."""

    def __init__(self, sqs: SQSClient, url: str) -> None:
        self._sqs = sqs
        self.url = url
        self._seen: list[dict[str, Any]] = []

    @classmethod
    def subscribe(cls, environment: str) -> Observer:
        """A queue of its own, and a rule that sends it everything Prismline says in `environment`."""
        sqs = clients.sqs()
        return cls(sqs, observe_bus(sqs, clients.events(), f"prismline-{environment}"))

    def events(self) -> list[dict[str, Any]]:
        """Everything that was said so far, in the order of arrival, repeats included."""
        while messages := self._sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._seen.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return self._seen


@dataclass
class System:
    """A system that is up, and a connection to it."""

    connection: Connection
    faults_file: Path
    observer: Observer
    sqs: Any

    @classmethod
    def connected(cls, environment: str, faults_file: Path) -> System:
        """The system of `environment` at the endpoint that the environment variables say."""
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
        **settings: str,
    ) -> Iterator[System]:
        """Start the system in `folder`; environment variables are set through `patch`. It is down afterwards.

        services: those that run, if the test does not need all; all stacks are deployed.
        endpoint: the emulator to use; default: the shared one, in an environment that no other system has, or else
        one of its own, whatever another system has set. parameters: of the templates. root: the checkout whose
        services run. functions: run them as Lambda functions, always with an emulator of its own.
        """
        home, faults_file = folder / "home", folder / "faults.json"
        patch.setenv("PRISMLINE_HOME", str(home))
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
            settings=settings_for(faults_file) | settings,
        )
        try:
            for name, value in state.env.items():
                patch.setenv(name, value)
            yield cls.connected(state.environment, faults_file)
        finally:
            harness.down(home)

    def set_faults(self, rules: list[dict[str, Any]]) -> None:
        """Replace the fault rules. Counts of earlier rules are forgotten."""
        for marker in self.faults_file.parent.glob(f"{self.faults_file.name}.*"):
            marker.unlink()
        draft = self.faults_file.with_suffix(".draft")
        draft.write_text(json.dumps(rules))
        draft.replace(self.faults_file)

    def faults_that_struck(self) -> int:
        """How many injected faults have happened since the rules were set."""
        return sum(1 for _ in self.faults_file.parent.glob(f"{self.faults_file.name}.*"))

    def submit(self, cube: Path | str, survey: str = "test", **fields: Any) -> str:
        """Submit a cube; the id of its run."""
        return submit(self.connection, str(cube), {"survey": survey, **fields})

    def run_id_for(self, idempotency_key: str) -> str:
        """The id that a submission with this key will get."""
        return run_id_of(self.connection.bucket, idempotency_key)

    def put_manifest(self, body: bytes, key: str | None = None) -> str:
        """Put any bytes as a manifest; its key."""
        key = key or f"manifests/{uuid4()}.json"
        self.connection.s3.put_object(Bucket=self.connection.bucket, Key=key, Body=body)
        return key

    def view(self, run_id: str) -> RunView | None:
        """The run now."""
        return load_run(self.connection, run_id)

    def wait(self, run_id: str, patience: float = PATIENCE) -> RunView:
        """The run once it has ended."""

        def ended() -> RunView | None:
            view = self.view(run_id)
            return view if view is not None and view.ended else None

        return wait_for(ended, f"run {run_id} to end; it is {self.view(run_id)}", patience)

    def item(self, run_id: str) -> RunItem:
        """The run's ledger item."""
        return self.connection.ledger.run(run_id)

    def chunks(self, run_id: str, status: ChunkStatus | None = None) -> list[ChunkItem]:
        """The run's chunk items."""
        return list(self.connection.ledger.chunks(run_id, status=status))

    def table(self, run_id: str) -> pa.Table:
        """The run's dataset, read back."""
        run = self.item(run_id)
        keys = results.output_keys(self.connection, run)
        return pa.concat_tables([pq.read_table(io.BytesIO(self.read(key))) for key in keys])

    def read(self, key: str) -> bytes:
        """An object of the bucket."""
        return self.connection.s3.get_object(Bucket=self.connection.bucket, Key=key)["Body"].read()

    def events(self, run_id: str, kind: str | None = None) -> list[dict[str, Any]]:
        """What was said of the run so far; `kind` as in `run.drained`. Repeats are in the list as they came."""
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
        """Run the `prismline` command as a process; what it printed."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("prismline")), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == expect, f"prismline {arguments} ended with {done.returncode}: {done.stderr}"
        return str(getattr(done, stream))
