"""Dead letters over real queues are archived, then sent back, deferred or given up. None is lost."""

from __future__ import annotations

import gc
import io
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from dlq_world import DlqConsumerWorld, chunk_message

from prismline_contracts.base import derived_id, now, timestamp
from prismline_contracts.commands import ChunkProcess, RunSplit, SpectraRefit
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import ExportRequested, RunDrained
from prismline_contracts.items import ChunkStatus
from prismline_contracts.manifest import RefitParams
from prismline_dlq_consumer import dead_letter_handling
from prismline_dlq_consumer.archive import Archive
from prismline_dlq_consumer.decisions import Resource
from prismline_dlq_consumer.handler import build_handler
from prismline_ledger.testing import Context
from prismline_runtime import TransientError, Work
from prismline_runtime.transport import CARRIED_ATTRIBUTES

pytestmark = pytest.mark.emulator


class Gpu:
    """A resource that the test switches."""

    def __init__(self, up: bool) -> None:
        self.up = up
        self.asked = 0

    def look_up(self, name: str) -> Resource:
        self.asked += 1
        return Resource(name, up=self.up)


def use_gpu(world: DlqConsumerWorld, *, up: bool, deferral_seconds: int = 0) -> Gpu:
    gpu = Gpu(up)
    world.deps = replace(world.deps, resources=gpu)
    world.set(workload_resources={"spectra": "gpu"}, deferral_seconds=deferral_seconds)
    return gpu


def split_message(*, ago: timedelta = timedelta(0), token: str | None = None) -> str:
    """A `run.split` command that was sent some time ago."""
    command = RunSplit(run_id="r", job_id="j", bucket="b", manifest_key="m")
    message = Envelope.wrap(command, source="prismline/test", traceparent=None, tasktoken=token)
    return message.model_copy(update={"time": timestamp(now() - ago)}).to_json()


def test_a_message_goes_back_to_its_queue_with_its_attempt(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    sent = chunk_message("r", chunk_id)
    world.send("chunks-dlq", sent)
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks-dlq") == 0
    (command,) = world.taken("chunks")
    assert command["data"]["attempt"] == 2
    (archived,) = world.records().values()
    assert archived["body"] == sent
    (event,) = world.events("deadletter.archived")
    assert event["data"]["decision"] == "resend"
    assert event["data"]["key"] in world.records()


def test_a_message_of_unknown_type_has_one_record_however_often_it_comes_back(world: DlqConsumerWorld) -> None:
    body = Envelope.model_validate_json(split_message()).model_copy(update={"type": "prismline.new.v9"}).to_json()
    world.send("split-dlq", body, unknown="not one that this service takes", source_queue="split")
    for _ in range(3):
        assert world.handle("split-dlq") == []
        (record,) = world.records().values()
        (sent,) = world.taken_records("split")
        carried = {name: value["stringValue"] for name, value in sent["messageAttributes"].items()}
        kept = {name: value for name, value in carried.items() if name in CARRIED_ATTRIBUTES}
        world.send("split-dlq", sent["body"], unknown="not one that this service takes", source_queue="split", **kept)
    assert record["body"] == body


def test_a_status_change_that_is_given_up_keeps_its_error(world: DlqConsumerWorld) -> None:
    detail = {"error": "States.Timeout", "status": "FAILED", "name": "r"}
    kind = "Step Functions Execution Status Change"
    change = {"source": "aws.states", "detail-type": kind, "time": "2026-03-01T12:00:00Z", "detail": detail}
    world.send("runs-dlq", json.dumps(change))
    assert world.handle("runs-dlq") == []
    (record,) = world.records().values()
    assert record["error"] == "States.Timeout. Given up after 3.0 days."


def test_dlq_consumer_marks_failed_after_5_receives(world: DlqConsumerWorld) -> None:
    """The contract counts receives. Here the receives after five attempts and two hours, see decision 008."""
    (chunk_id,) = world.run("r")
    world.exhaust("r", chunk_id)
    world.send("chunks", chunk_message("r", chunk_id))
    for _ in range(5):
        assert world.receive("chunks", visibility=0, wait=5) is not None
    assert world.receive("chunks") is None, "SQS has moved it"
    event = world.receive("chunks-dlq", visibility=0, wait=5)
    assert event is not None
    assert int(event["Records"][0]["attributes"]["ApproximateReceiveCount"]) >= 6
    assert world.handle("chunks-dlq") == [], "the message is acknowledged"
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.FAILED


def test_a_message_that_goes_back_is_held_back_for_longer_each_time(world: DlqConsumerWorld) -> None:
    world.set(resend_seconds=15)
    (chunk_id,) = world.run("r")
    for attempt in (1, 2, 30):
        world.send("chunks-dlq", chunk_message("r", chunk_id, attempt=attempt))
        assert world.handle("chunks-dlq") == []
    assert world.delays() == [15, 30, 900]
    assert world.receive("chunks") is None, "it is there, and held back"
    assert world.depth("chunks") == 3


def test_garbage_is_archived_and_acknowledged(world: DlqConsumerWorld) -> None:
    for body in ("\x7fELF", "[]", '{"specversion": "1.0"}', '{"a": 1}'):
        world.send("status-dlq", body)
    while world.handle("status-dlq") is not None:
        pass
    errors = {record["body"]: record["error"] for record in world.records().values()}
    assert set(errors) == {"\x7fELF", "[]", '{"specversion": "1.0"}', '{"a": 1}'}
    assert all(errors.values())
    assert world.depth("status") == world.depth("status-dlq") == 0


def test_a_chunk_whose_attempts_are_used_up_is_failed_with_its_last_error(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.exhaust("r", chunk_id)
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    assert world.handle("chunks-dlq") == []
    chunk = world.ledger.chunk("r", chunk_id)
    assert chunk.state is ChunkStatus.FAILED
    assert chunk.error == "S3 said 503. Given up after 5 attempts."
    assert world.item("r").chunks_failed == 1
    events = world.events("chunk.failed")
    assert [event["data"]["error"] for event in events] == [chunk.error]
    assert [record["error"] for record in world.records().values()] == [chunk.error], "the archive knows why"
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0


def test_the_last_chunk_that_is_given_up_drains_its_run_and_says_so(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.exhaust("r", chunk_id)
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.handle("chunks-dlq")
    (drained,) = world.events("run.drained")
    assert drained["data"]["jobs_failed"] == 1


def test_receipts_while_the_ledger_is_down_give_up_nothing(world: DlqConsumerWorld) -> None:
    """Five workers receive the message and none can read the ledger. Then the consumer cannot read it either."""
    (chunk_id,) = world.run("r")
    world.send("chunks", chunk_message("r", chunk_id))
    for _ in range(5):
        assert world.receive("chunks", visibility=0) is not None
    assert world.receive("chunks", visibility=0) is None, "SQS has moved it"
    world.clients["dynamodb"].fail("*", "InternalServerError")
    for _ in range(10):
        assert len(world.handle("chunks-dlq") or []) == 1
    world.clients["dynamodb"].mend()
    world.drain("chunks-dlq")
    chunk = world.ledger.chunk("r", chunk_id)
    assert (chunk.state, chunk.attempts, chunk.deferrals) == (ChunkStatus.PENDING, 0, 0)
    assert world.depth("chunks") == 1


def test_a_message_whose_ledger_is_down_is_not_asked_for_all_the_time(world: DlqConsumerWorld) -> None:
    world.set(resend_seconds=15)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.clients["dynamodb"].fail("*", "InternalServerError")
    assert len(world.handle("chunks-dlq") or []) == 1
    (call,) = world.clients["sqs"].calls("change_message_visibility")
    assert call["VisibilityTimeout"] == 15


def test_a_chunk_that_an_attempt_begins_at_while_it_is_judged_is_judged_again(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chunk_id,) = world.run("r")
    world.exhaust("r", chunk_id)

    def begin(point: str, **_: str) -> None:
        if point == "deadletter.archived":
            world.clients["events"].answer("put_events", published)

    events = world.clients["events"]

    def published(**arguments: Any) -> Any:  # after the ledger was read, before anything is written
        world.attempt("r", chunk_id)
        return {"Entries": [{"EventId": "e"} for _ in arguments["Entries"]]}

    monkeypatch.setattr("prismline_dlq_consumer.dead_letter_handling.fault_point", begin)
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    assert len(world.handle("chunks-dlq") or []) == 1
    assert events.calls("put_events")
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.IN_PROGRESS
    (call,) = world.clients["sqs"].calls("change_message_visibility")
    assert call["VisibilityTimeout"] == 1


@pytest.mark.parametrize(
    ("attributes", "going"), [({"raised": "KeyError"}, True), ({"error": "The chunk file is no archive."}, False)]
)
def test_a_run_shows_the_error_of_a_message_until_the_message_is_given_up(
    world: DlqConsumerWorld, attributes: dict[str, str], going: bool
) -> None:
    (chunk_id,) = world.run("r")
    for _ in range(3):
        world.ledger.note_error(Work("r", ChunkProcess.TYPE, chunk_id), service="worker", error="KeyError")
    world.send("chunks-dlq", chunk_message("r", chunk_id), **attributes)
    assert world.handle("chunks-dlq") == []
    assert (world.ledger.repeated_error("r") is not None) == going
    assert world.depth("chunks") == going


def test_a_run_shows_an_unexpected_error_of_the_dead_letter_consumer_itself(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: Any) -> Any:
        raise KeyError("attempt")

    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    with monkeypatch.context() as patch:
        patch.setattr(dead_letter_handling, "judge", judge)
        for _ in range(3):
            assert world.ledger.repeated_error("r") is None
            assert len(world.handle("chunks-dlq") or []) == 1
    shown = world.ledger.repeated_error("r")
    assert shown is not None
    assert (shown.item.service, shown.item.error, shown.item.part) == ("dlq-consumer", "KeyError: 'attempt'", chunk_id)


def test_a_permanent_error_fails_its_chunk_though_its_worker_died_before_it_could(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.attempt("r", chunk_id)
    world.send("chunks-dlq", chunk_message("r", chunk_id), error="The chunk file is no archive.")
    assert world.handle("chunks-dlq") == []
    chunk = world.ledger.chunk("r", chunk_id)
    assert (chunk.state, chunk.error) == (ChunkStatus.FAILED, "The chunk file is no archive.")


def test_a_chunk_that_failed_for_good_is_in_the_archive_so_that_it_can_be_recovered(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.fail("r", chunk_id, "The chunk file is no archive.")
    world.send("chunks-dlq", chunk_message("r", chunk_id), error="The chunk file is no archive.")
    assert world.handle("chunks-dlq") == []
    (record,) = world.records().values()
    assert (record["chunk_id"], record["error"]) == (chunk_id, "The chunk file is no archive.")


def test_a_message_waits_as_long_as_its_resource_is_down_and_uses_up_no_attempt(world: DlqConsumerWorld) -> None:
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
    (record,) = world.records().values()
    assert record["receive_count"] == 9, "every receipt has rewritten the record"


def test_dlq_consumer_gpu_down_extends_visibility(world: DlqConsumerWorld) -> None:
    use_gpu(world, up=False, deferral_seconds=900)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    event = world.receive("chunks-dlq")
    assert event is not None
    (record,) = event["Records"]
    answer = build_handler(world.deps)(event, Context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    (call,) = world.clients["sqs"].calls("change_message_visibility")
    assert call["VisibilityTimeout"] == 900
    assert world.handle("chunks-dlq") is None


def test_a_message_that_says_what_it_waits_for_is_not_given_up(world: DlqConsumerWorld) -> None:
    gpu = use_gpu(world, up=False)
    world.set(workload_resources={})
    (chunk_id,) = world.run("r")
    world.exhaust("r", chunk_id, ago=60.0)
    world.send("chunks-dlq", chunk_message("r", chunk_id), waits_for="gpu", source_queue="chunks")
    assert len(world.handle("chunks-dlq") or []) == 1, "it waits, although the settings name no resource"
    gpu.up = True
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1


def test_a_resource_that_runs_and_does_not_serve_is_waited_for(world: DlqConsumerWorld) -> None:
    use_gpu(world, up=True, deferral_seconds=900)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id), waits_for="gpu", source_queue="chunks")
    assert len(world.handle("chunks-dlq") or []) == 1
    (call,) = world.clients["sqs"].calls("change_message_visibility")
    assert 890 <= call["VisibilityTimeout"] <= 900
    assert world.ledger.chunk("r", chunk_id).deferrals == 1, "a sign of life for the sweeper"
    assert world.depth("chunks") == 0


def test_a_batch_asks_for_its_resource_once(world: DlqConsumerWorld) -> None:
    gpu = use_gpu(world, up=True)
    for chunk_id in world.run("r", 7):
        world.send("chunks-dlq", chunk_message("r", chunk_id))
    while world.handle("chunks-dlq") is not None:
        pass
    assert gpu.asked <= 7 // 2
    assert world.depth("chunks") == 7


def test_what_has_ended_or_was_stopped_is_acknowledged_and_stays_in_the_archive(world: DlqConsumerWorld) -> None:
    first, second = world.run("r", 2)
    world.complete("r", first)
    world.send("chunks-dlq", chunk_message("r", first))
    for run_id, reason in (("c", "cancelled"), ("f", "failed")):
        world.run(run_id)
        world.ledger.stop_run(run_id, reason)  # type: ignore[arg-type]
        world.send("chunks-dlq", chunk_message(run_id, "chunk-0000000"))
    world.send("chunks-dlq", chunk_message("r", "chunk-9999999"))
    while world.handle("chunks-dlq") is not None:
        pass
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0
    assert world.ledger.chunk("r", second).state is ChunkStatus.PENDING
    decisions = sorted(event["data"]["decision"] for event in world.events("deadletter.archived"))
    assert decisions == ["archive", "settle", "settle", "settle"]
    assert len(world.records()) == 4


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_the_end_of_a_chunk_whose_worker_died_before_it_announced_it_is_announced(
    world: DlqConsumerWorld, status: str
) -> None:
    (chunk_id,) = world.run("r")
    world.complete("r", chunk_id) if status == "completed" else world.fail("r", chunk_id)
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.handle("chunks-dlq")
    ended, drained = world.events("chunk.completed", "chunk.failed", "run.drained")
    assert ended["type"] == f"prismline.chunk.{status}.v1"
    assert ended["id"] == derived_id(ended["type"], "r", chunk_id), "with the id that its worker would have used"
    assert drained["id"] == derived_id(RunDrained.TYPE, "r")


def test_a_command_that_was_given_up_fails_the_task_that_waits_for_it(world: DlqConsumerWorld) -> None:
    world.clients["stepfunctions"].answer("send_task_failure", lambda **_: {})
    world.send("split-dlq", split_message(ago=timedelta(days=2.9), token="patient"))
    world.send("split-dlq", split_message(ago=timedelta(days=3.1), token="token"))
    world.send("split-dlq", split_message(token="hopeless"), error="There is no cube.")
    while world.handle("split-dlq") is not None:
        pass
    refused = world.clients["stepfunctions"].calls("send_task_failure")
    assert {(call["taskToken"], call["error"], call["cause"]) for call in refused} == {
        ("token", "DeadLetterGivenUp", "Given up after 3.0 days."),
        ("hopeless", "DeadLetterGivenUp", "There is no cube."),
    }
    assert world.depth("split") == 1


def test_an_export_that_was_given_up_is_recorded_by_the_exporter(world: DlqConsumerWorld) -> None:
    request = ExportRequested(run_id="r", export_id="e", tenant="acme")
    sent = Envelope.wrap(request, source="prismline/test", traceparent=None)
    late = sent.model_copy(update={"time": timestamp(now() - timedelta(days=3.1))})
    world.send("exports-dlq", late.to_json())
    world.send("exports-dlq", sent.to_json(), error="There is no bucket.")
    while world.handle("exports-dlq") is not None:
        pass
    requests = [body["data"] for body in world.taken("exports")]
    assert requests == [
        {"run_id": "r", "export_id": "e", "tenant": "acme", "given_up": reason}
        for reason in ("Given up after 3.0 days.", "There is no bucket.")
    ]
    given_up = sent.model_copy(update={"data": requests[0]})
    world.send("exports-dlq", given_up.to_json(), error="There is no bucket.")
    assert world.handle("exports-dlq") == []
    assert world.taken("exports") == [], "the exporter cannot even record it, so it is not asked again"


def test_rows_whose_refit_is_given_up_are_waited_for_no_more(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.complete("r", chunk_id, n_timed_out=1)
    command = SpectraRefit(
        run_id="r", survey="s", chunk_id=chunk_id, bucket="b", chunk_key="k", output_key="o", params=RefitParams()
    )
    message = Envelope.wrap(command, source="prismline/test", traceparent=None)
    world.send("refits-dlq", message.to_json())
    assert world.handle("refits-dlq") == []
    assert world.depth("refits") == 1
    old = message.model_copy(update={"time": timestamp(now() - timedelta(days=4))})
    world.send("refits-dlq", old.to_json())
    assert world.handle("refits-dlq") == []
    run, chunk = world.item("r"), world.ledger.chunk("r", chunk_id)
    assert (run.n_timed_out, run.n_refit_failed) == (0, 1)
    assert chunk.refit_error == "Given up after 3.0 days."


def test_an_alert_that_discord_could_not_take_for_hours_is_tried_again(world: DlqConsumerWorld) -> None:
    """Its queue delivers it a hundred times before SQS moves it."""
    notification = json.dumps({"Type": "Notification", "MessageId": "m", "Message": "{}"})
    policy = {"deadLetterTargetArn": world.arn("alerts-dlq"), "maxReceiveCount": 100}
    world.sqs.set_queue_attributes(
        QueueUrl=world.urls["alerts"], Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "0"}
    )
    world.send("alerts", notification)
    for _ in range(101):
        world.receive("alerts", visibility=0)
    assert world.handle("alerts-dlq") == []
    (record,) = world.taken_records("alerts")
    assert record["body"] == notification


def test_an_event_that_eventbridge_could_not_deliver_reaches_its_queue(world: DlqConsumerWorld) -> None:
    event = RunDrained(
        run_id="r", chunks_total=1, chunks_completed=1, chunks_failed=0, failed_percent=0.0, drained_at=timestamp()
    )
    envelope = Envelope.wrap(event, source="prismline/test", traceparent=None)
    undelivered = {"detail-type": envelope.type, "source": envelope.source, "detail": json.loads(envelope.to_json())}
    world.send("runs-dlq", json.dumps(undelivered), ERROR_CODE="NO_PERMISSIONS", ERROR_MESSAGE="not authorized")
    assert world.handle("runs-dlq") == []
    assert world.taken("runs") == [json.loads(envelope.to_json())]
    (record,) = world.records().values()
    assert record["error"] == "NO_PERMISSIONS: not authorized"


def test_nothing_is_acknowledged_while_the_archive_cannot_be_written(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.clients["s3"].fail("put_object")
    for _ in range(6):
        left = world.handle("chunks-dlq")
        assert left is not None
        assert len(left) == 1
        assert world.depth("chunks") == 0
    world.clients["s3"].mend()
    world.drain("chunks-dlq")
    assert world.depth("chunks") == 1, "an outage of ours uses up no attempt of the chunk"
    assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.PENDING


def test_a_message_that_cannot_be_sent_back_stays(world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismline_runtime.transport.MAX_ATTEMPTS", 2)
    monkeypatch.setattr("prismline_runtime.transport.LAST_WAIT_SECONDS", 0.1)
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.clients["sqs"].fail("send_message_batch", "Throttling")
    assert len(world.handle("chunks-dlq") or []) == 1
    assert world.depth("chunks-dlq") == 1
    world.clients["sqs"].mend()
    world.drain("chunks-dlq")
    assert world.depth("chunks") == 1


def test_throttling_that_passes_is_sat_out(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    world.clients["sqs"].fail("send_message_batch", "Throttling", times=2)
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1


def test_a_chunk_that_kills_each_worker_is_given_up(world: DlqConsumerWorld) -> None:
    """Each attempt begins within the lease of the one before. After the last one, the letter waits out the lease."""
    world.set(patience_seconds=0.0, sweep_lease_seconds=2.0, max_attempts=7)
    (chunk_id,) = world.run("r")
    world.send("chunks", chunk_message("r", chunk_id))
    decisions = []
    while not world.ledger.chunk("r", chunk_id).state.terminal:
        if world.receive("chunks", visibility=0) is not None:
            world.attempt("r", chunk_id)  # the worker dies with it
        world.handle("chunks-dlq")
        decisions += [event["data"]["decision"] for event in world.events("deadletter.archived")]
    chunk = world.ledger.chunk("r", chunk_id)
    assert chunk.attempts == 10, "two dispatches of five receives"
    assert chunk.error == "Its workers died without saying why. Given up after 10 attempts."
    assert set(decisions[1:-1]) <= {"wait"}
    assert (decisions[0], decisions[-1], chunk.deferrals) == ("resend", "fail", 0)
    assert world.depth("chunks") == world.depth("chunks-dlq") == 0


def test_unexpected_errors_leave_the_message_too(world: DlqConsumerWorld) -> None:
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


def test_the_log_has_the_required_fields(world: DlqConsumerWorld) -> None:
    written = io.StringIO()
    world.deps = replace(world.deps, logger=Logger(service="test-of-the-log", stream=written))
    gpu = use_gpu(world, up=False)
    waiting, exhausted = world.run("r", 2)
    world.send("chunks-dlq", chunk_message("r", waiting))
    world.handle("chunks-dlq")
    gpu.up = True
    world.exhaust("r", exhausted)
    world.send("chunks-dlq", chunk_message("r", exhausted))
    world.drain("chunks-dlq")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    logs = {line.get("message"): line for line in lines}
    assert {"message_id", "receive_count", "chunk_id"} <= set(logs["dlq_received"])
    assert {"message_id", "extended_seconds"} <= set(logs["dlq_visibility_extended"])
    assert {"chunk_id", "receive_count"} <= set(logs["dlq_exhausted"])


def test_errors_of_the_lookup_leave_the_message(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.set(workload_resources={"spectra": "gpu"})

    class Unreachable:
        def look_up(self, name: str) -> Resource:
            raise TransientError(f"Could not look at {name}.")

    world.deps = replace(world.deps, resources=Unreachable())
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    assert len(world.handle("chunks-dlq") or []) == 1
    assert world.depth("chunks") == 0


def test_a_long_dead_letter_queue_is_drained_without_growing_memory(world: DlqConsumerWorld) -> None:
    world.deps = replace(world.deps, logger=Logger(service="test-of-memory", stream=io.StringIO(), level="CRITICAL"))
    for client in world.clients.values():
        client.forget()

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
@pytest.mark.parametrize("exhausted", [False, True])
def test_a_consumer_that_dies_between_any_two_steps_loses_nothing(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch, point: str, exhausted: bool
) -> None:
    """It dies by SystemExit, which no handler catches. The message is delivered again."""
    died = []

    def die_once(name: str, **_: str) -> None:
        if name == point and not died:
            died.append(name)
            raise SystemExit

    monkeypatch.setattr("prismline_dlq_consumer.dead_letter_handling.fault_point", die_once)
    (chunk_id,) = world.run("r")
    if exhausted:
        world.exhaust("r", chunk_id)
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    with suppress(SystemExit):
        world.handle("chunks-dlq", visibility=0)
    world.drain("chunks-dlq")
    assert len(world.records()) == 1
    if exhausted:
        assert world.depth("chunks") == 0
        assert world.ledger.chunk("r", chunk_id).state is ChunkStatus.FAILED
        assert world.item("r").chunks_failed == 1
        events = {(event["type"], event["id"]) for event in world.events("chunk.failed", "run.drained")}
        assert sorted(kind for kind, _ in events) == ["prismline.chunk.failed.v1", "prismline.run.drained.v1"]
    else:
        assert 1 <= world.depth("chunks") <= 1 + (point == "deadletter.sent")
