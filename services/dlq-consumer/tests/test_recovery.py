"""A recovery sends back every archived message that it can. Nothing is lost or done twice, wherever it dies."""

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

import boto3
import pytest
from dlq_world import DlqConsumerWorld, chunk_message

from prismline_contracts.base import timestamp
from prismline_contracts.commands import RunSplit, SpectraRefit
from prismline_contracts.deadletters import DeadLetterRecord, DeadlettersRecover, RecoveryOperationItem
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunDrained
from prismline_contracts.items import ChunkStatus
from prismline_contracts.manifest import RefitParams
from prismline_ledger import LeaseLostError, Operations, Outcome

pytestmark = pytest.mark.emulator

#: Longest time, seconds, that a recovery is waited for.
PATIENCE = 600.0


def archive(world: DlqConsumerWorld, body: str, message_id: str, *, date: str = "2026-03-01", **fields: Any) -> str:
    """Put a record into the archive as the consumer does. Returns its key."""
    key = f"dead-letter-archive/sqs/{date}/{message_id}.json"
    fields = {"source_queue": "chunks", "archived_at": f"{date}T12:00:00.000Z"} | fields
    world.bucket.write(key, json.dumps(dict(DeadLetterRecord(body=body, messageId=message_id, **fields))).encode())
    return key


def failed_folder() -> str:
    """Where a record goes that fails now. The date is today's, which changes while tests run."""
    return f"dead-letter-archive/failed-sqs/{datetime.now(UTC).date().isoformat()}/"


def failed_run(world: DlqConsumerWorld, run_id: str, n_chunks: int) -> list[str]:
    """Make a drained run in which every chunk FAILED."""
    chunk_ids = world.run(run_id, n_chunks)
    for chunk_id in chunk_ids:
        world.fail(run_id, chunk_id)
    return chunk_ids


def ask(world: DlqConsumerWorld, operation_id: str = "op-1", **fields: Any) -> None:
    request = DeadlettersRecover(operation_id=operation_id, requested_at=timestamp(), **fields)
    message = Envelope.wrap(request, source="prismline/test", traceparent=None, key=(operation_id,))
    world.send("recoveries", message.to_json())


def go_on(world: DlqConsumerWorld, operation_id: str = "op-1") -> RecoveryOperationItem:
    """Let the recovery do all that it can at the moment."""
    assert world.handle("recoveries") == []
    return operation(world, operation_id)


def operation(world: DlqConsumerWorld, operation_id: str = "op-1") -> RecoveryOperationItem:
    found = world.deps.operations.get(operation_id)
    assert found is not None
    return found


def begin(world: DlqConsumerWorld, operation_id: str = "op-1", **fields: Any) -> RecoveryOperationItem:
    """Ask for a recovery and let it send what there is."""
    ask(world, operation_id, **fields)
    return go_on(world, operation_id)


def work(world: DlqConsumerWorld) -> list[dict[str, Any]]:
    """Let a worker complete every chunk whose message is in the queue. Returns the messages."""
    messages = world.taken("chunks")
    for message in messages:
        if not world.ledger.chunk(message["data"]["run_id"], message["data"]["chunk_id"]).state.terminal:
            world.complete(message["data"]["run_id"], message["data"]["chunk_id"])
    return messages


def recover(world: DlqConsumerWorld, operation_id: str = "op-1", **fields: Any) -> RecoveryOperationItem:
    """Run a recovery to its end, with a worker that completes every chunk that it receives."""
    done = begin(world, operation_id, **fields)
    while done.status != "COMPLETED":
        work(world)
        done = go_on(world, operation_id)
    assert world.depth("recoveries") == 0
    return done


def counts(found: RecoveryOperationItem) -> dict[str, int]:
    """The numbers that are not 0."""
    names = ("records", "sent", "settled", "failed", "left", "recovered")
    return {name: value for name in names if (value := getattr(found, f"n_{name}"))}


def test_a_failed_chunk_is_tried_again_and_its_recovery_is_over_when_it_is_done(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id, attempt=6), "m", archived_at="2026-03-01T12:00:00.000Z")
    waiting = begin(world)
    assert (waiting.status, counts(waiting)) == ("RUNNING", {"records": 1, "sent": 1})
    chunk, run = world.ledger.chunk("r", chunk_id), world.item("r")
    assert (chunk.state, chunk.recovery) == (ChunkStatus.PENDING, "op-1")
    assert (run.chunks_failed, run.drained_at) == (0, None)
    assert set(world.records()) == {f"dead-letter-archive/recovering/op-1/r/{chunk_id}.json"}
    assert not world.events("deadletters.recovered")
    (message,) = work(world)
    assert (message["data"]["attempt"], message["data"]["recovery"]) == (1, "op-1")
    done = go_on(world)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 1, "sent": 1, "recovered": 1})
    assert world.records() == {}
    assert world.depth("recoveries") == 0
    (event,) = world.events("deadletters.recovered")
    assert (event["data"]["n_sent"], event["data"]["n_recovered"]) == (1, 1)
    run = world.item("r")
    assert (run.chunks_completed, run.chunks_failed, run.drains) == (1, 0, 2)


def test_a_chunk_that_fails_again_is_kept_in_the_failed_records_with_the_new_error(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    begin(world)
    world.fail("r", chunk_id, "failed again")
    done = go_on(world)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 1, "sent": 1, "failed": 1})
    ((key, record),) = world.records().items()
    assert key == f"{failed_folder()}m.json"
    assert (record["error"], record["recovery"]) == ("failed again", "op-1")


def test_a_message_of_a_recovery_that_is_a_dead_letter_again_is_judged_like_any_other(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    begin(world)
    for _ in range(5):
        assert world.receive("chunks", visibility=0) is not None
    assert world.receive("chunks", visibility=0) is None, "SQS has moved it"
    assert world.handle("chunks-dlq") == []
    (message,) = work(world)
    assert (message["data"]["recovery"], message["data"]["attempt"]) == ("op-1", 2)
    assert go_on(world).n_recovered == 1
    assert len(world.events("deadletters.recovered")) == 1


def test_a_recovery_waits_for_longer_each_time(world: DlqConsumerWorld) -> None:
    world.set(resend_seconds=15)
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    ask(world)
    for round_ in range(1, 4):
        assert go_on(world).rounds == round_
        world.taken("recoveries")
        ask(world)  # instead of what is held back
    to_recoveries = [
        call["Entries"][0]["DelaySeconds"]
        for call in world.clients["sqs"].calls("send_message_batch")
        if call["QueueUrl"] == world.urls["recoveries"]
    ]
    assert to_recoveries == [15, 30, 60]
    assert world.delays().count(0) == 1, "and sends each message once"


def test_several_records_of_one_chunk_send_it_once(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    for receipt in range(1, 8):
        archive(world, chunk_message("r", chunk_id), f"m-{receipt}", date=f"2026-03-0{receipt}")
    world.set(recovery_window=2)
    assert counts(recover(world)) == {"records": 7, "sent": 1, "settled": 6, "recovered": 1}
    assert world.records() == {}


def test_several_records_of_one_message_send_it_once(world: DlqConsumerWorld) -> None:
    """During an outage a message becomes a dead letter again and again, each time with a record of its own."""

    def split(run_id: str) -> str:
        command = RunSplit(run_id=run_id, job_id="j", bucket="b", manifest_key="m")
        return Envelope.wrap(command, source="prismline/test", traceparent=None).to_json()

    again, other = split("r"), split("s")
    for receipt in range(1, 6):
        archive(world, again, f"m-{receipt}", source_queue="split")
    archive(world, other, "other", source_queue="split")
    world.set(recovery_window=2)
    rehearsal = begin(world, "dry", dry_run=True)
    assert counts(rehearsal) == {"records": 6, "sent": 2, "settled": 4}
    assert counts(begin(world)) == counts(rehearsal)
    sent = sorted(world.taken("split"), key=lambda message: message["data"]["run_id"])
    assert sent == [json.loads(again), json.loads(other)]
    assert world.records() == {}


def test_a_chunk_that_has_not_ended_is_sent_once_more(world: DlqConsumerWorld) -> None:
    """Its message was lost, or is under way."""
    (chunk_id,) = world.run("r")
    archive(world, chunk_message("r", chunk_id), "m")
    assert counts(recover(world)) == {"records": 1, "sent": 1, "recovered": 1}


def test_records_of_finished_work_are_deleted_and_invalid_ones_moved_with_the_reason(world: DlqConsumerWorld) -> None:
    first, _ = world.run("r", 2)
    world.complete("r", first)
    archive(world, chunk_message("r", first), "done")
    archive(world, "garbage", "garbage")
    archive(world, chunk_message("r", "chunk-9999999"), "unknown")
    archive(world, chunk_message("r", first), "queue", source_queue="nonesuch")
    world.bucket.write("dead-letter-archive/sqs/2026-03-01/nothing.json", b"\xff no record")
    assert counts(recover(world)) == {"records": 5, "settled": 1, "failed": 4}
    assert world.depth("chunks") == 0
    pages = world.s3.list_objects_v2(Bucket=world.bucket.name, Prefix="dead-letter-archive/")
    keys = {entry["Key"] for entry in pages["Contents"]}
    assert keys == {f"{failed_folder()}{name}.json" for name in ("garbage", "unknown", "queue", "nothing")}
    moved = json.loads(world.bucket.read(f"{failed_folder()}unknown.json"))
    assert moved["error"] == "There is no chunk-9999999 of run r in the ledger."
    assert json.loads(world.bucket.read(f"{failed_folder()}garbage.json"))["body"] == "garbage"
    assert world.bucket.read(f"{failed_folder()}nothing.json") == b"\xff no record"


def test_records_of_two_runs_that_fail_again_are_both_kept(world: DlqConsumerWorld) -> None:
    for run_id in ("a", "b"):
        (chunk_id,) = failed_run(world, run_id, 1)
        archive(world, chunk_message(run_id, chunk_id), f"m-{run_id}")
    begin(world)
    for run_id in ("a", "b"):
        world.fail(run_id, chunk_id, "again")
    assert go_on(world).n_failed == 2
    assert set(world.records()) == {f"{failed_folder()}m-a.json", f"{failed_folder()}m-b.json"}


def test_records_that_failed_may_be_recovered_from_where_they_went(world: DlqConsumerWorld) -> None:
    archive(world, chunk_message("late", "chunk-0000000"), "m")
    assert counts(recover(world)) == {"records": 1, "failed": 1}
    again = recover(world, "op-2", prefix="dead-letter-archive/failed-sqs/")
    assert counts(again) == {"records": 1, "failed": 1}
    assert len(world.records()) == 1, "moved onto itself, it is still there"
    failed_run(world, "late", 1)
    done = recover(world, "op-3", prefix="dead-letter-archive/failed-sqs/")
    assert counts(done) == {"records": 1, "sent": 1, "recovered": 1}
    assert world.records() == {}


def test_a_recovery_can_be_limited_to_one_run_or_one_day(world: DlqConsumerWorld) -> None:
    for run_id, date in (("a", "2026-03-01"), ("a", "2026-03-02"), ("b", "2026-03-01")):
        if world.ledger.get_run(run_id) is None:
            failed_run(world, run_id, 2)
        body = chunk_message(run_id, f"chunk-000000{int(date[-1]) - 1}")
        archive(world, body, f"{run_id}{date}", date=date, run_id=run_id)
    assert counts(recover(world, "b", only_run="b")) == {"records": 3, "sent": 1, "left": 2, "recovered": 1}
    day = recover(world, "day", prefix="dead-letter-archive/sqs/2026-03-02/")
    assert counts(day) == {"records": 1, "sent": 1, "recovered": 1}
    (left,) = world.records()
    assert left == "dead-letter-archive/sqs/2026-03-01/a2026-03-01.json"


@pytest.mark.parametrize("window", [2, 200])
def test_a_rehearsal_predicts_what_a_recovery_does_and_does_nothing(world: DlqConsumerWorld, window: int) -> None:
    world.set(recovery_window=window)
    failed, done, open_ = world.run("r", 3)
    world.fail("r", failed)
    world.complete("r", done)
    for number, chunk_id in enumerate([failed, failed, done, open_]):
        archive(
            world, chunk_message("r", chunk_id), f"m-{number}", messageAttributes={"waits_for": {"stringValue": "gpu"}}
        )
    archive(world, "garbage", "garbage")
    archive(
        world,
        Envelope.wrap(
            RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m"), source="prismline/test", traceparent=None
        ).to_json(),
        "split",
        source_queue="split",
    )
    world.run("c")
    world.ledger.stop_run("c", "cancelled")
    archive(world, chunk_message("c", "chunk-0000000"), "cancelled")
    before = world.records()
    rehearsal = begin(world, "dry", dry_run=True)
    assert (rehearsal.status, world.records(), world.depth("chunks")) == ("COMPLETED", before, 0)
    assert world.ledger.chunk("r", failed).state is ChunkStatus.FAILED
    real = counts(recover(world))
    assert counts(rehearsal) == {name: value for name, value in real.items() if name != "recovered"}
    assert counts(rehearsal) == {"records": 7, "sent": 3, "settled": 2, "failed": 1, "left": 1}


def test_messages_without_a_chunk_go_back_as_they_came(world: DlqConsumerWorld) -> None:
    split = RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m")
    body = Envelope.wrap(split, source="prismline/test", traceparent=None).to_json()
    archive(world, body, "m-1", source_queue="split")
    event = RunDrained(
        run_id="r", chunks_total=1, chunks_completed=1, chunks_failed=0, failed_percent=0.0, drained_at=timestamp()
    )
    envelope = json.loads(Envelope.wrap(event, source="prismline/test", traceparent=None).to_json())
    archive(world, json.dumps({"detail-type": "x", "detail": envelope}), "m-2", source_queue="runs")
    done = begin(world)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 2, "sent": 2}), "nothing has to be waited for"
    assert world.taken("split") == [json.loads(body)]
    assert world.taken("runs") == [envelope], "without what EventBridge had wrapped it in"
    assert world.records() == {}


def test_a_run_that_was_stopped_because_it_had_failed_goes_on(world: DlqConsumerWorld) -> None:
    failed, skipped = world.run("r", 2)
    world.fail("r", failed)
    world.ledger.stop_run("r", "failed")
    archive(world, chunk_message("r", failed), "m")
    begin(world)
    run = world.item("r")
    assert (run.cancelled_at, run.stop_reason, run.GSI2_PK) == (None, None, "OPEN")
    assert world.ledger.chunk("r", skipped).state is ChunkStatus.PENDING, "the sweeper sends it"
    work(world)
    assert go_on(world).n_recovered == 1


def test_a_refit_of_a_run_that_was_stopped_because_it_had_failed_goes_on(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.ledger.stop_run("r", "failed")
    world.complete("r", chunk_id, n_timed_out=1)
    command = SpectraRefit(
        run_id="r", survey="s", chunk_id=chunk_id, bucket="b", chunk_key="k", output_key="o", params=RefitParams()
    )
    body = Envelope.wrap(command, source="prismline/test", traceparent=None).to_json()
    archive(world, body, "m", source_queue="refits")
    assert begin(world).status == "COMPLETED"
    assert world.item("r").cancelled_at is None, "else the slow lane would skip it"
    assert world.depth("refits") == 1


def test_the_records_of_a_run_that_somebody_cancelled_stay_where_they_are(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.ledger.stop_run("r", "cancelled")
    key = archive(world, chunk_message("r", chunk_id), "m")
    assert counts(recover(world)) == {"records": 1, "left": 1}
    assert set(world.records()) == {key}


def test_a_run_that_is_cancelled_while_it_is_recovered_is_not_waited_for(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    key = archive(world, chunk_message("r", chunk_id), "m")
    begin(world)
    world.ledger.stop_run("r", "cancelled")
    done = go_on(world)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 1, "sent": 1, "left": 1})
    assert set(world.records()) == {key}


def test_a_recovery_does_not_take_what_another_one_works_on(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    begin(world)
    world.taken("recoveries")
    assert counts(recover(world, "op-2", prefix="dead-letter-archive/")) == {}
    assert counts(operation(world)) == {"records": 1, "sent": 1}


def test_two_recoveries_of_a_chunk_that_fails_each_time_both_end(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    for operation_id in ("op-1", "op-2"):
        archive(world, chunk_message("r", chunk_id), f"m-{operation_id}")
        begin(world, operation_id)
        world.taken("recoveries")
    for operation_id in ("op-1", "op-2", "op-1"):
        if world.ledger.chunk("r", chunk_id).state is not ChunkStatus.FAILED:
            world.fail("r", chunk_id, "again")
        ask(world, operation_id)
        go_on(world, operation_id)
    assert {operation(world, name).status for name in ("op-1", "op-2")} == {"COMPLETED"}
    assert set(world.records()) == {f"{failed_folder()}m-op-{n}.json" for n in (1, 2)}


def test_a_chunk_that_ends_while_it_is_reopened_is_not_sent(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    dynamodb, other = world.clients["dynamodb"], boto3.client("dynamodb")

    def late_success(**arguments: Any) -> Any:
        dynamodb.answer("transact_write_items", other.transact_write_items)
        world.ledger.complete_chunk(world.ledger.chunk("r", chunk_id), Outcome("o"), duration_ms=1)
        return other.transact_write_items(**arguments)

    dynamodb.answer("transact_write_items", late_success)
    begin(world)
    assert world.depth("chunks") == 0
    assert go_on(world).status == "COMPLETED"
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.COMPLETED


def test_a_repeated_request_only_announces_the_recovery_again(world: DlqConsumerWorld) -> None:
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m-1")
    first = recover(world)
    archive(world, chunk_message("r", chunk_id), "m-2")
    assert recover(world) == first
    assert len(world.records()) == 1
    assert len({event["id"] for event in world.events("deadletters.recovered")}) == 1


def test_a_recovery_goes_on_after_an_outage_of_any_length(world: DlqConsumerWorld) -> None:
    """Its command becomes a dead letter and is sent back. Its age counts from the recovery's last round."""
    (chunk_id,) = failed_run(world, "r", 1)
    archive(world, chunk_message("r", chunk_id), "m")
    request = DeadlettersRecover(operation_id="op-1", requested_at=timestamp())
    message = Envelope.wrap(request, source="prismline/test", traceparent=None)
    old = message.model_copy(update={"time": timestamp(datetime.now(UTC) - timedelta(days=5))})
    world.send("recoveries", old.to_json())
    go_on(world)
    for _ in range(5):
        assert world.receive("recoveries", visibility=0) is not None
    assert world.receive("recoveries", visibility=0) is None, "SQS has moved it"
    assert world.handle("recoveries-dlq") == []
    work(world)
    assert go_on(world).status == "COMPLETED"


def test_the_second_of_two_processes_waits_until_the_lease_of_the_first_is_over(world: DlqConsumerWorld) -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    operations = Operations(boto3.client("dynamodb"), world.deps.settings.runs_table, clock=lambda: now[0])
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


def test_an_invocation_that_runs_out_of_time_hands_the_rest_on(world: DlqConsumerWorld) -> None:
    world.set(resend_seconds=15)
    for chunk_id in failed_run(world, "r", 5):
        archive(world, chunk_message("r", chunk_id), chunk_id)
    world.set(recovery_window=2, deadline_margin_seconds=900.0)
    ask(world)
    assert world.handle("recoveries") == []
    assert world.depth("recoveries") == 1
    world.set(deadline_margin_seconds=60.0)
    assert world.handle("recoveries") == [], "it was not held back"
    assert len(world.taken("chunks")) == 5


class Process:
    """The recovery as a process of its own, with faults."""

    def __init__(self, world: DlqConsumerWorld, folder: Path) -> None:
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
        """Run until it kills itself at a fault point or `ended()` is true. Returns the exit code."""
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


def _check_killed_recovery(world: DlqConsumerWorld, folder: Path, n_records: int, kills: list[str]) -> Counter[str]:
    """Recover `n_records`, with `kills` on the way. Returns how often each chunk was sent."""
    chunk_ids = failed_run(world, "r", n_records) if n_records <= 100 else world.run("r", n_records)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: archive(world, chunk_message("r", each), f"m-{each}"), chunk_ids))
    ask(world)
    process = Process(world, folder)

    def progress(least: int) -> Any:
        def reached() -> bool:
            found = world.deps.operations.get("op-1")
            return found is not None and found.n_sent >= least

        return reached

    for kill in kills:
        assert process.until(lambda: False, kill_at=kill) == -signal.SIGKILL
    process.until(progress(n_records))
    with ThreadPoolExecutor(8) as pool:
        messages = [message for part in pool.map(lambda _: world.taken("chunks"), range(8)) for message in part]
        list(pool.map(lambda each: world.complete("r", each), chunk_ids))
    process.until(lambda: operation(world).status == "COMPLETED")
    expected = {"records": n_records, "sent": n_records, "recovered": n_records}
    assert counts(operation(world)) == expected, "every record is counted once"
    assert world.records() == {}
    assert {message["data"]["chunk_id"] for message in messages} == set(chunk_ids), "none is lost"
    ids: dict[str, set[str]] = {}
    for message in messages:
        ids.setdefault(message["data"]["chunk_id"], set()).add(message["id"])
    assert all(len(copies) == 1 for copies in ids.values()), "a copy is the same message"
    run = world.item("r")
    assert (run.chunks_completed, run.chunks_failed) == (n_records, 0)
    return Counter(message["data"]["chunk_id"] for message in messages)


@pytest.mark.parametrize("kill_at", ["recovery.taken", "recovery.sent", "recovery.counted"])
def test_a_recovery_that_is_killed_goes_on_where_it_was(world: DlqConsumerWorld, tmp_path: Path, kill_at: str) -> None:
    world.set(recovery_window=10)
    times_sent = _check_killed_recovery(world, tmp_path, 30, [kill_at])
    copies = {chunk_id: times for chunk_id, times in times_sent.items() if times > 1}
    assert len(copies) <= 10 * (kill_at == "recovery.sent"), "at most the window that was under way is sent again"


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_many_records_survive_two_kills(world: DlqConsumerWorld, tmp_path: Path) -> None:
    n_records = int(os.environ.get("PRISMLINE_TEST_RECORDS", "120"))
    world.set(recovery_window=20)
    times_sent = _check_killed_recovery(world, tmp_path, n_records, ["recovery.taken", "recovery.sent"])
    assert len(times_sent) == n_records
    assert times_sent.total() - n_records <= 2 * world.deps.settings.recovery_window


# ---- a retry: from the ledger, not from the archive


def test_chunks_that_failed_are_tried_again_although_the_archive_has_no_record_of_them(world: DlqConsumerWorld) -> None:
    world.run("r", 3)
    world.complete("r", "chunk-0000000")
    for n in (1, 2):
        world.fail("r", f"chunk-{n:07d}", "broken")
    rehearsal = begin(world, "dry", only_run="r", retry=True, dry_run=True)
    assert (rehearsal.status, counts(rehearsal), world.records()) == ("COMPLETED", {"records": 2, "sent": 2}, {})
    waiting = begin(world, only_run="r", retry=True)
    assert counts(waiting) == {"records": 2, "sent": 2}
    assert (world.item("r").chunks_failed, world.item("r").drained_at) == (0, None)
    assert {message["data"]["chunk_id"] for message in work(world)} == {"chunk-0000001", "chunk-0000002"}
    done = go_on(world)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 2, "sent": 2, "recovered": 2})
    assert (world.item("r").chunks_completed, world.records()) == (3, {})


def test_only_the_named_records_are_sent_back_and_only_those_of_the_run(world: DlqConsumerWorld) -> None:
    world.set(recovery_window=2)
    keys = [archive(world, chunk_message("r", chunk), f"m-{chunk}", run_id="r") for chunk in failed_run(world, "r", 5)]
    (other,) = failed_run(world, "s", 1)
    others = archive(world, chunk_message("s", other), "m-other", run_id="s")
    named = [keys[4], keys[0], keys[2], others, keys[0], f"{keys[1]}.gone"]
    done = recover(world, only_run="r", record_keys=named)
    assert counts(done) == {"records": 4, "sent": 3, "left": 1, "recovered": 3}
    assert set(world.records()) == {keys[1], keys[3], others}


def test_only_the_named_chunks_are_tried_again_and_only_if_they_failed(world: DlqConsumerWorld) -> None:
    world.run("r", 4)
    world.complete("r", "chunk-0000000")
    for n in (1, 2):
        world.fail("r", f"chunk-{n:07d}")
    named = ["chunk-0000000", "chunk-0000001", "chunk-0000003"]
    done = recover(world, only_run="r", retry=True, chunk_ids=named)
    assert counts(done) == {"records": 3, "sent": 1, "settled": 1, "left": 1, "recovered": 1}
    assert world.ledger.chunk("r", "chunk-0000002").state is ChunkStatus.FAILED
    assert world.ledger.chunk("r", "chunk-0000003").state is ChunkStatus.PENDING


def test_a_retry_in_small_windows_takes_each_chunk_once(world: DlqConsumerWorld) -> None:
    world.set(recovery_window=2)
    failed_run(world, "r", 5)
    assert counts(recover(world, only_run="r", retry=True)) == {"records": 5, "sent": 5, "recovered": 5}


def test_a_retry_leaves_a_cancelled_run_alone_and_has_a_failed_one_go_on(world: DlqConsumerWorld) -> None:
    for run_id, reason in (("c", "cancelled"), ("f", "failed")):
        world.run(run_id, 2)
        world.fail(run_id, "chunk-0000000")
        world.ledger.stop_run(run_id, reason)
    assert counts(begin(world, "op-c", only_run="c", retry=True)) == {"records": 1, "left": 1}
    assert world.item("c").cancelled_at is not None
    begin(world, "op-f", only_run="f", retry=True)
    assert world.item("f").cancelled_at is None
    assert [message["data"]["chunk_id"] for message in work(world)] == ["chunk-0000000"]


def cancelled_run(world: DlqConsumerWorld, *, over: bool = True) -> str:
    """Make a run of three chunks, one of them COMPLETED, that a person cancelled. Returns its `cancelled_at`."""
    chunk_ids = world.run("c", 3)
    world.complete("c", chunk_ids[0])
    world.ledger.stop_run("c", "cancelled")
    if over:
        assert world.ledger.record_end(world.item("c"), "cancelled")
    return world.item("c").cancelled_at or ""


def test_a_cancelled_run_continues_if_a_person_asks_for_it(world: DlqConsumerWorld) -> None:
    stopped = cancelled_run(world)
    rehearsal = begin(world, "dry", only_run="c", retry=True, cancelled_at=stopped, dry_run=True)
    assert (rehearsal.status, counts(rehearsal)) == ("COMPLETED", {"records": 2, "sent": 2})
    assert world.item("c").cancelled_at == stopped
    done = begin(world, only_run="c", retry=True, cancelled_at=stopped)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 2, "sent": 2})
    assert world.item("c").goes_on_after_cancel
    events = [event["data"]["operation_id"] for event in world.events("deadletters.recovered")]
    assert sorted(events) == ["dry", "op-1"]


def test_a_continuation_waits_until_the_cancellation_is_announced(world: DlqConsumerWorld) -> None:
    stopped = cancelled_run(world, over=False)
    ask(world, only_run="c", retry=True, cancelled_at=stopped)
    assert world.handle("recoveries", visibility=0) != []
    assert world.item("c").cancelled_at == stopped
    assert world.ledger.record_end(world.item("c"), "cancelled")
    assert begin(world, only_run="c", retry=True, cancelled_at=stopped).status == "COMPLETED"
    assert world.item("c").goes_on_after_cancel


def test_a_repeated_continuation_does_not_undo_a_later_cancellation(world: DlqConsumerWorld) -> None:
    stopped = cancelled_run(world)
    begin(world, only_run="c", retry=True, cancelled_at=stopped)
    world.ledger.stop_run("c", "cancelled", uncancelled_at=world.item("c").uncancelled_at)
    assert world.ledger.record_end(world.item("c"), "cancelled")
    for operation_id in ("op-1", "op-2"):
        assert begin(world, operation_id, only_run="c", retry=True, cancelled_at=stopped).status == "COMPLETED"
    assert world.item("c").stop_reason == "cancelled"


def die_before_the_commit(world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recovery die before it records its progress. The next one does not wait for its lease."""

    def die(*_: Any, **__: Any) -> RecoveryOperationItem:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Operations, "commit", die)
        with pytest.raises(SystemExit):
            world.handle("recoveries")
    monkeypatch.setattr(Operations, "claim", _claim_at_once(Operations.claim))


def test_a_continuation_whose_recovery_dies_after_the_run_was_resumed_is_counted_once(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = cancelled_run(world)
    ask(world, only_run="c", retry=True, cancelled_at=stopped)
    die_before_the_commit(world, monkeypatch)
    done = begin(world, only_run="c", retry=True, cancelled_at=stopped)
    assert (done.status, counts(done)) == ("COMPLETED", {"records": 2, "sent": 2})


def test_a_chunk_that_fails_again_after_a_retry_is_kept_with_the_new_error(world: DlqConsumerWorld) -> None:
    failed_run(world, "r", 1)
    begin(world, only_run="r", retry=True)
    world.taken("chunks")
    world.fail("r", "chunk-0000000", "failed again")
    assert counts(go_on(world)) == {"records": 1, "sent": 1, "failed": 1}
    ((key, record),) = world.records().items()
    assert key.startswith(failed_folder())
    assert record["error"] == "failed again"
    assert recover(world, "op-2", only_run="r", retry=True).n_recovered == 1


def test_a_retry_that_dies_after_taking_is_not_counted_twice(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_run(world, "r", 2)
    ask(world, only_run="r", retry=True)
    die_before_the_commit(world, monkeypatch)
    ask(world, only_run="r", retry=True)
    waiting = go_on(world)
    assert counts(waiting) == {"records": 2, "sent": 2}
    assert len(work(world)) == 2


def _claim_at_once(claim: Any) -> Any:
    """`Operations.claim`, as if the lease of the dead process were over."""

    def after_the_lease(self: Operations, request: DeadlettersRecover, owner: str, lease: timedelta) -> Any:
        found = self.get(request.operation_id)
        if found is not None and found.status == "RUNNING":
            self.release(found)
        return claim(self, request, owner, lease)

    return after_the_lease
