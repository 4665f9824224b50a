"""Completions of chunks with 1, 4 and 16 shards and 1 to 64 concurrent finishers: their rate and their conflicts.

Each finisher is a thread that ends one chunk after the other with `Ledger.complete_chunk`. There are two tables:

- modelled: an account in memory that answers after the time of a request to DynamoDB (`REQUEST_SECONDS`), and in which
  a transaction holds its items for `HELD_SECONDS`. If another transaction names one of these items in that time, it is
  cancelled with TransactionConflict, as DynamoDB documents it. The times are assumptions: the table shows where one
  item is the bottleneck, not how fast AWS is;
- emulator: it executes one request after the other, so no transaction ever conflicts. The peer is
  bare TransactWriteItems calls of the same two updates, without the ledger's reads.

    python benchmarks/shards.py [--seconds 5] [--table modelled|emulator]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

from botocore.config import Config

sys.path.insert(0, str(Path(__file__).parents[1]))

from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkItem
from prismline_ledger import Ledger, NewRun, Outcome
from prismline_localstack.emulator import Emulator
from prismline_localstack.testing import create_runs_table
from prismline_runtime import encode
from tests.simulation.aws import Aws, PlainHub
from tests.simulation.aws.base import client_error

SHARDS, FINISHERS = (1, 4, 16), (1, 4, 16, 64)
#: Seconds until DynamoDB answers, and the part of them in which a transaction holds its items.
REQUEST_SECONDS, HELD_SECONDS = 0.008, 0.005
#: Chunks to complete, for each second. When there are no more, the measurement ends.
MODELLED_PER_SECOND, EMULATED_PER_SECOND = 3000, 500
TABLE = "shards"


class Contended(PlainHub):
    """Delays calls of many threads to the account in memory by the time of a request; transactions hold their items."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self.conflicts = 0
        self.slow = False

    def gate(self, _service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        if not self.slow:
            return perform()
        if operation != "transact_write_items":
            time.sleep(REQUEST_SECONDS)
            with self._lock:
                return perform()
        names = {str(write["Update"]["Key"]) for write in parameters["TransactItems"]}
        time.sleep(REQUEST_SECONDS - HELD_SECONDS)
        with self._lock:
            if conflict := names & self._held:
                self.conflicts += 1
                reasons = [{"Code": "TransactionConflict" if name in conflict else "None"} for name in names]
                raise client_error(
                    "TransactWriteItems", "TransactionCanceledException", "cancelled", CancellationReasons=reasons
                )
            self._held |= names
        try:
            time.sleep(HELD_SECONDS)
            with self._lock:
                return perform()
        finally:
            with self._lock:
                self._held -= names


def prepare(dynamodb: Any, run_id: str, shard_count: int, n_chunks: int) -> list[ChunkItem]:
    """A run whose chunks are all in progress."""
    ledger = Ledger(dynamodb, TABLE)
    ledger.open_run(NewRun(run_id=run_id, survey="s", job_id="j", workload="w", shard_count=shard_count))
    chunks = [
        ChunkItem(
            PK=run_id,
            SK=f"CHUNK#chunk-{number:07d}",
            status="IN_PROGRESS",
            chunk_key="in",
            shard=None if shard_count == 1 else number % shard_count,
            reference_n_items=1,
            n_items=1,
            created_at=timestamp(),
        )
        for number in range(n_chunks)
    ]
    for start in range(0, n_chunks, 25):
        puts = [
            {"PutRequest": {"Item": encode(chunk.model_dump(exclude_defaults=True))}}
            for chunk in chunks[start : start + 25]
        ]
        dynamodb.batch_write_item(RequestItems={TABLE: puts})
    return chunks


def timed(finishers: int, seconds: float, n_chunks: int, finish: Callable[[int], object]) -> tuple[int, float]:
    """The number of calls of `finish` by so many threads, at most one for each chunk, and their seconds."""
    numbers, done = count(), count()
    end = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end and (number := next(numbers)) < n_chunks:
            finish(number)
            next(done)

    began = time.monotonic()
    with ThreadPoolExecutor(finishers) as pool:
        for future in [pool.submit(work) for _ in range(finishers)]:
            future.result()
    return next(done), time.monotonic() - began


def modelled(seconds: float) -> Iterator[tuple[int, int, str]]:
    """Completions a second and conflicts a completion, for each number of shards and finishers."""
    for shard_count, finishers in product(SHARDS, FINISHERS):
        hub = Contended()
        dynamodb: Any = Aws(hub).dynamodb
        create_runs_table(dynamodb, TABLE)
        n_chunks = round(seconds * MODELLED_PER_SECOND)
        finish = completing(dynamodb, "r", shard_count, n_chunks)
        hub.slow = True
        done, elapsed = timed(finishers, seconds, n_chunks, finish)
        yield shard_count, finishers, f"{done / elapsed:.0f} | {hub.conflicts / done:.2f}"


def emulated(seconds: float) -> Iterator[tuple[int, int, str]]:
    """Completions a second, conflicts, and bare transactions a second, for each number of shards and finishers."""
    conflicts = 0

    def note(parsed: Mapping[str, Any], **_: Any) -> None:
        nonlocal conflicts
        conflicts += any(
            reason.get("Code") == "TransactionConflict" for reason in parsed.get("CancellationReasons", [])
        )

    with emulator() as dynamodb:
        dynamodb.meta.events.register("after-call.dynamodb.TransactWriteItems", note)
        for number, (shard_count, finishers) in enumerate(product(SHARDS, FINISHERS)):
            n_chunks = round(seconds * EMULATED_PER_SECOND)
            finish = completing(dynamodb, f"r{number}", shard_count, n_chunks)
            done, elapsed = timed(finishers, seconds, n_chunks, finish)
            finish = transacting(dynamodb, f"bare{number}", shard_count, n_chunks)
            bare, bare_elapsed = timed(finishers, seconds, n_chunks, finish)
            subject, peer = done / elapsed, bare / bare_elapsed
            yield shard_count, finishers, f"{subject:.0f} | {conflicts} | {peer:.0f} | {subject / peer:.2f}"


def completing(dynamodb: Any, run_id: str, shard_count: int, n_chunks: int) -> Callable[[int], object]:
    """Completes the chunk with a number."""
    chunks = prepare(dynamodb, run_id, shard_count, n_chunks)
    ledger = Ledger(dynamodb, TABLE)
    return lambda number: ledger.complete_chunk(chunks[number], Outcome("o"), duration_ms=1)


def transacting(dynamodb: Any, run_id: str, shard_count: int, n_chunks: int) -> Callable[[int], object]:
    """Makes the two updates of a completion, without a ledger."""
    chunks = prepare(dynamodb, run_id, shard_count, n_chunks)
    return lambda number: transact(dynamodb, chunks[number], shard_count)


def transact(dynamodb: Any, chunk: ChunkItem, shard_count: int) -> None:
    """The two updates of a completion, without a ledger."""
    key = {"PK": {"S": chunk.PK}, "SK": {"S": chunk.SK}}
    counter = {"PK": {"S": f"{chunk.PK}#{hash(chunk.SK) % shard_count}"}, "SK": {"S": "SHARD"}}
    dynamodb.transact_write_items(
        TransactItems=[
            {
                "Update": {
                    "TableName": TABLE,
                    "Key": key,
                    "UpdateExpression": "SET #s = :s",
                    "ConditionExpression": "#s = :was",
                    "ExpressionAttributeNames": {"#s": "status"},
                    "ExpressionAttributeValues": {":s": {"S": "COMPLETED"}, ":was": {"S": "IN_PROGRESS"}},
                }
            },
            {
                "Update": {
                    "TableName": TABLE,
                    "Key": counter,
                    "UpdateExpression": "ADD completed :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            },
        ]
    )


@contextmanager
def emulator() -> Iterator[Any]:
    import boto3  # noqa: PLC0415  only this table needs it

    with tempfile.TemporaryDirectory(prefix="shards-") as directory:
        started = Emulator.start(Path(directory), Path(directory) / "log")
        try:
            environment = started.environment
            dynamodb = boto3.client(
                "dynamodb",
                endpoint_url=started.endpoint,
                region_name=environment["AWS_DEFAULT_REGION"],
                aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                config=Config(max_pool_connections=max(FINISHERS)),
            )
            create_runs_table(dynamodb, TABLE)
            yield dynamodb
        finally:
            started.stop()


TABLES: dict[str, tuple[str, Callable[[float], Iterator[tuple[int, int, str]]]]] = {
    "modelled": ("completions/s | conflicts a completion", modelled),
    "emulator": ("completions/s | conflicts | bare transactions/s | ratio", emulated),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--table", choices=list(TABLES), action="append")
    args = parser.parse_args()
    for name in args.table or TABLES:
        columns, measure = TABLES[name]
        print(f"| {name}: shards | finishers | {columns} |")
        for shard_count, finishers, figures in measure(args.seconds):
            print(f"| {shard_count} | {finishers} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
