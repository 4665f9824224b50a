"""A chunk from its message to its end: what is written and published, and what remains after an error."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from pydantic import BaseModel, ValidationError
from worker_world import FIRST, GOOD, HOPELESS, RUN_ID, SECOND, WorkerWorld

from prismline_contracts.envelope import Envelope
from prismline_contracts.items import ChunkStatus
from prismline_ledger import NewRun
from prismline_runtime import (
    Bucket,
    Change,
    ResourceUnavailableError,
    Table,
    TransientError,
    Transport,
    UnavailableError,
)
from prismline_worker import progress, run_state_cache
from prismline_worker.processing import reason_of

pytestmark = pytest.mark.emulator

#: The calls of a chunk whose run was just read: start, input, output, end and counter, drain check, event.
HOT_PATH = ["UpdateItem", "GetObject", "PutObject", "TransactWriteItems", "GetItem", "PutEvents"]


class Clock:
    """The part of `time` that `run_state_cache` and `progress` use."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_state_cache, "time", clock)
    return clock


def kinds(events: list[tuple[str, str]]) -> list[str]:
    return sorted(kind for kind, _ in events)


# ---- a chunk without errors


def test_a_chunk_costs_six_calls_if_its_run_was_just_read(
    world: WorkerWorld, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the previous chunk took, because its drain check read the run at its end."""
    fit = world.fitter.fit

    def take_a_while(*arguments: Any, **options: Any) -> Any:
        clock.seconds += 60.0
        return fit(*arguments, **options)

    monkeypatch.setattr(world.fitter, "fit", take_a_while)
    world.open_run(FIRST, SECOND, "chunk-0000200")
    assert world.process(FIRST)
    world.aws.calls.clear()
    assert world.process(SECOND)
    assert world.aws.calls == HOT_PATH


def test_a_long_chunk_reports_its_progress_every_five_seconds(
    world: WorkerWorld, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "time", clock)
    fit, seen = world.fitter.fit, []

    def take_two_seconds(*arguments: Any, **options: Any) -> Any:
        seen.append(world.chunk().n_done)
        clock.seconds += 2.0
        return fit(*arguments, **options)

    monkeypatch.setattr(world.fitter, "fit", take_two_seconds)
    world.open_run(spectra={FIRST: [GOOD] * 8})
    assert world.process()
    assert seen == [0, 0, 0, 3, 3, 3, 6, 6]
    assert (world.chunk().state, world.chunk().n_done) == (ChunkStatus.COMPLETED, 0)


def test_a_progress_report_that_cannot_be_written_fails_no_attempt(
    world: WorkerWorld, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "time", clock)
    fit = world.fitter.fit

    def take_six_seconds(*arguments: Any, **options: Any) -> Any:
        clock.seconds += 6.0
        world.aws.down = {"UpdateItem"}
        return fit(*arguments, **options)

    monkeypatch.setattr(world.fitter, "fit", take_six_seconds)
    monkeypatch.setattr(world.ledger, "complete_chunk", _reachable_again(world))
    world.open_run(spectra={FIRST: [GOOD] * 3})
    assert world.process()
    assert world.chunk().state is ChunkStatus.COMPLETED


def _reachable_again(world: WorkerWorld) -> Any:
    complete = world.ledger.complete_chunk

    def reached(*arguments: Any, **options: Any) -> Any:
        world.aws.down = set()
        return complete(*arguments, **options)

    return reached


def test_the_worker_that_ends_the_last_chunk_announces_the_drain(world: WorkerWorld) -> None:
    world.open_run(FIRST, SECOND)
    world.process(FIRST)
    assert kinds(world.announced()) == ["chunk.completed"]
    world.process(SECOND)
    assert kinds(world.announced()) == ["chunk.completed", "run.drained"]
    assert world.run().chunks_completed == 2


def test_a_redelivery_publishes_the_same_events_until_the_runs_end_is_recorded(world: WorkerWorld) -> None:
    world.open_run()
    world.process()
    first = world.announced()
    assert kinds(first) == ["chunk.completed", "run.drained"]
    assert world.process()
    assert sorted(world.announced()) == sorted(first)
    world.ledger.record_end(world.run(), "completed")
    assert world.process()
    assert kinds(world.announced()) == ["chunk.completed"]
    assert world.chunk().attempts == 1


def test_the_redelivery_announces_an_end_whose_answer_was_lost(world: WorkerWorld) -> None:
    world.open_run()
    world.aws.lost = {"TransactWriteItems"}
    assert not world.process()
    assert (world.chunk().state, world.announced()) == (ChunkStatus.COMPLETED, [])
    world.aws.lost = set()
    assert world.process()
    assert kinds(world.announced()) == ["chunk.completed", "run.drained"]
    assert world.run().chunks_completed == 1


def test_a_late_success_in_a_drained_run_is_announced(world: WorkerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk was given up while its worker was only slow, and the run ended."""
    world.open_run()
    create = Bucket.create

    def slow(bucket: Bucket, key: str, body: bytes) -> bool:
        world.ledger.fail_chunk(world.chunk(), "Given up.")
        world.ledger.record_end(world.run(), "failed")
        return create(bucket, key, body)

    monkeypatch.setattr(Bucket, "create", slow)
    assert world.process()
    assert kinds(world.announced()) == ["chunk.completed", "run.drained", "run.recovered"]
    assert not world.chunk().announcement_pending
    run = world.run()
    assert (run.chunks_completed, run.chunks_failed) == (1, 0)


# ---- an attempt that ends without a result


def test_an_attempt_that_an_outage_cut_short_gives_the_chunk_back(world: WorkerWorld) -> None:
    world.open_run()
    world.aws.down = {"GetObject"}
    assert not world.process(), "SQS delivers the message again"
    world.aws.down = set()
    chunk = world.chunk()
    assert chunk.state is ChunkStatus.PENDING
    assert "Could not read" in (chunk.last_error or "")
    assert (chunk.attempts, chunk.interruptions) == (1, 1), "the attempt does not count against the chunk"
    assert world.process()
    assert world.chunk().state is ChunkStatus.COMPLETED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TransientError("Try again."), "Try again."),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_attempt_that_fails_without_an_outage_gives_the_chunk_back_and_counts(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    world.open_run()

    def fit(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(world.fitter, "fit", fit)
    assert not world.process()
    chunk = world.chunk()
    assert (chunk.state, chunk.last_error) == (ChunkStatus.PENDING, reason)
    assert (chunk.attempts, chunk.interruptions) == (1, 0)
    assert world.announced() == []


def test_a_run_shows_the_error_of_a_chunk_that_raised_three_times_until_the_chunk_succeeds(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run()

    def fit(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    with monkeypatch.context() as patch:
        patch.setattr(world.fitter, "fit", fit)
        for world.receive_count in (1, 2, 3):
            assert world.ledger.repeated_error(RUN_ID) is None
            assert not world.process()
    shown = world.ledger.repeated_error(RUN_ID)
    assert shown is not None
    assert (shown.item.service, shown.item.part, shown.item.error, shown.item.count) == (
        "worker",
        FIRST,
        "ZeroDivisionError: division by zero",
        3,
    )
    world.receive_count = 4
    assert world.process()
    assert world.ledger.repeated_error(RUN_ID) is None


def test_if_the_chunk_cannot_be_given_back_the_message_is_delivered_again(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run()

    def fit(*_: Any, **__: Any) -> Any:
        world.aws.down = {"UpdateItem"}
        raise TransientError("Try again.")

    with monkeypatch.context() as patch:
        patch.setattr(world.fitter, "fit", fit)
        assert not world.process()
    world.aws.down = set()
    assert world.chunk().state is ChunkStatus.IN_PROGRESS
    assert world.process()
    assert world.chunk().state is ChunkStatus.COMPLETED


def test_a_chunk_that_cannot_be_given_back_still_waits_for_its_resource(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run()

    def fit(*_: Any, **__: Any) -> Any:
        world.aws.down = {"UpdateItem"}
        raise ResourceUnavailableError("The GPU is down.", resource="gpu")

    monkeypatch.setattr(world.fitter, "fit", fit)
    assert world.process()
    assert [attributes["waits_for"] for _, attributes in world.take("chunks-dlq")] == ["gpu"]


def test_an_attempt_gives_nothing_back_once_another_has_begun(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run()

    def fit(*_: Any, **__: Any) -> Any:
        world.ledger.start_chunk(RUN_ID, FIRST)
        raise TransientError("Try again.")

    monkeypatch.setattr(world.fitter, "fit", fit)
    assert not world.process()
    chunk = world.chunk()
    assert (chunk.state, chunk.attempts, chunk.last_error) == (ChunkStatus.IN_PROGRESS, 2, None)


def test_a_reason_does_not_quote_the_payload() -> None:
    class Model(BaseModel):
        n: int

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"n": "secret"})
    assert reason_of(caught.value) == (
        "ValidationError: n: Input should be a valid integer, unable to parse string as an integer"
    )
    assert reason_of(ValueError("bad\nsecret")) == "ValueError: bad"
    assert reason_of(UnavailableError("S3 is down.")) == "S3 is down."


# ---- a permanent error


def test_a_permanent_error_leaves_a_dead_letter_with_the_reason(world: WorkerWorld) -> None:
    world.open_run(spectra={FIRST: [HOPELESS]})
    world.write_chunk(FIRST, [])
    assert world.process()
    chunk = world.chunk()
    assert chunk.state is ChunkStatus.FAILED
    ((body, attributes),) = world.take("chunks-dlq")
    assert attributes["error"] == chunk.error
    assert FIRST in body
    assert kinds(world.announced()) == ["chunk.failed", "run.drained"]


def test_an_unknown_workload_leaves_a_dead_letter_too(world: WorkerWorld) -> None:
    world.open_run()
    assert world.process(workload="paint")
    assert world.chunk().error == "There is no workload paint; choose one of captions, spectra."
    assert len(world.take("chunks-dlq")) == 1


def test_a_chunk_fails_only_after_its_message_was_copied(world: WorkerWorld) -> None:
    world.open_run()
    world.write_chunk(FIRST, [])
    world.aws.down = {"SendMessage"}
    assert not world.process()
    chunk = world.chunk()
    assert chunk.state is ChunkStatus.PENDING, "the attempt is over, and the chunk is not FAILED yet"
    assert chunk.interruptions == 1
    world.aws.down = {"TransactWriteItems"}
    assert not world.process()
    assert not world.chunk().state.terminal
    assert len(world.take("chunks-dlq")) == 1
    world.aws.down = {"PutEvents"}
    assert not world.process()
    assert world.chunk().state is ChunkStatus.FAILED
    assert len(world.take("chunks-dlq")) == 1
    world.aws.down = set()
    assert world.process()
    assert kinds(world.announced()) == ["chunk.failed", "run.drained"]
    assert world.take("chunks-dlq") == [], "the message of a failed chunk is not copied again"


def test_a_chunk_that_was_reopened_during_its_attempt_is_tried_again(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker failed the chunk meanwhile. Somebody removed the cause, and a recovery reopened the chunk."""
    world.open_run()
    dead_letter = Transport.dead_letter

    def recovered(transport: Transport, *arguments: Any) -> None:
        world.ledger.fail_chunk(world.chunk(), "It is broken.")
        assert world.ledger.reopen_chunk(world.chunk(), "recovery")
        dead_letter(transport, *arguments)

    monkeypatch.setattr(Transport, "dead_letter", recovered)
    assert not world.process(workload="paint"), "SQS delivers the message again"
    assert world.chunk().state is ChunkStatus.PENDING
    assert world.announced() == []
    assert world.process()
    assert world.chunk().state is ChunkStatus.COMPLETED


def test_a_chunk_that_does_not_exist_is_a_dead_letter(world: WorkerWorld) -> None:
    world.open_run()
    assert world.process("chunk-0000777")
    assert world.process(run_id="run-777")
    errors = [attributes["error"] for _, attributes in world.take("chunks-dlq")]
    assert sorted(errors) == [
        "There is no chunk-0000777 of run run-1 in the ledger.",
        "There is no run run-777 in the ledger.",
    ]
    assert world.announced() == []


# ---- a run that was stopped


def test_a_chunk_of_a_stopped_run_is_skipped_without_an_event(world: WorkerWorld) -> None:
    world.open_run()
    world.ledger.stop_run(RUN_ID, "cancelled")
    assert world.process()
    assert (world.chunk().state, world.chunk().attempts) == (ChunkStatus.PENDING, 0)
    assert world.announced() == []


def test_the_end_of_a_chunk_is_announced_even_if_its_run_was_stopped(world: WorkerWorld) -> None:
    world.open_run(FIRST, SECOND)
    world.aws.down = {"PutEvents"}
    assert not world.process(FIRST)
    world.aws.down = set()
    world.ledger.stop_run(RUN_ID, "cancelled")
    assert world.process(FIRST)
    assert kinds(world.announced()) == ["chunk.completed"]


def test_a_stop_is_honoured_within_five_seconds(world: WorkerWorld, clock: Clock) -> None:
    world.open_run(FIRST, SECOND)
    world.process(FIRST)
    world.ledger.stop_run(RUN_ID, "cancelled")
    clock.seconds += 5.0
    assert world.process(SECOND)
    assert world.chunk(SECOND).attempts == 0


def test_the_chunks_of_a_resumed_run_are_processed_at_once(world: WorkerWorld, clock: Clock) -> None:
    world.open_run()
    world.ledger.stop_run(RUN_ID, "failed")
    assert world.process()
    assert world.ledger.resume_run(world.run())
    assert world.process()
    assert world.chunk().state is ChunkStatus.COMPLETED


def test_the_number_of_remembered_runs_is_limited(world: WorkerWorld, clock: Clock) -> None:
    run_states = run_state_cache.RunStateCache(world.ledger, world.deps.logger, most=2)
    for run_id in ("a", "b", "c"):
        world.ledger.open_run(NewRun(run_id=run_id, survey="s", job_id="j", workload="w"))
        assert not run_states.stopped(run_id)
    world.aws.calls.clear()
    assert not run_states.stopped("c")
    assert not run_states.stopped("b")
    assert world.aws.calls == []
    assert not run_states.stopped("a")
    assert world.aws.calls == ["GetItem"]


def test_a_chunk_with_a_status_of_a_newer_release_waits_for_a_newer_worker(world: WorkerWorld) -> None:
    world.open_run(FIRST)
    runs = Table(boto3.client("dynamodb"), f"runs-{world.environment}")
    runs.update({"PK": RUN_ID, "SK": f"CHUNK#{FIRST}"}, Change({"status": "ARCHIVED"}))
    before = world.chunk()
    assert world.process(FIRST)
    [(body, attributes)] = world.take("chunks-dlq")
    assert Envelope.model_validate_json(body).data["chunk_id"] == FIRST
    assert "ARCHIVED" in attributes["unknown"]
    assert world.chunk() == before
    assert world.announced() == []
