"""What the ledger guarantees to the dead-letter consumer and its recoveries."""

from __future__ import annotations

import pytest
from scenes import Scene, before_request, dying

from prismline_contracts.items import ChunkStatus
from prismline_ledger import Skipped

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize("begun", [True, False])
def test_a_deferral_is_counted_and_leaves_the_chunk_as_it_is(scene: Scene, begun: bool) -> None:
    scene.split(1)
    before = scene.start() if begun else scene.chunk()
    for deferrals in (1, 2):
        chunk = scene.ledger.record_deferral(scene.run_id, scene.chunk_id())
        assert chunk == scene.chunk()
        assert chunk is not None
        assert chunk.deferred_at is not None
        assert chunk.model_copy(update={"deferrals": 0, "deferred_at": None}) == before
        assert chunk.deferrals == deferrals


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_chunk_that_has_ended_or_does_not_exist_is_not_deferred(scene: Scene, ending: str) -> None:
    scene.split(1)
    getattr(scene, ending)()
    assert scene.ledger.record_deferral(scene.run_id, scene.chunk_id()) is None
    assert scene.ledger.record_deferral(scene.run_id, "chunk-9999999") is None
    assert scene.chunk().deferrals == 0
    assert scene.ledger.count_chunks(scene.run_id) == 1


def test_a_failed_chunk_is_reopened_with_all_its_attempts(scene: Scene) -> None:
    scene.split(2)
    scene.complete(1)
    for _ in range(5):
        scene.start()
    scene.ledger.give_up_chunk(scene.chunk(), "The kernel died.", announcement_pending=True)
    scene.close("failed")
    assert scene.ledger.reopen_chunk(scene.chunk(), "op")
    chunk, run = scene.chunk(), scene.run
    assert (chunk.state, chunk.recovery, chunk.last_error) == (ChunkStatus.PENDING, "op", "The kernel died.")
    assert (chunk.error, chunk.completed_at, chunk.first_started_at, chunk.announcement_pending) == (
        None,
        None,
        None,
        False,
    )
    assert (chunk.attempts, chunk.interruptions) == (5, 5), "the numbering continues, but they no longer count"
    assert chunk.sent_at is not None
    assert (run.chunks_completed, run.chunks_failed) == (1, 0)
    assert (run.drained_at, run.ended_at, run.ended_status, run.drains) == (None, None, None, 1)
    assert scene.is_open
    again = scene.complete().run
    assert (again.drained_at is not None, again.drains, again.chunks_completed) == (True, 2, 2)


def test_a_recovery_of_a_chunk_that_has_not_ended_is_only_recorded(scene: Scene) -> None:
    scene.split(1)
    before, run = scene.start(), scene.run
    assert scene.ledger.reopen_chunk(before, "op")
    assert scene.chunk() == before.model_copy(update={"recovery": "op"})
    assert scene.run == run


def test_a_completed_chunk_is_not_reopened(scene: Scene) -> None:
    scene.split(1)
    scene.complete()
    done = scene.chunk()
    assert not scene.ledger.reopen_chunk(done, "op")
    assert scene.chunk() == done


@pytest.mark.parametrize("in_between", [True, False])
def test_a_chunk_that_was_completed_since_it_was_read_is_not_reopened(scene: Scene, in_between: bool) -> None:
    scene.split(1)
    scene.fail()
    read = scene.chunk()
    if in_between:
        with before_request(scene.dynamodb, 0, scene.complete):
            assert not scene.ledger.reopen_chunk(read, "op")
    else:
        scene.complete()
        assert not scene.ledger.reopen_chunk(read, "op")
    assert scene.chunk().state is ChunkStatus.COMPLETED
    assert scene.counters() == (1, 0)


def test_of_two_recoveries_at_once_one_reopens(scene: Scene) -> None:
    scene.split(1)
    scene.fail()
    read = scene.chunk()
    with before_request(scene.dynamodb, 0, lambda: scene.ledger.reopen_chunk(scene.chunk(), "other")):
        assert not scene.ledger.reopen_chunk(read, "op")
    assert scene.chunk().recovery == "other"
    assert scene.counters() == (0, 0)


@pytest.mark.parametrize("first", ["other", "op"])
def test_a_chunk_that_failed_again_since_it_was_read_is_not_reopened(scene: Scene, first: str) -> None:
    scene.split(1)
    scene.fail()
    scene.ledger.reopen_chunk(scene.chunk(), "op")
    scene.fail()
    read = scene.chunk()
    assert scene.ledger.reopen_chunk(read, first)
    scene.ledger.fail_chunk(scene.start(), "e")
    assert not scene.ledger.reopen_chunk(read, "op")
    assert scene.chunk().state is ChunkStatus.FAILED


def test_an_error_from_before_a_recovery_does_not_fail_the_chunk(scene: Scene) -> None:
    scene.split(1)
    read = scene.start()
    scene.fail()
    assert scene.ledger.reopen_chunk(scene.chunk(), "op")
    finished = scene.ledger.fail_chunk(read, "met before")
    assert (finished.changed, finished.chunk.state) == (False, ChunkStatus.PENDING)
    assert scene.counters() == scene.states() == (0, 0)
    assert scene.ledger.fail_chunk(scene.start(), "met since").changed


def test_a_recovery_is_not_recorded_if_an_attempt_has_begun_since_the_read(scene: Scene) -> None:
    scene.split(1)
    read = scene.chunk()
    scene.start()
    assert not scene.ledger.reopen_chunk(read, "op")
    assert scene.chunk().recovery is None


def test_a_recovery_is_not_recorded_if_an_attempt_has_begun_and_ended_since_the_read(scene: Scene) -> None:
    scene.split(1)
    read = scene.chunk()
    scene.ledger.end_attempt(scene.start(), "e", interrupted=False)
    assert not scene.ledger.reopen_chunk(read, "op")


def test_counters_equal_the_items_when_a_recovery_dies(scene: Scene) -> None:
    scene.split(1)
    scene.fail()
    failed = scene.chunk()
    for _ in dying(scene.dynamodb, lambda: scene.ledger.reopen_chunk(failed, "op")):
        assert scene.counters() == scene.states()
        assert (scene.run.drained_at is None) == (scene.chunk().state is ChunkStatus.PENDING)
    assert scene.counters() == (0, 0)


def test_a_run_that_had_failed_is_resumed(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "failed")
    scene.close("failed")
    assert not scene.is_open
    assert scene.ledger.resume_run(scene.run)
    run = scene.run
    assert (run.cancelled_at, run.stop_reason, run.ended_at, run.ended_status) == (None, None, None, None)
    assert run.resumed_at is not None
    assert scene.is_open
    assert not scene.ledger.resume_run(run), "it is running"


def test_a_cancelled_run_is_not_resumed(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    stopped = scene.run
    assert not scene.ledger.resume_run(stopped)
    assert scene.run == stopped


def cancelled_and_over(scene: Scene) -> str:
    """Cancel the run and record its end. Return when it was stopped."""
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.close("cancelled")
    assert scene.run.cancelled_at is not None
    return scene.run.cancelled_at


def test_a_cancelled_run_is_resumed_if_a_person_requests_it(scene: Scene) -> None:
    scene.split(1)
    stopped = cancelled_and_over(scene)
    assert not scene.ledger.resume_run(scene.run), "no person requested it"
    assert scene.ledger.resume_run(scene.run, cancelled_at=stopped)
    run = scene.run
    assert (run.cancelled_at, run.stop_reason, run.ended_at, run.ended_status) == (None, None, None, None)
    assert run.goes_on_after_cancel
    assert scene.is_open
    assert not scene.ledger.resume_run(run, cancelled_at=stopped), "it is running"


def test_a_cancelled_run_is_resumed_only_after_its_end_is_recorded(scene: Scene) -> None:
    """Then the cancellation was announced, and no service is about to stop the run because of it."""
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert not scene.ledger.resume_run(scene.run, cancelled_at=scene.run.cancelled_at)
    scene.close("cancelled")
    assert scene.ledger.resume_run(scene.run, cancelled_at=scene.run.cancelled_at)


def test_a_person_takes_back_the_stop_that_they_saw_and_no_other(scene: Scene) -> None:
    scene.split(1)
    first = cancelled_and_over(scene)
    read = scene.run
    assert scene.ledger.resume_run(read, cancelled_at=first)
    scene.ledger.stop_run(scene.run_id, "cancelled", uncancelled_at=scene.run.uncancelled_at)
    scene.close("cancelled")
    assert not scene.ledger.resume_run(read, cancelled_at=first)
    assert not scene.ledger.resume_run(scene.run, cancelled_at=first)
    assert scene.run.stop_reason == "cancelled"


def test_a_run_that_was_cancelled_before_it_was_opened_continues_when_it_is_split_again(scene: Scene) -> None:
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.open()
    scene.close("cancelled")
    assert scene.ledger.resume_run(scene.run, cancelled_at=scene.run.cancelled_at)
    assert scene.open().cancelled_at is None


def test_a_run_that_was_stopped_again_since_it_was_read_is_not_resumed(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "failed")
    read = scene.run
    assert scene.ledger.resume_run(read)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert not scene.ledger.resume_run(read)
    assert scene.run.stop_reason == "cancelled"


def test_a_run_that_was_stopped_before_it_was_opened_stays_resumed_when_it_is_split_again(scene: Scene) -> None:
    scene.ledger.stop_run(scene.run_id, "failed")
    assert scene.open().cancelled_at is not None
    assert scene.ledger.resume_run(scene.run)
    assert scene.open().cancelled_at is None
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert scene.open().stop_reason == "cancelled"


def test_a_cancellation_that_came_before_the_run_failed_survives_a_recovery(scene: Scene) -> None:
    scene.ledger.stop_run(scene.run_id, "cancelled")
    with before_request(scene.dynamodb, 1, lambda: scene.ledger.stop_run(scene.run_id, "failed")):
        scene.open()
    assert scene.run.stop_reason == "failed"
    assert scene.ledger.resume_run(scene.run)
    assert scene.open().stop_reason == "cancelled"


def test_a_cancellation_that_waits_for_the_run_to_open_survives_a_recovery(scene: Scene) -> None:
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.open()
    assert not scene.ledger.resume_run(scene.run)
    assert scene.open().stop_reason == "cancelled"


def test_a_chunk_with_a_status_of_a_newer_release_stays_as_it_is(scene: Scene) -> None:
    scene.split(2)
    scene.complete(1)
    scene.damage(0, status="ARCHIVED")
    before, run = scene.chunk(), scene.run
    assert isinstance(scene.ledger.start_chunk(scene.run_id, scene.chunk_id()), Skipped)
    assert not scene.complete().changed
    assert not scene.fail().changed
    assert not scene.ledger.give_up_chunk(before, "e").changed
    assert not scene.ledger.reopen_chunk(before, "op")
    assert not scene.ledger.record_resend(before, "lost")
    assert scene.ledger.record_deferral(scene.run_id, scene.chunk_id()) is None
    assert scene.chunk() == before
    assert scene.run == run
    assert run.drained_at is None
