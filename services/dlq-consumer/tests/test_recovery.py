"""Recovery from the archive: everything goes back that can, nothing is lost, nothing is done twice, however it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dlq_world import World, chunk_message

from prismline_contracts import (
    ChunkStatus,
    DeadLetterRecord,
    DeadlettersRecover,
    Envelope,
    RecoveryOperationItem,
    RunSplit,
    timestamp,
)
from prismline_ledger import LeaseLostError, Operations, Skipped, Started

pytestmark = pytest.mark.emulator

#: Longest time, seconds, that a recovery is waited for.
PATIENCE = 600.0


def archive(world: World, body: str, name: str, *, date: str = "2026-03-01", **fields: Any) -> str:
    """Put a record into the archive as the consumer does; its key."""
    key = f"dead-letter-archive/sqs/{date}/{name}.json"
    fields = {"source_queue": "chunks"} | fields
    record = DeadLetterRecord(body=body, messageId=name.rpartition("-")[0], **fields)
    world.deps.bucket.write(key, json.dumps(dict(record)).encode())
    return key


def failed_run(world: World, run_id: str, n_chunks: int) -> list[str]:
    """A drained run whose every chunk FAILED."""
    chunk_ids = world.run(run_id, n_chunks)
    for chunk_id in chunk_ids:
        world.ledger.fail_chunk(run_id, chunk_id, "given up")
    return chunk_ids


def recover(world: World, operation_id: str = "op-1", **fields: Any) -> RecoveryOperationItem:
    """Ask for a recovery and work on it in this process."""
    ask(world, operation_id, **fields)
    while world.handle("recoveries") is not None:
        pass
    operation = world.deps.operations.get(operation_id)
    assert operation is not None
    return operation


def ask(world: World, operation_id: str, **fields: Any) -> None:
    request = DeadlettersRecover(operation_id=operation_id, requested_at=timestamp(), **fields)
    message = Envelope.wrap(request, source="prismline/test", traceparent=None, key=(operation_id,))
    world.send("recoveries", message.to_json())


def sent(world: World, queue: str = "chunks") -> list[dict[str, Any]]:
    """Everything that is in a queue, taken out of it."""
    found = []
    while (event := world.receive(queue)) is not None:
        for record in event["Records"]:
            found.append(json.loads(record["body"]))
            world.sqs.delete_message(QueueUrl=world.urls[queue], ReceiptHandle=record["receiptHandle"])
    return found


def counts(operation: RecoveryOperationItem) -> tuple[int, int, int, int, int]:
    return (operation.n_records, operation.n_sent, operation.n_settled, operation.n_failed, operation.n_left)


def test_a_failed_chunk_is_recovered_and_moves_its_runs_counters(world: World) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id, attempt=6), "m-1")
    operation = recover(world)
    assert operation.status == "COMPLETED"
    assert operation.finished_at is not None
    assert counts(operation) == (1, 1, 0, 0, 0)
    assert world.records() == {}
    (message,) = sent(world)
    command = message["data"]
    assert command["attempt"] == 1, "a recovered message has all its attempts again"
    started = world.ledger.start_chunk("r", chunk_id, recovery=command["recovery"])
    assert isinstance(started, Started)
    assert world.item("r").jobs_failed == 1, "it counts as failed until it is completed"
    world.ledger.complete_chunk("r", chunk_id, output_key="o", duration_ms=1)
    assert (world.item("r").jobs_completed, world.item("r").jobs_failed) == (1, 0)
    (said,) = world.events("deadletters.recovered")
    assert said["data"]["n_sent"] == 1


def test_a_failed_chunk_is_only_tried_by_its_recovery(world: World) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    assert isinstance(world.ledger.start_chunk("r", chunk_id), Skipped)
    assert isinstance(world.ledger.start_chunk("r", chunk_id, recovery="op/m-1"), Skipped)
    assert world.ledger.allow_recovery({("r", chunk_id): "op/m-1"}, "op") == {("r", chunk_id)}
    assert world.ledger.allow_recovery({("r", chunk_id): "op/m-2"}, "op") == set()
    assert isinstance(world.ledger.start_chunk("r", chunk_id, recovery="op/m-1"), Started)
    world.ledger.end_recovery("r", chunk_id, "op/m-1", "failed again")
    assert isinstance(world.ledger.start_chunk("r", chunk_id, recovery="op/m-1"), Skipped)
    assert world.ledger.chunk("r", chunk_id).error == "failed again"
    assert world.ledger.allow_recovery({("r", chunk_id): "op/m-1"}, "op") == set(), "not again in this operation"
    assert world.ledger.allow_recovery({("r", chunk_id): "op2/m-1"}, "op2") == {("r", chunk_id)}


def test_several_records_of_one_chunk_send_it_once(world: World) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    for receipt in range(1, 8):
        archive(world, chunk_message("r", chunk_id), f"m-{receipt}", date=f"2026-03-0{receipt}")
    world.set(recovery_window=2)
    assert counts(recover(world)) == (7, 1, 6, 0, 0)
    assert len(sent(world)) == 1
    assert world.records() == {}


def test_what_is_done_is_deleted_and_what_cannot_be_is_moved_with_the_reason(world: World) -> None:
    first, _ = world.run("r", 2)
    world.ledger.complete_chunk("r", first, output_key="o", duration_ms=1)
    archive(world, chunk_message("r", first), "done-1")
    archive(world, "garbage", "garbage-1")
    archive(world, chunk_message("r", "chunk-9999999"), "unknown-1")
    world.deps.bucket.write("dead-letter-archive/sqs/2026-03-01/nothing-1.json", b"\xff no record")
    assert counts(recover(world)) == (4, 0, 1, 3, 0)
    assert sent(world) == []
    today = datetime.now(UTC).date().isoformat()
    folder = f"dead-letter-archive/failed-sqs/{today}/"
    pages = world.s3.list_objects_v2(Bucket=world.deps.bucket.name, Prefix="dead-letter-archive/")
    keys = {entry["Key"] for entry in pages["Contents"]}
    assert keys == {f"{folder}{name}-1.json" for name in ("garbage", "unknown", "nothing")}
    moved = json.loads(world.deps.bucket.read(f"{folder}unknown-1.json"))
    assert moved["error"] == "There is no chunk-9999999 of run r in the ledger."
    assert json.loads(world.deps.bucket.read(f"{folder}garbage-1.json"))["body"] == "garbage"
    assert world.deps.bucket.read(f"{folder}nothing-1.json") == b"\xff no record"


def test_records_that_failed_may_be_recovered_from_where_they_went(world: World) -> None:
    archive(world, chunk_message("late", "chunk-0000000"), "m-1")
    assert counts(recover(world)) == (1, 0, 0, 1, 0)
    again = recover(world, "op-2", prefix="dead-letter-archive/failed-sqs/")
    assert counts(again) == (1, 0, 0, 1, 0)
    assert len(world.records()) == 1, "moved onto itself, it is still there"
    failed_run(world, "late", 1)
    assert counts(recover(world, "op-3", prefix="dead-letter-archive/failed-sqs/")) == (1, 1, 0, 0, 0)
    assert world.records() == {}


def test_a_recovery_can_be_of_one_run_or_one_day_or_only_a_rehearsal(world: World) -> None:
    for run_id, date in (("a", "2026-03-01"), ("a", "2026-03-02"), ("b", "2026-03-01")):
        if world.ledger.get_run(run_id) is None:
            failed_run(world, run_id, 2)
        body = chunk_message(run_id, f"chunk-000000{int(date[-1]) - 1}")
        archive(world, body, f"{run_id}{date}-1", date=date, run_id=run_id)
    assert counts(recover(world, "dry", dry_run=True)) == (3, 3, 0, 0, 0)
    assert len(world.records()) == 3
    assert sent(world) == []
    assert counts(recover(world, "b", only_run="b")) == (3, 1, 0, 0, 2)
    assert counts(recover(world, "day", prefix="dead-letter-archive/sqs/2026-03-02/")) == (1, 1, 0, 0, 0)
    (left,) = world.records()
    assert left == "dead-letter-archive/sqs/2026-03-01/a2026-03-01-1.json"


def test_messages_without_a_chunk_go_back_as_they_came(world: World) -> None:
    split = RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m")
    body = Envelope.wrap(split, source="prismline/test", traceparent=None).to_json()
    archive(world, body, "m-1", source_queue="split")
    assert counts(recover(world)) == (1, 1, 0, 0, 0)
    assert sent(world, "split") == [json.loads(body)]


def test_a_request_that_comes_again_does_nothing_but_say_so(world: World) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m-1")
    first = recover(world)
    archive(world, chunk_message("r", chunk_id), "m-2")
    assert recover(world) == first
    assert len(world.records()) == 1
    assert len({event["id"] for event in world.events("deadletters.recovered")}) == 1


def test_of_two_at_once_one_waits_until_the_others_lease_is_over(world: World) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    table, dynamodb = world.deps.settings.runs_table, world.deps.operations._dynamodb
    operations = Operations(dynamodb, table, clock=lambda: now[0])
    request = DeadlettersRecover(operation_id="op", requested_at=timestamp())
    lease = timedelta(seconds=60)
    first = operations.claim(request, "a", lease)
    with pytest.raises(LeaseLostError) as waiting:
        operations.claim(request, "b", lease)
    assert waiting.value.retry_after == 61
    now[0] += timedelta(seconds=61)
    operations.claim(request, "b", lease)
    with pytest.raises(LeaseLostError):
        operations.finish(first)


def test_an_invocation_that_runs_out_of_time_hands_the_rest_on(world: World) -> None:
    for chunk_id in failed_run(world, "r", 5):
        archive(world, chunk_message("r", chunk_id), f"{chunk_id}-1")
    world.set(recovery_window=2, deadline_margin_seconds=900.0)
    ask(world, "op-1")
    assert world.handle("recoveries") == []
    assert world.depth("recoveries") == 1
    world.set(deadline_margin_seconds=60.0)
    assert world.handle("recoveries") == []
    assert world.depth("recoveries") == 0
    assert len(sent(world)) == 5


class Process:
    """The recovery as a process of its own, with faults."""

    def __init__(self, world: World, folder: Path) -> None:
        self._faults = folder / "faults.json"
        self._environment = os.environ | {
            "PRISMLINE_FAULTS_FILE": str(self._faults),
            "PRISMLINE_WAIT_SECONDS": "1",
            "PRISMLINE_VISIBILITY_SECONDS": "2",
            "RECOVERY_LEASE_SECONDS": "2",
            "RECOVERY_WINDOW": str(world.deps.settings.recovery_window),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._world = world
        self._log = (folder / "log").open("wb")

    def until(self, ended: Any, *, kill_at: str | None = None) -> int:
        """Run until it kills itself at a fault point or `ended()` holds; its exit code."""
        rules = [{"point": kill_at, "action": "kill"}] if kill_at else []
        self._faults.write_text(json.dumps(rules))
        command = [sys.executable, "-m", "prismline_runtime", "--queue", "recoveries", "--batch-size", "1"]
        child = subprocess.Popen(
            [*command, "prismline_dlq_consumer.handler:handler"],
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + PATIENCE
        try:
            while child.poll() is None and not ended():
                assert time.monotonic() < deadline, "the recovery took too long"
                time.sleep(0.05)
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
        return child.wait()


def _check_killed_recovery(world: World, folder: Path, n_records: int, kills: list[str]) -> Counter[str]:
    """Recover `n_records`, with `kills` on the way; how often each chunk was sent."""
    chunk_ids = world.run("r", n_records)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: archive(world, chunk_message("r", each), f"{each}-1"), chunk_ids))
    ask(world, "op-1")
    process = Process(world, folder)

    def progress(least: int) -> Any:
        def reached() -> bool:
            operation = world.deps.operations.get("op-1")
            return operation is not None and (operation.status == "COMPLETED" or operation.n_records >= least)

        return reached

    for number, kill in enumerate(kills, 1):
        assert process.until(progress(n_records * number // (len(kills) + 1))) == -signal.SIGKILL
        assert process.until(lambda: False, kill_at=kill) == -signal.SIGKILL
    process.until(lambda: (op := world.deps.operations.get("op-1")) is not None and op.status == "COMPLETED")
    operation = world.deps.operations.get("op-1")
    assert operation is not None
    assert counts(operation) == (n_records, n_records, 0, 0, 0), "every record is counted once"
    assert world.records() == {}
    with ThreadPoolExecutor(8) as pool:
        messages = [message for part in pool.map(lambda _: sent(world), range(8)) for message in part]
    assert {message["data"]["chunk_id"] for message in messages} == set(chunk_ids), "none is lost"
    by_chunk: dict[str, set[tuple[str, str]]] = {}
    for message in messages:
        by_chunk.setdefault(message["data"]["chunk_id"], set()).add((message["id"], message["data"]["recovery"]))
    assert all(len(copies) == 1 for copies in by_chunk.values()), "a copy is the same message with the same token"
    return Counter(message["data"]["chunk_id"] for message in messages)


@pytest.mark.parametrize("kill_at", ["recovery.sent", "recovery.counted"])
def test_a_recovery_that_is_killed_goes_on_where_it_was(world: World, tmp_path: Path, kill_at: str) -> None:
    world.set(recovery_window=20)
    times_sent = _check_killed_recovery(world, tmp_path, 100, [kill_at])
    copies = {chunk_id: times for chunk_id, times in times_sent.items() if times > 1}
    if kill_at == "recovery.counted":
        assert not copies or max(copies.values()) == 2  # the first kill may have hit between sending and counting
    assert len(copies) <= 2 * 20, "at most the window that was under way is sent again"


def test_a_copy_of_a_recovered_message_completes_nothing_twice(world: World) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m-1")
    recover(world)
    (message,) = sent(world)
    for copy in (1, 2):
        started = world.ledger.start_chunk("r", chunk_id, recovery=message["data"]["recovery"])
        assert isinstance(started, Started) == (copy == 1)
        if isinstance(started, Started):
            assert world.ledger.complete_chunk("r", chunk_id, output_key="o", duration_ms=1).changed
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.COMPLETED
    assert (world.item("r").jobs_completed, world.item("r").jobs_failed) == (1, 0)


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_thousands_of_records_survive_two_kills(world: World, tmp_path: Path) -> None:
    n_records = int(os.environ.get("PRISMLINE_TEST_RECORDS", "1000"))
    times_sent = _check_killed_recovery(world, tmp_path, n_records, ["recovery.sent"])
    assert len(times_sent) == n_records
    assert times_sent.total() - n_records <= 2 * world.deps.settings.recovery_window
