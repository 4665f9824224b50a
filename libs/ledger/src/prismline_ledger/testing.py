"""Helpers for the tests of all services: Lambda's context and SQS event, a run that is split, a clock.

This module needs neither the emulator nor the harness. The helpers that run a service on real queues and tables (a
"world") are in a module beside that service's tests, named after the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from prismline_contracts.base import chunk_id, timestamp
from prismline_contracts.items import ChunkItem
from prismline_ledger import Ledger, NewChunk, NewRun
from prismline_runtime.consumer import lambda_record


class Context:
    """Lambda's context of an invocation that has `seconds` left."""

    def __init__(self, seconds: float = 900.0) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the invocation's timeout, like Lambda's method."""
        return round(self.seconds * 1000)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)) -> None:
        self._start = self.now = now

    def __call__(self) -> datetime:
        """The time."""
        return self.now

    def text(self) -> str:
        """The time as the contracts write it."""
        return timestamp(self.now)

    def monotonic(self) -> float:
        """Seconds since the clock was made, for code that takes the module `time`."""
        return (self.now - self._start).total_seconds()

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += timedelta(seconds=seconds)


def chunk_item(status: str = "PENDING", *, created_at: str, **fields: Any) -> ChunkItem:
    """The item of the first chunk of the run `r`, for functions that decide from an item."""
    base = {
        "PK": "r",
        "SK": "CHUNK#chunk-0000000",
        "status": status,
        "chunk_key": "in/0",
        "n_spectra": 1,
        "n_items": 1,
        "created_at": created_at,
    }
    return ChunkItem.model_validate(base | fields)


def queue_arn(environment: str, queue: str) -> str:
    """The ARN of a queue, by its short name."""
    return f"arn:aws:sqs:us-east-1:000000000000:prismline-{environment}-{queue}"


def lambda_event(messages: Iterable[Mapping[str, Any]], environment: str, queue: str) -> dict[str, Any]:
    """Lambda's event of messages that SQS's `ReceiveMessage` returned."""
    arn = queue_arn(environment, queue)
    return {"Records": [lambda_record(message, arn) for message in messages]}  # type: ignore[arg-type]


def lambda_event_of(
    body: str, environment: str, queue: str, *, message_id: str = "m", receive_count: int = 1
) -> dict[str, Any]:
    """Lambda's event with one message that was never in a queue."""
    attributes = {"ApproximateReceiveCount": str(receive_count)}
    message = {"MessageId": message_id, "ReceiptHandle": "receipt", "Body": body, "Attributes": attributes}
    return lambda_event([message], environment, queue)


def split_run(
    ledger: Ledger,
    run_id: str,
    chunks: int | Iterable[NewChunk] = 1,
    *,
    latch: bool = True,
    n_blank: int | None = 0,
    shard_count: int = 1,
    **fields: Any,
) -> list[str]:
    """Do the splitter's writes for a run, and return the ids of its chunks.

    chunks: their number, or the chunks. n_blank: None if the workers count the blank items.
    fields: arguments of `Ledger.open_run` that replace the defaults.
    """
    opened = {"survey": "grs", "job_id": "j", "workload": "spectra", "params": None, "traceparent": None} | fields
    if isinstance(chunks, int):
        chunks = [NewChunk(chunk_id(n), f"chunks/{run_id}/{n}.npz", 1) for n in range(chunks)]
    new = list(chunks)
    ledger.set_shard_count(ledger.open_run(NewRun(run_id=run_id, **opened)), shard_count)
    ledger.add_chunks(run_id, new, shard_count=shard_count)
    ledger.set_total(run_id, n_chunks=len(new), n_items=len(new), n_blank=n_blank, shard_count=shard_count)
    if latch:
        ledger.latch(run_id)
    return [chunk.chunk_id for chunk in new]


def ingest_run(
    ledger: Ledger, run_id: str, sources: Sequence[str], *, latch: bool = True, shard_count: int = 1, **fields: Any
) -> dict[int, list[str]]:
    """Do the splitter's writes for a run of tasks, and return the ids of its tasks by shard.

    fields: arguments of `Ledger.open_run` that replace the defaults.
    """
    opened = {"survey": "pages", "job_id": "j", "workload": "urls", "params": None, "traceparent": None} | fields
    run = ledger.open_run(NewRun(run_id=run_id, unit="task", shard_count=shard_count, **opened))
    added = ledger.add_tasks(run, 0, sources).ids
    by_shard = {shard: added.get(shard, []) for shard in range(shard_count)}
    ledger.set_task_total(run_id, [len(names) for names in by_shard.values()])
    if latch:
        ledger.latch(run_id)
    return by_shard
