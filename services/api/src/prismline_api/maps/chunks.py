"""The chunks of a run, as maps need them: the spectra of each, its state, and the version of its output."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.objects import CubeGeometry, geometry_key, output_prefix
from prismline_ledger import Ledger
from prismline_runtime import Bucket, aws_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: How old the known chunks of a running run may be: in seconds, and as a multiple of the time to read them.
FRESH_SECONDS, FRESH_FACTOR = 2.0, 10.0
#: Runs whose chunks are remembered.
REMEMBERED_RUNS = 32


@dataclass(frozen=True)
class Output:
    """A version of the output of a chunk."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True)
class Holder:
    """A chunk. It holds the spectra `first` to `first + count - 1`, numbered by y * nx + x."""

    chunk_id: str
    first: int
    count: int
    #: The status in its item. A newer release may write one that `ChunkStatus` does not have.
    status: str
    #: Absent until the chunk has completed.
    output: Output | None

    @classmethod
    def of(cls, chunk: ChunkItem, versions: dict[str, Output]) -> Holder:
        """The chunk of an item. versions: the run's outputs by key."""
        completed = chunk.state is ChunkStatus.COMPLETED and chunk.output_key is not None
        return cls(
            chunk_id=chunk.chunk_id,
            first=int(chunk.chunk_id.removeprefix("chunk-")),
            count=chunk.n_items,
            status=chunk.status,
            output=versions.get(chunk.output_key or "") if completed else None,
        )


@dataclass(frozen=True)
class RunChunks:
    """The chunks of a run in the order of their spectra, and the geometry of its cube."""

    run_id: str
    survey: str
    geometry: CubeGeometry
    holders: tuple[Holder, ...]
    #: Whether the run had all its chunks, and all of them had ended.
    final: bool

    def at(self, index: int) -> Holder | None:
        """The chunk that holds a spectrum."""
        place = bisect_right(self.holders, index, key=lambda holder: holder.first) - 1
        if place < 0 or index >= self.holders[place].first + self.holders[place].count:
            return None
        return self.holders[place]


@dataclass(frozen=True)
class _Known:
    chunks: RunChunks
    #: The state of the run's item at that time, see `_state`.
    state: tuple[object, ...]
    read_at: float
    seconds: float


class ChunkIndex:
    """Finds the chunks of runs. Chunks of a running run may be some seconds old. A run that has ended is read once.

    Raises UnavailableError if DynamoDB or S3 does not answer.
    """

    def __init__(
        self, ledger: Ledger, s3: S3Client, bucket: Bucket, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._s3 = s3
        self._bucket = bucket
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._locks: dict[str, threading.Lock] = {}

    def chunks(self, run: RunItem) -> RunChunks:
        """The chunks of a run whose cube the splitter has read."""
        lock = self._locks.setdefault(run.run_id, threading.Lock())
        with lock:
            known = self._known.get(run.run_id)
            if known is None or not self._fresh(known, run):
                known = self._read(run, None if known is None else known.chunks.geometry)
                while len(self._known) >= REMEMBERED_RUNS:
                    oldest = next(iter(self._known))
                    self._known.pop(oldest, None)
                    self._locks.pop(oldest, None)
                self._known[run.run_id] = known
            return known.chunks

    def forget(self, run_id: str) -> None:
        """Read the chunks of a run again the next time, because an output has changed."""
        self._known.pop(run_id, None)

    def _fresh(self, known: _Known, run: RunItem) -> bool:
        if known.chunks.final and known.state == _state(run):
            return True
        return self._clock() - known.read_at < max(FRESH_SECONDS, FRESH_FACTOR * known.seconds)

    def _read(self, run: RunItem, geometry: CubeGeometry | None) -> _Known:
        began = self._clock()
        if geometry is None:
            geometry = CubeGeometry.model_validate_json(self._bucket.read(geometry_key(run.run_id)))
        items = list(self._ledger.chunks(run.run_id))
        versions = self._versions(output_prefix(run.survey, run.run_id))
        holders = sorted((Holder.of(item, versions) for item in items), key=lambda holder: holder.first)
        chunks = RunChunks(run.run_id, run.survey, geometry, tuple(holders), final=run.drained_at is not None)
        return _Known(chunks, _state(run), began, self._clock() - began)

    def _versions(self, prefix: str) -> dict[str, Output]:
        with aws_errors(f"list s3://{self._bucket.name}/{prefix}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket.name, Prefix=prefix)
            return {
                entry["Key"]: Output(entry["Key"], entry["ETag"], entry["Size"])
                for page in pages
                for entry in page.get("Contents", [])
            }


def _state(run: RunItem) -> tuple[object, ...]:
    """The attributes of a run's item that change when an ended chunk changes: by a recovery, late success or refit."""
    return run.drained_at, run.drains, run.moves, run.chunks_completed, run.n_timed_out, run.n_refit_failed
