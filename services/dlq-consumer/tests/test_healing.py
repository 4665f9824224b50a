"""Dead letters as they come, over real queues: archived, healed, put off or given up, and never lost."""

from __future__ import annotations

import gc
import io
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError
from dlq_world import World, chunk_message

from prismline_contracts import ChunkStatus, Envelope, RunSplit
from prismline_dlq_consumer.archive import Archive
from prismline_dlq_consumer.decisions import Resource
from prismline_runtime import Bucket, TransientError

pytestmark = pytest.mark.emulator


class Gpu:
    """A resource that the test switches."""

    def __init__(self, up: bool) -> None:
        self.up = up
        self.asked = 0

    def look_up(self, name: str) -> Resource:
        self.asked += 1
        return Resource(name, up=self.up)


def use_gpu(world: World, *, up: bool, deferral_seconds: int = 0) -> Gpu:
    gpu = Gpu(up)
    world.deps = replace(world.deps, resources=gpu)
    world.set(workload_resources={"spectra": "gpu"}, deferral_seconds=deferral_seconds)
    return gpu


class Failing:
    """A client one of whose operations fails."""

    def __init__(self, client: Any, operation: str, code: str, times: int = 10**6) -> None:
        self._client, self._operation, self._code, self._times = client, operation, code, times

    def __getattr__(self, name: str) -> Any:
        if name == self._operation and self._times > 0:
            return self._fail
        return getattr(self._client, name)

    def _fail(self, **_: Any) -> None:
        self._times -= 1
        raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, self._operation)


def test_a_message_goes_back_to_its_queue_with_its_attempt(world: World) -> None:
    (chunk_id,) = world.run("r")
    sent = chunk_message("r", chunk_id)
    world.send("chunks-dlq", sent)
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks-dlq") == 0
    event = world.receive("chunks")
    assert event is not None
    (record,) = event["Records"]
    assert json.loads(record["body"])["data"]["attempt"] == 2
    (archived,) = world.records().values()
    assert archived["body"] == sent
    (said,) = world.events("deadletter.archived")
    assert said["data"]["decision"] == "resend"
    assert said["data"]["key"] in world.records()


def test_garbage_is_archived_and_acknowledged(world: World) -> None:
    for body in ("\x7fELF", "[]", '{"specversion": "1.0"}', '{"a": 1}'):
        world.send("status-dlq", body)
    while world.handle("status-dlq") is not None:
        pass
    errors = {record["body"]: record["error"] for record in world.records().values()}
    assert set(errors) == {"\x7fELF", "[]", '{"specversion": "1.0"}', '{"a": 1}'}
    assert all(errors.values())
    assert world.depth("status") == world.depth("status-dlq") == 0


def test_a_chunk_whose_attempts_are_used_up_is_failed_with_its_last_error(world: World) -> None:
    (chunk_id,) = world.run("r")
    world.ledger.start_chunk("r", chunk_id)
    world.ledger.record_error("r", chunk_id, "S3 said 503.")
    world.send("chunks-dlq", chunk_message("r", chunk_id, attempt=6))
    assert world.handle("chunks-dlq") == []
    chunk = world.ledger.chunk("r", chunk_id)
    assert chunk.state is ChunkStatus.FAILED
    assert chunk.error == "S3 said 503. Given up after 1 attempts."
    assert (world.item("r").jobs_failed, world.item("r").drained_by) == (1, chunk_id)
    said = world.events("chunk.failed")
    assert [event["data"]["error"] for event in said] == [chunk.error]
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0


def test_the_last_chunk_that_is_given_up_drains_its_run_and_says_so(world: World) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id, attempt=6))
    world.handle("chunks-dlq")
    (drained,) = world.events("run.drained")
    assert drained["data"]["jobs_failed"] == 1


def test_a_message_waits_as_long_as_its_resource_is_down_and_uses_up_no_attempt(world: World) -> None:
    gpu = use_gpu(world, up=False)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    for outage in range(1, 9):
        left = world.handle("chunks-dlq")
        assert left is not None
        assert len(left) == 1
        assert world.ledger.chunk("r", chunk_id).deferrals == outage
    assert world.depth("chunks") == 0
    gpu.up = True
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.PENDING
    assert len(world.records()) == 9, "every receipt is in the archive"


def test_a_deferred_message_is_hidden_for_a_quarter_of_an_hour(world: World) -> None:
    use_gpu(world, up=False, deferral_seconds=900)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    calls = []
    sqs = world.deps.transport._sqs

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(sqs, name)

        def change_message_visibility(self, **arguments: Any) -> Any:
            calls.append(arguments["VisibilityTimeout"])
            return sqs.change_message_visibility(**arguments)

    world.deps.transport._sqs = Watching()  # type: ignore[assignment]
    assert len(world.handle("chunks-dlq") or []) == 1
    assert calls == [900]
    assert world.handle("chunks-dlq") is None


def test_a_batch_asks_for_its_resource_once(world: World) -> None:
    gpu = use_gpu(world, up=True)
    for chunk_id in world.run("r", 7):
        world.send("chunks-dlq", chunk_message("r", chunk_id))
    while world.handle("chunks-dlq") is not None:
        pass
    assert gpu.asked <= 7 // 2
    assert world.depth("chunks") == 7


def test_what_has_ended_or_was_cancelled_is_acknowledged(world: World) -> None:
    first, second = world.run("r", 2)
    world.ledger.complete_chunk("r", first, output_key="o", duration_ms=1)
    world.send("chunks-dlq", chunk_message("r", first))
    world.run("c")
    world.ledger.stop_run("c")
    world.send("chunks-dlq", chunk_message("c", "chunk-0000000"))
    world.send("chunks-dlq", chunk_message("r", "chunk-9999999"))
    while world.handle("chunks-dlq") is not None:
        pass
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0
    assert world.ledger.chunk("r", second).state is ChunkStatus.PENDING
    decisions = sorted(event["data"]["decision"] for event in world.events("deadletter.archived"))
    assert decisions == ["archive", "settle", "settle"]


def test_a_command_that_was_given_up_fails_the_task_that_waits_for_it(world: World) -> None:
    refused = []
    world.deps.transport.refuse = lambda *arguments: refused.append(arguments) or True  # type: ignore
    split = RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m")
    message = Envelope.wrap(split, source="prismline/test", traceparent=None, tasktoken="token")
    world.send("split-dlq", message.to_json(), attempt="6")
    assert world.handle("split-dlq") == []
    assert [arguments[0] for arguments in refused] == ["token"]


def test_nothing_is_acknowledged_while_the_archive_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    broken = Bucket(Failing(world.s3, "put_object", "ServiceUnavailable"), world.deps.bucket.name)  # type: ignore
    whole = world.deps
    world.deps = replace(whole, archive=Archive(broken))
    monkeypatch.setattr("prismline_dlq_consumer.healing.backoff_seconds", lambda _: 0)
    for _ in range(6):
        left = world.handle("chunks-dlq")
        assert left is not None
        assert len(left) == 1
        assert world.depth("chunks") == 0
    world.deps = whole
    _drain(world, "chunks-dlq")
    assert world.depth("chunks") == 1, "our own outage used up none of the chunk's attempts"
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.PENDING


def _drain(world: World, queue: str) -> None:
    while world.depth(queue):
        world.handle(queue)


def test_a_message_that_cannot_be_sent_back_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismline_runtime.transport.MAX_ATTEMPTS", 2)
    monkeypatch.setattr("prismline_runtime.transport.LAST_WAIT_SECONDS", 0.1)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    sqs = world.deps.transport._sqs
    world.deps.transport._sqs = Failing(sqs, "send_message_batch", "Throttling")  # type: ignore[assignment]
    assert len(world.handle("chunks-dlq") or []) == 1
    assert world.depth("chunks-dlq") == 1
    world.deps.transport._sqs = sqs
    _drain(world, "chunks-dlq")
    assert world.depth("chunks") == 1


def test_throttling_that_passes_is_sat_out(world: World) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    sqs = world.deps.transport._sqs
    world.deps.transport._sqs = Failing(sqs, "send_message_batch", "Throttling", times=2)  # type: ignore[assignment]
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1


def test_redrive_loops_are_impossible(world: World) -> None:
    """A chunk whose every attempt fails: all its deliveries, of both queues, are bounded."""
    (chunk_id,) = world.run("r")
    world.send("chunks", chunk_message("r", chunk_id))
    for _ in range(100):
        world.receive("chunks", visibility=0)  # the worker dies with it
        world.handle("chunks-dlq")
        if world.ledger.chunk("r", chunk_id).state.terminal:
            break
    chunk = world.ledger.chunk("r", chunk_id)
    assert chunk.state is ChunkStatus.FAILED
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0
    dispatches = world.deps.settings.max_attempts + 1
    assert world.delivered["chunks"] == dispatches * 5
    assert world.delivered["chunks-dlq"] == dispatches


def test_unexpected_errors_leave_the_message_too(world: World) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))

    def explode(*_: object) -> None:
        raise RuntimeError("a bug")

    archive = world.deps.archive
    world.deps = replace(world.deps, archive=replace_write(archive, explode))
    assert len(world.handle("chunks-dlq") or []) == 1
    assert world.depth("chunks-dlq") == 1


def replace_write(archive: Archive, write: Callable[..., None]) -> Any:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            return write if name == "write" else getattr(archive, name)

    return Broken()


def test_the_log_says_what_document_003_asks_for(world: World) -> None:
    written = io.StringIO()
    world.deps = replace(world.deps, logger=Logger(service="test-of-the-log", stream=written))
    gpu = use_gpu(world, up=False)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.handle("chunks-dlq")
    gpu.up = True
    world.send("chunks-dlq", chunk_message("r", chunk_id, attempt=6))
    _drain(world, "chunks-dlq")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    logs = {line.get("message"): line for line in lines}
    assert {"message_id", "receive_count", "chunk_id"} <= set(logs["dlq_received"])
    assert {"message_id", "extended_seconds"} <= set(logs["dlq_visibility_extended"])
    assert {"chunk_id", "receive_count"} <= set(logs["dlq_exhausted"])


def test_a_message_that_says_what_it_waits_for_is_not_given_up(world: World) -> None:
    gpu = use_gpu(world, up=False)
    world.set(workload_resources={})
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id), waits_for="gpu", source_queue="chunks")
    assert len(world.handle("chunks-dlq") or []) == 1, "it waits, although the settings name no resource"
    gpu.up = True
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1


def test_an_alert_that_could_not_be_posted_is_tried_again(world: World) -> None:
    notification = json.dumps({"Type": "Notification", "MessageId": "m", "Message": "{}"})
    world.send("alerts-dlq", notification)
    assert world.handle("alerts-dlq") == []
    event = world.receive("alerts")
    assert event is not None
    assert [record["body"] for record in event["Records"]] == [notification]


def test_errors_of_the_lookup_leave_the_message(world: World) -> None:
    (chunk_id,) = world.run("r")
    world.set(workload_resources={"spectra": "gpu"})

    class Unreachable:
        def look_up(self, name: str) -> Resource:
            raise TransientError(f"Could not look at {name}.")

    world.deps = replace(world.deps, resources=Unreachable())
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    assert len(world.handle("chunks-dlq") or []) == 1
    assert world.depth("chunks") == 0


def test_a_long_dead_letter_queue_is_drained_without_growing_memory(world: World) -> None:
    world.deps = replace(world.deps, logger=Logger(service="test-of-memory", stream=io.StringIO(), level="CRITICAL"))

    def drain(batches: int) -> int:
        for number in range(batches * 10):
            world.send("status-dlq", f"garbage {number} " + "x" * 1000)
        for _ in range(batches):
            assert world.handle("status-dlq") == []
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        warm = drain(10)
        grown = drain(30) - warm
    finally:
        tracemalloc.stop()
    assert grown < 100_000, "300 messages of a kilobyte would have left 300,000 bytes"


@pytest.mark.parametrize("point", ["deadletter.archived", "deadletter.sent", "deadletter.failed"])
@pytest.mark.parametrize("attempt", [1, 6])
def test_a_consumer_that_dies_between_any_two_steps_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, attempt: int
) -> None:
    """It dies by SystemExit, which nothing catches; the message is delivered again."""
    died = []

    def die_once(name: str, **_: str) -> None:
        if name == point and not died:
            died.append(name)
            raise SystemExit

    monkeypatch.setattr("prismline_dlq_consumer.healing.fault_point", die_once)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id, attempt=attempt))
    with suppress(SystemExit):
        world.handle("chunks-dlq", visibility=0)
    _drain(world, "chunks-dlq")
    assert len(world.records()) == 1 + len(died)
    if attempt == 1:
        assert 1 <= world.depth("chunks") <= 1 + (point == "deadletter.sent")
    else:
        assert world.depth("chunks") == 0
        assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.FAILED
        assert world.item("r").jobs_failed == 1
        said = {(event["type"], event["id"]) for event in world.events("chunk.failed", "run.drained")}
        assert sorted(kind for kind, _ in said) == ["prismline.chunk.failed.v1", "prismline.run.drained.v1"]
