"""A splitter with a real bucket, table, bus and queues of the emulator. The waiting state machine is a fake."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import numpy as np
import pytest
from astropy.io import fits
from botocore.exceptions import ClientError

from prismline_cli.submission import submit
from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import JobIngest, RunSplit, TasksProcess
from prismline_contracts.envelope import Envelope, traceparent_of
from prismline_contracts.items import CHUNK_SK_PREFIX
from prismline_contracts.jobs import jobs_table_name
from prismline_contracts.tasks import TaskItem, TaskResult
from prismline_cube import Layout, gather
from prismline_ledger import Ledger, Outcome, Started, TaskEnding
from prismline_ledger.testing import Context, lambda_event_of
from prismline_localstack.testing import create_runs_table, drained, observe_bus
from prismline_runtime import Bucket, Transport, UnavailableError
from prismline_splitter import deletion, ingestion, splitting
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.handler import build_handler
from prismline_splitter.workloads import spectra

QUEUES = ("split", "split-dlq", "chunks", "chunks-dlq", "tasks", "tasks-dlq")
TOKEN = "token"


class DeathError(BaseException):
    """The process dies here. Derived from BaseException, so that no error handler catches it."""


def die() -> None:
    """Simulate the death of the process."""
    raise DeathError


@dataclass
class StateMachine:
    """Takes the answers to the task that waits for the split, or fails if it is `out_of_order`."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    out_of_order: bool = False

    def send_task_success(self, taskToken: str, output: str) -> None:  # noqa: N803
        self._fail_if_out_of_order("SendTaskSuccess")
        assert taskToken == TOKEN
        self.answers.append(json.loads(output))

    def send_task_failure(self, taskToken: str, error: str, cause: str) -> None:  # noqa: N803
        self._fail_if_out_of_order("SendTaskFailure")
        assert taskToken == TOKEN
        self.refusals.append((error, cause))

    def _fail_if_out_of_order(self, operation: str) -> None:
        if self.out_of_order:
            raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, operation)


@dataclass
class SplitterWorld:
    deps: Dependencies
    bucket: str
    state_machine: StateMachine
    sqs: Any
    s3: Any
    urls: dict[str, str]
    folder: Path
    #: Functions by fault point. Each is called once, at the next visit of its point.
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)

    @classmethod
    def create(cls, environment: str, patch: pytest.MonkeyPatch, folder: Path) -> SplitterWorld:
        sqs, s3, events = boto3.client("sqs"), boto3.client("s3"), boto3.client("events")
        table, bucket, bus = f"runs-{environment}", f"bucket-{environment}", f"prismline-{environment}"
        s3.create_bucket(Bucket=bucket)
        create_runs_table(boto3.client("dynamodb"), table)
        events.create_event_bus(Name=bus)
        urls = {name: sqs.create_queue(QueueName=f"{bus}-{name}")["QueueUrl"] for name in QUEUES}
        urls["observer"] = observe_bus(sqs, events, bus)
        patch.setenv("RUNS_TABLE", table)
        patch.setenv("WORKDIR", str(folder))
        patch.setenv("SLICE_SECONDS", "600")  # on a busy machine a block may take longer than the default
        patch.setenv("BUCKET", bucket)
        create_runs_table(boto3.client("dynamodb"), jobs_table_name(environment))
        state_machine = StateMachine()
        transport = Transport(
            environment=environment,
            service="splitter",
            sqs=sqs,
            events=events,
            stepfunctions=state_machine,  # type: ignore[arg-type]
        )
        deps = replace(Dependencies.from_environment(), transport=transport)
        world = cls(deps, bucket, state_machine, sqs, s3, urls, folder)
        for module in (deletion, ingestion, splitting, spectra):
            patch.setattr(module, "fault_point", world._at_fault_point)
        return world

    def _at_fault_point(self, point: str, **_: str) -> None:
        self.hooks.pop(point, lambda: None)()

    def die_at(self, point: str) -> None:
        """Make the next delivery die at this fault point."""

        self.hooks[point] = die

    @contextmanager
    def bucket_out_of_order(self) -> Iterator[None]:
        """Within the block the splitter gets no answer from S3."""

        def no_bucket(name: str) -> Bucket:
            raise UnavailableError(f"Could not reach {name}.")

        deps = self.deps
        self.deps = replace(deps, open_bucket=no_bucket)
        yield
        self.deps = deps

    # ---- submissions

    def put_cube(self, key: str, *, n: int, seed: int = 0) -> np.ndarray:
        """Put a cube of `n` spectra under `key`. Return its spectra (n, 6)."""
        body, data = cube_file(n, seed)
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        return data

    def put_manifest(self, key: str = "manifests/job.json", **fields: Any) -> dict[str, Any]:
        """Put a manifest of the survey "grs" under `key`. Return S3's notification of it."""
        document = {"survey": "grs", "cube_key": "cubes/c.fits", **fields}
        etag = self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(document).encode())["ETag"]
        put = {"bucket": {"name": self.bucket}, "object": {"key": key, "etag": etag, "sequencer": etag.strip('"')}}
        return {"source": "aws.s3", "detail-type": "Object Created", "detail": put}

    def submit_file(self, path: Path, **fields: Any) -> str:
        """Submit a file as `prismline submit` does. Return the run's id."""
        connection: Any = SimpleNamespace(s3=self.s3, bucket=self.bucket)
        return submit(connection, str(path), {"survey": "grs", **fields})

    def put_urls(self, key: str = "jobs/job/manifest-run-1.json", **fields: Any) -> dict[str, Any]:
        """Put a manifest of the workload `urls` under `key`. Return it."""
        document = {"workload": "urls", "survey": "pages", **fields}
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(document).encode())
        return document

    def put_list(self, body: bytes, key: str = "uploads/t/list", list_format: str = "text") -> dict[str, Any]:
        """Stage a list. Return the reference by which a manifest names it."""
        etag = self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)["ETag"]
        return {"key": key, "etag": etag, "format": list_format}

    # ---- deliveries

    def notify(self, notification: dict[str, Any]) -> str:
        """Deliver S3's notification of a manifest. Return the id of the run that was announced."""
        assert self.deliver_notification(notification)
        (event,) = self.events("run.submitted")
        return str(event["runid"])

    def deliver_notification(self, notification: dict[str, Any]) -> bool:
        return self.deliver(json.dumps(notification))

    def split(self, run_id: str, manifest_key: str, *, token: str | None = TOKEN, receive_count: int = 1) -> bool:
        """Deliver the command to split a run. Return whether it was acknowledged; False if the splitter died."""
        command = RunSplit(run_id=run_id, job_id="job", bucket=self.bucket, manifest_key=manifest_key)
        envelope = Envelope.wrap(command, source="test", traceparent=traceparent_of(run_id), tasktoken=token)
        return self.deliver(envelope.to_json(), receive_count)

    def assert_split_by_another(self, run_id: str, manifest_key: str) -> None:
        """Another splitter gets the same command, and completes it."""
        assert self.split(run_id, manifest_key)

    def ingest_job(
        self, run_id: str, manifest_key: str, *, in_advance: bool = False, receive_count: int = 1, age: float = 0.0
    ) -> bool:
        """Deliver the command to start the run of a job. age: seconds since it was sent."""
        command = JobIngest(
            run_id=run_id, job_id="job", bucket=self.bucket, manifest_key=manifest_key, in_advance=in_advance
        )
        envelope = Envelope.wrap(command, source="test", traceparent=traceparent_of(run_id))
        sent = envelope.model_copy(update={"time": timestamp(now() - timedelta(seconds=age))})
        return self.deliver(sent.to_json(), receive_count)

    def deliver(self, body: str, receive_count: int = 1, **attributes: str) -> bool:
        event = lambda_event_of(body, self.deps.transport.environment, "split", receive_count=receive_count)
        event["Records"][0]["messageAttributes"] = {
            name: {"stringValue": value, "dataType": "String"} for name, value in attributes.items()
        }
        try:
            return not build_handler(self.deps)(event, Context())["batchItemFailures"]
        except DeathError:
            return False

    def deliver_all(self) -> int:
        """Deliver messages of the queue `split` until it is empty. Return the number of deliveries."""
        count = 0
        while bodies := self._drained("split"):
            for body in bodies:
                assert self.deliver(json.dumps(body))
                count += 1
        return count

    # ---- what can be seen

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def objects(self, prefix: str) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return [entry["Key"] for entry in found]

    def spectra(self, run_id: str) -> np.ndarray:
        """The spectra that the workers of a run read, in the order of its chunk items."""
        arrays = []
        for chunk in self.ledger.chunks(run_id):
            if (reference := chunk.cube_reference) is not None:
                bucket = Bucket(self.s3, reference.bucket or self.bucket)
                index = np.arange(reference.first, reference.first + chunk.n_items)
                read = partial(bucket.read_range, reference.key, etag=reference.etag)
                arrays.append(gather(Layout.of(reference), index, read))
                continue
            body = self.s3.get_object(Bucket=self.bucket, Key=chunk.chunk_key)["Body"].read()
            with np.load(io.BytesIO(body)) as file:
                assert len(file["spectra"]) == chunk.n_items
                arrays.append(file["spectra"])
        return np.concatenate(arrays)

    def sent(self) -> list[dict[str, Any]]:
        """The `data` of the messages for workers that were sent since the last call."""
        return [message["data"] for message in self._drained("chunks")]

    def messages(self) -> Counter[str]:
        """How many messages of each chunk were sent since the last call."""
        return Counter(str(data["chunk_id"]) for data in self.sent())

    def task_messages(self, queue: str = "tasks") -> list[TasksProcess]:
        """The messages of tasks that were sent since the last call."""
        return [TasksProcess.model_validate(message["data"]) for message in self._drained(queue)]

    def tasks(self, run_id: str) -> list[TaskItem]:
        """The tasks of a run in the order of their indices."""
        return sorted(self.ledger.tasks(self.ledger.run(run_id)), key=lambda task: task.index)

    def dead_letters(self) -> list[dict[str, Any]]:
        return self._drained("split-dlq")

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds, for example `run.drained`, that were published since the last call."""
        return [e for e in self._drained("observer") if e["type"] in {f"prismline.{kind}.v1" for kind in kinds}]

    def _drained(self, queue: str) -> list[dict[str, Any]]:
        return drained(self.sqs, self.urls.get(queue) or self.sqs.get_queue_url(QueueName=queue)["QueueUrl"])

    def end_tasks(self, run_id: str, *, failing: Callable[[TaskItem], bool] = lambda _: False) -> None:
        """Act as the workers: end every task of the run."""
        run = self.ledger.run(run_id)
        endings = []
        for task in self.ledger.start_tasks(run, self.ledger.tasks(run)):
            got = TaskResult(key="k", http_status=200, length=0, sha256="0" * 64, final_url=task.source)
            endings.append(TaskEnding(task, error="no") if failing(task) else TaskEnding(task, result=got))
        self.ledger.end_tasks(run, endings)

    def complete_late(self, run_id: str, tasks: list[TaskItem]) -> None:
        """Act as a recovery: complete tasks that had FAILED."""
        got = TaskResult(key="k", http_status=200, length=0, sha256="0" * 64, final_url="https://example.org/")
        self.ledger.end_tasks(self.ledger.run(run_id), [TaskEnding(task, result=got) for task in tasks])

    def work_off(self, run_id: str) -> None:
        """Act as the workers: complete every chunk of the run."""
        for chunk in list(self.ledger.chunks(run_id)):
            started = self.ledger.start_chunk(run_id, chunk.SK.removeprefix(CHUNK_SK_PREFIX))
            if isinstance(started, Started):
                self.ledger.complete_chunk(started.chunk, Outcome("out"), duration_ms=1)


def cube_file(n: int, seed: int = 0) -> tuple[bytes, np.ndarray]:
    """A FITS cube of `n` spectra with six channels in one row, and its spectra (n, 6)."""
    data = np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)
    hdu = fits.PrimaryHDU(np.ascontiguousarray(data.T[:, None, :]))
    hdu.header["CTYPE3"] = "VRAD"
    file = io.BytesIO()
    hdu.writeto(file)
    return file.getvalue(), data
