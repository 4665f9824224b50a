"""A run in the ledger, for tests: its items, short ways to change them, and faults between two requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prismline_contracts.items import CHUNK_SK_PREFIX, RUN_SK, ChunkItem, ChunkStatus, RunItem
from prismline_ledger import Finished, Ledger, NewChunk, NewRun, Outcome, Started
from prismline_runtime import Change, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DiedError(Exception):
    """Stands for the death of the process. Nothing in the ledger catches it."""


@contextmanager
def before_request(
    dynamodb: DynamoDBClient, number: int, action: Callable[[], object], *, or_after: bool = False
) -> Iterator[None]:
    """Do `action` before the block makes the request of this number, from 0. It fails if it makes fewer.

    or_after: do `action` after the block in that case.
    """
    seen, acting = 0, False

    def on_request(**_: Any) -> None:
        nonlocal seen, acting
        if acting:
            return
        seen += 1
        if seen == number + 1:
            acting = True
            try:
                action()
            finally:
                acting = False

    dynamodb.meta.events.register("before-call.dynamodb", on_request)
    try:
        yield
    finally:
        dynamodb.meta.events.unregister("before-call.dynamodb", on_request)
    if or_after and seen <= number:
        action()
    else:
        assert seen > number, f"there were only {seen} requests"


def dying(dynamodb: DynamoDBClient, call: Callable[[], object]) -> Iterator[None]:
    """Make `call` die before its first request, then before its second, and so on until it is carried out in full.

    Yields after each of these calls.
    """
    for number in itertools.count():
        made = 0

        def on_request(last: int = number, **_: Any) -> None:
            nonlocal made
            made += 1
            if made > last:
                raise DiedError

        dynamodb.meta.events.register("before-call.dynamodb", on_request)
        try:
            call()
        except DiedError:
            died = True
        else:
            died = False
        finally:
            dynamodb.meta.events.unregister("before-call.dynamodb", on_request)
        yield
        if not died:
            return


def new_chunks(n: int) -> list[NewChunk]:
    return [NewChunk(f"chunk-{number:07d}", f"in/{number}", 1) for number in range(n)]


@dataclass
class Scene:
    """One run."""

    ledger: Ledger
    dynamodb: DynamoDBClient
    table: Table
    run_id: str

    @property
    def run(self) -> RunItem:
        return self.ledger.run(self.run_id)

    @property
    def is_open(self) -> bool:
        """Whether the sweeper looks at the run."""
        return self.run_id in [run.run_id for run in self.ledger.open_runs()]

    def chunk(self, number: int = 0) -> ChunkItem:
        return self.ledger.chunk(self.run_id, self.chunk_id(number))

    @staticmethod
    def chunk_id(number: int = 0) -> str:
        return f"chunk-{number:07d}"

    def open(self, **arguments: Any) -> RunItem:
        fixed: dict[str, Any] = {"survey": "s", "job_id": "j", "workload": "spectra", "params": None}
        return self.ledger.open_run(NewRun(run_id=self.run_id, **fixed | {"traceparent": None} | arguments))

    def split(self, n_chunks: int, *, latch: bool = True, **arguments: Any) -> None:
        """Do the splitter's writes. May be repeated."""
        self.open(**arguments)
        self.ledger.add_chunks(self.run_id, new_chunks(n_chunks))
        self.ledger.set_total(self.run_id, n_chunks=n_chunks, n_items=n_chunks, n_blank=0)
        if latch:
            self.ledger.latch(self.run_id)

    def start(self, number: int = 0, *, worker: str | None = None) -> ChunkItem:
        started = self.ledger.start_chunk(self.run_id, self.chunk_id(number), worker=worker)
        assert isinstance(started, Started)
        return started.chunk

    def complete(self, number: int = 0, *, n_timed_out: int = 0) -> Finished:
        chunk = self.chunk(number)
        return self.ledger.complete_chunk(chunk, Outcome("o", n_timed_out=n_timed_out), duration_ms=1)

    def fail(self, number: int = 0, error: str = "e") -> Finished:
        return self.ledger.fail_chunk(self.chunk(number), error)

    def end(self, status: str = "completed") -> None:
        """The status service records the run's end."""
        assert self.ledger.record_end(self.run, status)

    def close(self, status: str = "completed") -> None:
        """The sweeper has seen the run's end."""
        self.end(status)
        assert self.ledger.close_run(self.run)

    def damage(self, chunk: int | None = None, **values: Any) -> None:
        """Write past the ledger, as a bug or a restored backup would."""
        model, sk = (RunItem, RUN_SK) if chunk is None else (ChunkItem, CHUNK_SK_PREFIX + self.chunk_id(chunk))
        sets = {model.attribute(field): value for field, value in values.items()}
        self.table.update({"PK": self.run_id, "SK": sk}, Change(sets))

    def counters(self) -> tuple[int, int]:
        """The counters of the run item: completed, failed."""
        return self.run.chunks_completed, self.run.chunks_failed

    def states(self) -> tuple[int, int]:
        """The numbers of the chunk items: completed, failed."""
        states = [chunk.state for chunk in self.ledger.chunks(self.run_id)]
        return states.count(ChunkStatus.COMPLETED), states.count(ChunkStatus.FAILED)
