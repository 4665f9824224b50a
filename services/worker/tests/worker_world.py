"""A worker with real queues, ledger, bucket and bus, and with a fake fitter that the spectra control."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits
from botocore.exceptions import EndpointConnectionError

from prismline_contracts.base import chunk_id
from prismline_contracts.commands import ChunkProcess
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.objects import CubeGeometry, chunk_key, geometry_key
from prismline_contracts.references import CubeReference
from prismline_ledger import Ledger, NewChunk
from prismline_ledger.testing import Context, lambda_event_of, split_run
from prismline_localstack.testing import create_environment, drained, observe_bus
from prismline_worker.dependencies import Dependencies
from prismline_worker.fit_process import Fit, FitError, FitTimeoutError
from prismline_worker.handler import build_handler

RUN_ID = "run-1"
FIRST, SECOND = chunk_id(0), chunk_id(100)
#: Key of the cube that chunks refer to.
CUBE = "cubes/c.fits"
#: Values of a spectrum's first channel: it can be fitted; it can be fitted only without a budget; it cannot be fitted.
GOOD, SLOW, HOPELESS = 1.0, 2.0, 3.0


class Fitter:
    """A fake fitter. The first channel of a spectrum decides the result."""

    def __init__(self) -> None:
        #: Slow spectra that an invocation has time for. None: any number.
        self.most_slow: int | None = None

    def fit(
        self,
        spectrum: Any,
        params: Mapping[str, Any],
        *,
        budget_s: float | None = None,
        deadline: float | None = None,
    ) -> Fit:
        if spectrum[0] in {SLOW, HOPELESS}:
            if budget_s is not None or self.most_slow == 0:
                raise FitTimeoutError
            if self.most_slow is not None:
                self.most_slow -= 1
        if spectrum[0] == HOPELESS:
            raise FitError("ValueError: it cannot be fitted")
        return Fit(0.1, [(float(spectrum[0]), 2.0, 3.0)])


class Aws:
    """Records the calls to AWS, and makes some of them fail."""

    def __init__(self) -> None:
        #: Operations that were called.
        self.calls: list[str] = []
        #: Operations that do not reach AWS, and operations whose answer is lost.
        self.down: set[str] = set()
        self.lost: set[str] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Clients that are made in the block are watched as long as they exist."""
        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        events = boto3.DEFAULT_SESSION.events
        events.register("before-call", self._before)
        events.register("after-call", self._after)
        yield
        events.unregister("before-call", self._before)
        events.unregister("after-call", self._after)

    def _before(self, model: Any, **_: Any) -> None:
        self.calls.append(model.name)
        if model.name in self.down:
            raise EndpointConnectionError(endpoint_url="test")

    def _after(self, model: Any, **_: Any) -> None:
        if model.name in self.lost:
            raise EndpointConnectionError(endpoint_url="test")


@dataclass
class WorkerWorld:
    environment: str
    bucket: str
    deps: Dependencies
    fitter: Fitter
    handler: Callable[[dict[str, Any], Any], Any]
    observer: str
    aws: Aws
    receive_count: int = 1
    #: Spectra of each chunk.
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def run(self) -> RunItem:
        return self.ledger.run(RUN_ID)

    def chunk(self, chunk: str = FIRST) -> ChunkItem:
        return self.ledger.chunk(RUN_ID, chunk)

    # ---- the run's input

    def open_run(self, *chunks: str, spectra: Mapping[str, list[float]] | None = None) -> None:
        """Open a run of `chunks`. `spectra` has the kinds of each chunk's spectra; the default is one good spectrum."""
        contents = {chunk: (spectra or {}).get(chunk, [GOOD]) for chunk in chunks or (FIRST,)}
        for chunk, kinds in contents.items():
            self.sizes[chunk] = len(kinds)
            self.write_chunk(chunk, kinds)
        new = [NewChunk(chunk, chunk_key(RUN_ID, chunk), len(kinds)) for chunk, kinds in contents.items()]
        split_run(self.ledger, RUN_ID, new)

    def write_chunk(self, chunk: str, kinds: list[float]) -> None:
        spectra = np.zeros((len(kinds), 3), np.float32)
        spectra[:, 0] = kinds
        body = io.BytesIO()
        pixels = np.arange(len(kinds))
        np.savez(body, spectra=spectra, x=pixels, y=pixels)
        self.put(chunk_key(RUN_ID, chunk), body.getvalue())

    def open_run_of_cube(self, kinds: list[float], *, size: int) -> None:
        """Open a run whose chunks of `size` spectra refer to a cube with spectra of these kinds. NaN: a blank one."""
        values = np.zeros((3, 1, len(kinds)), np.float32)
        values[0] = kinds
        values[:, np.isnan(values[0])] = np.nan
        body = io.BytesIO()
        fits.PrimaryHDU(values, fits.Header({"CTYPE3": "VRAD"})).writeto(body)
        self.put(CUBE, body.getvalue())
        geometry = CubeGeometry(
            n_channels=3, ny=1, nx=len(kinds), ctype="VRAD", crval=0.0, crpix=0.0, cdelt=1.0, cunit="m/s", bunit="",
            object_name="", cube_key=CUBE,
        )  # fmt: skip
        self.put(geometry_key(RUN_ID), geometry.model_dump_json().encode())
        etag = boto3.client("s3").head_object(Bucket=self.bucket, Key=CUBE)["ETag"]
        chunks = []
        for first in range(0, len(kinds), size):
            count = min(size, len(kinds) - first)
            reference = CubeReference(
                key=CUBE, etag=etag, offset=2880, bitpix=-32, axes=[len(kinds), 1, 3], spectral_axis=3, first=first,
                count=count,
            )  # fmt: skip
            self.sizes[chunk_id(first)] = count
            chunks.append(NewChunk(chunk_id(first), CUBE, count, reference))
        split_run(self.ledger, RUN_ID, chunks, n_blank=None)

    def put(self, key: str, body: bytes) -> None:
        boto3.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)

    # ---- messages

    def command(self, chunk: str = FIRST, **changes: Any) -> ChunkProcess:
        given: dict[str, Any] = {
            "run_id": RUN_ID,
            "job_id": "j",
            "survey": "grs",
            "workload": "spectra",
            "chunk_id": chunk,
            "n_items": self.sizes.get(chunk, 1),
            "bucket": self.bucket,
            "chunk_key": chunk_key(RUN_ID, chunk),
            "params": {"decomposer": "phspectra"},
        }
        return ChunkProcess(**(given | changes))

    def process(self, chunk: str = FIRST, *, seconds: float = 900.0, **changes: Any) -> bool:
        """Deliver the chunk's message. Return whether it was acknowledged."""
        body = Envelope.wrap(self.command(chunk, **changes), source="test", traceparent=None).to_json()
        return self.deliver(body, "chunks", seconds=seconds)

    def deliver(self, body: str, queue: str, *, seconds: float = 900.0) -> bool:
        """Deliver a message. Return whether it was acknowledged."""
        event = lambda_event_of(body, self.environment, queue, receive_count=self.receive_count)
        answer = self.handler(event, Context(seconds))
        return not answer["batchItemFailures"]

    def take(self, queue: str) -> list[tuple[str, dict[str, str]]]:
        """Receive and delete the messages of a queue. Return their bodies and attributes."""
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName=f"prismline-{self.environment}-{queue}")["QueueUrl"]
        taken = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
            "Messages"
        ):
            for message in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                attributes = message.get("MessageAttributes", {})
                taken.append((message["Body"], {name: value["StringValue"] for name, value in attributes.items()}))
        return taken

    def refit(self, body: str | None = None) -> bool:
        """Deliver a message (default: the one in its queue) to the slow lane. Return whether it was acknowledged."""
        if body is None:
            ((body, _),) = self.take("refits")
        return self.deliver(body, "refits")

    def announced(self) -> list[tuple[str, str]]:
        """Short types and ids of the events that were published since the last call."""
        events = drained(boto3.client("sqs"), self.observer, wait_seconds=1)
        return [(event["type"].removeprefix("prismline.").removesuffix(".v1"), event["id"]) for event in events]

    # ---- output

    def rows(self, chunk: str = FIRST) -> list[str]:
        """The status of each row of the chunk's output."""
        key = self.chunk(chunk).output_key or f"decompositions/survey=grs/run={RUN_ID}/{chunk}.parquet"
        body = boto3.client("s3").get_object(Bucket=self.bucket, Key=key)["Body"].read()
        statuses: list[str] = pq.read_table(pa.BufferReader(body))["status"].to_pylist()
        return statuses


def spectra_world(environment: str, monkeypatch: Any) -> WorkerWorld:
    """A world with no run in it yet."""
    bucket = create_environment(environment, monkeypatch, ("chunks", "chunks-dlq", "refits", "refits-dlq"))
    fitter, aws = Fitter(), Aws()
    with aws.watched():
        deps = dataclasses.replace(Dependencies.from_environment(), fitter=fitter)
        handler = build_handler(deps)
    observer = observe_bus(boto3.client("sqs"), boto3.client("events"), f"prismline-{environment}")
    return WorkerWorld(environment, bucket, deps, fitter, handler, observer, aws)
