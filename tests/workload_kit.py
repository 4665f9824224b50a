"""A kit for testing a workload: its two files, a bucket that is a folder, and no AWS.

    kit = Kit(tmp_path)
    kit.put("a.txt", b"one two")
    for chunk in kit.run({"workload": "words", "survey": "test", "text_key": "a.txt"}):
        print(chunk.chunk_id, chunk.output)

The kit does twice whatever a redelivery would repeat, and fails if the results differ.
"""

from __future__ import annotations

import hashlib
import io
import json
import pkgutil
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO, cast

from prismline_contracts.commands import ChunkProcess
from prismline_contracts.envelope import Envelope
from prismline_contracts.manifest import Manifest
from prismline_ledger import NewChunk
from prismline_runtime import Bucket, Delivery, Message, PermanentError, service_logger
from prismline_splitter import workloads as splitter_workloads
from prismline_splitter.workload import Source, Split
from prismline_worker import workloads as worker_workloads
from prismline_worker.dependencies import Dependencies
from prismline_worker.progress import Progress
from prismline_worker.settings import WorkerSettings
from prismline_worker.workload import Outcome

RUN_ID = "run-1"
BUCKET = "bucket"


@dataclass(frozen=True)
class Worked:
    """A processed chunk: its input, its output and the worker's summary."""

    chunk_id: str
    n_items: int
    input: bytes
    output: bytes
    output_key: str
    summary: str | None


class FolderBucket:
    """The methods of `Bucket` that a workload may use, with a folder as storage."""

    name = BUCKET

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: Written keys, in order.
        self.written: list[str] = []
        #: Ranges that were read: the first byte and the byte after the last.
        self.ranges: list[tuple[int, int]] = []

    def _path(self, key: str) -> Path:
        path = self._folder / key
        if not path.is_file():
            raise PermanentError(f"s3://{BUCKET}/{key} does not exist.")
        return path

    def read(self, key: str, *, most: int | None = None) -> bytes:
        body = self._path(key).read_bytes()
        if most is not None and len(body) > most:
            raise PermanentError(f"s3://{BUCKET}/{key} has {len(body):,} bytes; at most {most:,} are read.")
        return body

    def list(self, prefix: str) -> list[str]:
        paths = (path for path in self._folder.rglob("*") if path.is_file())
        return sorted(key for path in paths if (key := str(path.relative_to(self._folder))).startswith(prefix))

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        return self.read(key), self.version(key)

    def version(self, key: str) -> str:
        return f'"{hashlib.md5(self.read(key)).hexdigest()}"'

    def open(self, key: str) -> BinaryIO:
        return io.BytesIO(self.read(key))

    def size(self, key: str, *, etag: str) -> int:
        self._check(key, etag)
        return len(self.read(key))

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> BinaryIO:
        self._check(key, etag)
        return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(self.read(key))), part_bytes)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        self._check(key, etag)
        self.ranges.append((start, stop))
        return self.read(key)[start:stop]

    def _check(self, key: str, etag: str) -> None:
        if self.version(key) != etag:
            raise PermanentError(f"s3://{BUCKET}/{key} was replaced after the run had been submitted.")

    def download(self, key: str, to: Path, *, etag: str | None = None) -> None:
        if etag is not None:
            self._check(key, etag)
        shutil.copy(self._path(key), to)

    def write(self, key: str, body: bytes) -> None:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        self.written.append(key)

    def upload(self, path: Path, key: str) -> None:
        self.write(key, path.read_bytes())

    def create(self, key: str, body: bytes) -> bool:
        if (self._folder / key).exists():
            return False
        self.write(key, body)
        return True

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        if self.version(key) != etag:
            return False
        self.write(key, body)
        return True


class Kit:
    """Splits a manifest and processes its chunks, each twice."""

    def __init__(self, folder: Path) -> None:
        self.bucket = FolderBucket(folder / "bucket")
        self._workdir = folder / "work"
        self._workdir.mkdir()

    def put(self, key: str, body: bytes) -> None:
        """Write a source into the bucket."""
        self.bucket.write(key, body)

    def run(self, manifest: dict[str, Any], **settings: Any) -> list[Worked]:
        """Split a manifest and process its chunks. Raises the errors of the workload.

        settings: values of the worker's settings that the workload reads, by name.
        """
        splitter = _workload(splitter_workloads, manifest["workload"])
        model = splitter.manifest.model_validate_json(json.dumps(manifest))
        plan: dict[str, Any] = {}
        first = self._split(splitter, model, plan)
        inputs = {chunk.chunk_id: self.bucket.read(chunk.chunk_key) for chunk in first.chunks}
        assert len(inputs) == len(first.chunks), "two chunks have the same id"
        assert sum(chunk.n_items for chunk in first.chunks) <= first.n_items, (
            "the chunks have more items than the source"
        )
        again = self._split(splitter, model, plan)
        assert again == first, "a redelivery of the split gives other chunks"
        assert inputs == {chunk.chunk_id: self.bucket.read(chunk.chunk_key) for chunk in again.chunks}, (
            "a redelivery of the split writes other inputs"
        )
        nothing: Any = None
        deps = Dependencies(
            settings=cast("WorkerSettings", SimpleNamespace(**settings)),
            ledger=nothing,
            transport=nothing,
            open_bucket=lambda _: cast("Bucket", self.bucket),
            fitter=nothing,
            logger=service_logger("worker"),
        )
        worker = _workload(worker_workloads, manifest["workload"]).connect(deps)
        worked = [self._work_off(worker, model, chunk, inputs[chunk.chunk_id]) for chunk in first.chunks]
        assert len({chunk.output_key for chunk in worked}) == len(worked), "two chunks have the same output"
        return worked

    def _split(self, splitter: Any, manifest: Manifest, plan: dict[str, Any]) -> Split:
        def pinned(name: str, find: Callable[[], Any]) -> Any:
            if name not in plan:
                plan[name] = find()
            return plan[name]

        bucket = cast("Bucket", self.bucket)
        split = splitter.split(manifest, Source(RUN_ID, bucket, self._workdir, pinned, lambda _: bucket, 0.002))
        return Split(tuple(split.chunks), split.n_items, split.n_blank)

    def _work_off(self, worker: Any, manifest: Manifest, chunk: NewChunk, given: bytes) -> Worked:
        command = ChunkProcess(
            run_id=RUN_ID,
            job_id=manifest.job_id or "job",
            survey=manifest.survey,
            workload=manifest.workload,
            chunk_id=chunk.chunk_id,
            n_items=chunk.n_items,
            bucket=BUCKET,
            chunk_key=chunk.chunk_key,
            reference=chunk.reference,
            params=manifest.params.model_dump(mode="json", exclude_unset=True, exclude_none=True),
        )
        message = Message(
            Envelope.wrap(command, source="prismline/test/kit", traceparent=None, key=(chunk.chunk_id,)),
            Delivery("chunks", "message", "receipt", "", 1),
        )
        outcomes: list[tuple[Outcome, bytes]] = []
        for _ in range(2):
            worker.require(command)
            outcome = worker.process(command, message, Progress(lambda _: False))
            outcomes.append((outcome, self.bucket.read(outcome.output_key)))
        (first, output), (second, later) = outcomes
        assert second.output_key == first.output_key, "a second processing writes another object"
        assert later == output, "a second processing changes the output"
        return Worked(chunk.chunk_id, chunk.n_items, given, output, first.output_key, first.summary)


def _workload(package: ModuleType, name: str) -> Any:
    for module in pkgutil.iter_modules(package.__path__):
        workload = import_module(f"{package.__name__}.{module.name}").WORKLOAD
        if workload.name == name:
            return workload
    raise LookupError(f"There is no workload {name} in {package.__name__}.")
