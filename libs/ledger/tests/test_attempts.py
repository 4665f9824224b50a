"""What the ledger guarantees to the worker and its slow lane."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import Scene, before_request, dying

from prismline_contracts.items import (
    MAX_CHUNK_ERROR_BYTES,
    MAX_KEPT_ERROR_BYTES,
    MAX_KEPT_ERRORS,
    MAX_SUMMARY_BYTES,
    ChunkStatus,
)
from prismline_ledger import Costs, Outcome, Skipped, truncate
from prismline_runtime import PermanentError, TransientError


@given(st.text())
def test_an_error_is_cut_to_what_an_item_holds(error: str) -> None:
    cut = truncate(error)
    assert len(cut.encode()) <= MAX_CHUNK_ERROR_BYTES
    assert cut == error or cut.endswith("…")


@given(st.text(min_size=500, alphabet="ü漢🜛"))
def test_a_long_error_is_cut_between_characters(error: str) -> None:
    assert error.startswith(truncate(error).removesuffix("…"))


@pytest.mark.emulator
class TestAttempts:
    def test_a_chunk_in_progress_may_be_started_again_because_its_worker_may_have_died(self, scene: Scene) -> None:
        scene.split(1)
        first, second = scene.start(), scene.start()
        assert (first.attempts, second.attempts) == (1, 2)
        assert first.first_started_at == first.started_at == second.first_started_at
        assert (first.started_at or "") < (second.started_at or "")
        assert second == scene.chunk()

    @pytest.mark.parametrize("ending", ["complete", "fail"])
    def test_a_chunk_that_has_ended_is_skipped(self, scene: Scene, ending: str) -> None:
        scene.split(1)
        getattr(scene, ending)()
        ended = scene.chunk()
        skipped = scene.ledger.start_chunk(scene.run_id, scene.chunk_id())
        assert skipped == Skipped(f"it is {ended.status} already", ended)
        assert scene.chunk() == ended

    @pytest.mark.parametrize("interrupted", [True, False])
    def test_an_attempt_that_ended_with_an_error_makes_the_chunk_pending(self, scene: Scene, interrupted: bool) -> None:
        scene.split(1)
        assert scene.ledger.end_attempt(scene.start(), "S3 said 503.", interrupted=interrupted)
        chunk = scene.chunk()
        assert (chunk.state, chunk.last_error) == (ChunkStatus.PENDING, "S3 said 503.")
        assert (chunk.attempts, chunk.interruptions) == (1, int(interrupted))
        assert (chunk.attempt_ended_at or "") > (chunk.started_at or "")
        assert scene.start().attempts == 2

    def test_every_attempt_leaves_its_error_and_the_latest_are_kept(self, scene: Scene) -> None:
        scene.split(1)
        for number in range(1, MAX_KEPT_ERRORS + 3):
            chunk = scene.start()
            if number != 5:  # the worker of the fifth one dies
                error = f"S3 said {number}. " + "x" * 500
                assert scene.ledger.end_attempt(chunk, error, interrupted=number == 7, duration_ms=number)
        last = scene.start()
        scene.ledger.fail_chunk(last, "The header is broken.", duration_ms=3)
        *_, before, latest = errors = scene.chunk().errors
        kept = [number for number in range(1, last.attempts + 1) if number != 5]
        assert [each.attempt for each in errors] == kept[-MAX_KEPT_ERRORS:]
        assert (latest.attempt, latest.error, latest.duration_ms) == (last.attempts, "The header is broken.", 3)
        assert before.duration_ms == MAX_KEPT_ERRORS + 2
        assert before.error.startswith(f"S3 said {MAX_KEPT_ERRORS + 2}. ")
        assert len(before.error.encode()) <= MAX_KEPT_ERROR_BYTES
        assert [each.attempt for each in errors if each.interrupted] == [7]

    def test_each_attempt_is_recorded_with_its_own_worker(self, scene: Scene) -> None:
        scene.split(2)
        scene.ledger.end_attempt(scene.start(worker="worker-1"), "S3 said 503.", interrupted=False)
        slow = scene.start(worker="worker-2")
        assert scene.start(worker="worker-3").worker == "worker-3"
        scene.ledger.fail_chunk(slow, "The header is broken.", duration_ms=3)
        assert [(each.attempt, each.worker) for each in scene.chunk().errors] == [(1, "worker-1"), (2, "worker-2")]
        scene.start(1, worker="worker-1")
        assert scene.start(1).worker is None, "a worker without a name does not go by that of another one"

    def test_a_worker_that_was_presumed_dead_does_not_give_back_a_chunk_of_another_one(self, scene: Scene) -> None:
        scene.split(1)
        slow = scene.start()
        scene.start()
        assert not scene.ledger.end_attempt(slow, "late", interrupted=False)
        assert (scene.chunk().state, scene.chunk().last_error) == (ChunkStatus.IN_PROGRESS, None)

    @pytest.mark.parametrize("ending", ["complete", "fail"])
    def test_a_chunk_that_has_ended_is_not_given_back(self, scene: Scene, ending: str) -> None:
        scene.split(1)
        slow = scene.start()
        getattr(scene, ending)()
        assert not scene.ledger.end_attempt(slow, "late", interrupted=True)
        assert scene.chunk().state.terminal

    def test_the_reason_why_no_attempt_begins_is_recorded_until_the_chunk_has_ended(self, scene: Scene) -> None:
        scene.split(1)
        scene.ledger.record_error(scene.run_id, scene.chunk_id(), "The GPU is down.")
        assert (scene.chunk().last_error, scene.chunk().attempts) == ("The GPU is down.", 0)
        scene.complete()
        scene.ledger.record_error(scene.run_id, scene.chunk_id(), "late")
        assert scene.chunk().last_error == "The GPU is down."

    def test_the_progress_of_an_attempt_is_recorded_until_it_ends(self, scene: Scene) -> None:
        scene.split(2)
        chunk, other = scene.start(0), scene.start(1)
        assert scene.ledger.report_progress(chunk, 3)
        assert scene.ledger.report_progress(chunk, 5)
        assert scene.ledger.report_progress(other, 2)
        assert (scene.chunk(0).n_done, scene.ledger.items_done(scene.run_id)) == (5, 7)
        scene.complete(0)
        assert not scene.ledger.report_progress(chunk, 6)
        assert (scene.chunk(0).n_done, scene.ledger.items_done(scene.run_id)) == (0, 2)

    def test_an_attempt_that_was_presumed_dead_does_not_report_progress_for_the_next_one(self, scene: Scene) -> None:
        scene.split(1)
        first = scene.start()
        assert scene.ledger.report_progress(first, 3)
        second = scene.start()
        assert second.n_done == 0
        assert not scene.ledger.report_progress(first, 4)
        assert scene.ledger.report_progress(second, 1)
        assert scene.chunk().n_done == 1

    def test_a_message_about_an_unknown_chunk_is_a_permanent_error_and_creates_no_item(self, scene: Scene) -> None:
        with pytest.raises(PermanentError, match="no chunk-0000000 of run"):
            scene.ledger.start_chunk(scene.run_id, scene.chunk_id())
        scene.split(1)
        with pytest.raises(PermanentError, match="no chunk-0000009"):
            scene.ledger.start_chunk(scene.run_id, "chunk-0000009")
        scene.ledger.record_error(scene.run_id, "chunk-0000009", "e")
        assert scene.ledger.count_chunks(scene.run_id) == 1


@pytest.mark.emulator
class TestEndings:
    def test_a_completed_chunk_has_the_key_of_its_output(self, scene: Scene) -> None:
        scene.split(1)
        done = scene.ledger.complete_chunk(
            scene.start(), Outcome("out/0", n_timed_out=2, summary="x" * 2000), duration_ms=7
        )
        chunk = scene.chunk()
        assert done.changed
        assert done.chunk == chunk
        assert (chunk.output_key, chunk.duration_ms, chunk.n_timed_out) == ("out/0", 7, 2)
        assert len((chunk.summary or "").encode()) <= MAX_SUMMARY_BYTES
        assert (done.run, scene.run.n_timed_out) == (scene.run, 2)

    def test_each_attempt_and_its_duration_are_added_to_the_runs_costs_once(self, scene: Scene) -> None:
        scene.split(2)
        assert scene.ledger.counts(scene.run).costs is None
        scene.ledger.end_attempt(scene.start(), "S3 said 503.", interrupted=True, duration_ms=10)
        slow = scene.start()
        failed = scene.ledger.fail_chunk(scene.start(), "It is broken.", duration_ms=5)
        assert scene.ledger.counts(failed.run).costs == Costs(15, 3, 0)
        assert scene.ledger.reopen_chunk(failed.chunk, "recovery")
        scene.ledger.give_up_chunk(scene.chunk(), "No more.")
        assert scene.ledger.counts(scene.run).costs == Costs(15, 3, 0), "there was no attempt since"
        assert scene.ledger.complete_chunk(slow, Outcome("o", n_bytes=7), duration_ms=100).late
        scene.ledger.complete_chunk(slow, Outcome("o", n_bytes=7), duration_ms=100)
        assert scene.ledger.counts(scene.run).costs == Costs(115, 3, 7)
        assert scene.chunk().n_bytes == 7

    def test_a_failed_chunk_has_its_error_and_the_duration_of_its_attempt(self, scene: Scene) -> None:
        scene.split(1)
        failed = scene.ledger.fail_chunk(scene.start(), "x" * 5000, duration_ms=7)
        assert failed.changed
        assert failed.chunk == scene.chunk()
        assert scene.chunk().duration_ms == 7
        assert len((scene.chunk().error or "").encode()) <= MAX_CHUNK_ERROR_BYTES

    @pytest.mark.parametrize("ending", ["complete", "fail"])
    def test_counters_equal_the_items_when_a_worker_dies_while_it_ends_a_chunk(self, scene: Scene, ending: str) -> None:
        scene.split(1)
        chunk = scene.start()
        end = {
            "complete": lambda: scene.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1),
            "fail": lambda: scene.ledger.fail_chunk(chunk, "e"),
        }[ending]
        for _ in dying(scene.dynamodb, end):
            assert scene.counters() == scene.states()
        assert end().run.drained_at is not None, "the redelivery does the rest"
        assert scene.run.drains == 1

    def test_counters_equal_the_items_when_a_worker_dies_during_a_late_success(self, scene: Scene) -> None:
        scene.split(2)
        scene.fail(0)
        scene.fail(1)
        scene.close("failed")
        chunk = scene.chunk(0)
        complete = lambda: scene.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1)  # noqa: E731
        for _ in dying(scene.dynamodb, complete):
            assert scene.counters() == scene.states()
            assert scene.is_open == (scene.counters() == (1, 1))

    @pytest.mark.parametrize("ending", ["complete", "fail"])
    def test_an_ending_counts_once(self, scene: Scene, ending: str) -> None:
        scene.split(2)
        assert getattr(scene, ending)().changed
        again = getattr(scene, ending)()
        assert not again.changed
        assert sum(scene.counters()) == 1
        assert again.chunk == scene.chunk()

    def test_a_chunk_that_another_worker_has_just_ended_counts_once(self, scene: Scene) -> None:
        scene.split(2)
        chunk = scene.start()
        with before_request(scene.dynamodb, 0, scene.complete):
            done = scene.ledger.complete_chunk(chunk, Outcome("mine"), duration_ms=1)
        assert not done.changed
        assert done.chunk.output_key == "o", "the call returns the chunk in the table"
        assert scene.counters() == (1, 0)

    def test_a_completed_chunk_cannot_fail(self, scene: Scene) -> None:
        scene.split(1)
        chunk = scene.start()
        scene.complete()
        assert not scene.ledger.fail_chunk(chunk, "too late").changed
        assert scene.counters() == (1, 0)
        assert scene.chunk().error is None

    def test_a_late_success_moves_the_count_and_its_end_is_announced_again(self, scene: Scene) -> None:
        scene.split(2)
        scene.complete(1)
        scene.ledger.give_up_chunk(scene.chunk(), "given up", announcement_pending=True)
        scene.close("failed")
        assert not scene.is_open
        late = scene.complete()
        assert (late.changed, late.late) == (True, True)
        assert (late.chunk, late.run) == (scene.chunk(), scene.run)
        assert scene.counters() == (2, 0)
        assert (scene.chunk().error, scene.chunk().announcement_pending) == (None, True)
        assert scene.is_open
        assert (scene.run.ended_at, scene.run.ended_status) == (None, None)
        assert scene.run.drained_at is not None

    def test_a_first_success_is_not_late(self, scene: Scene) -> None:
        scene.split(1)
        assert not scene.complete().late

    def test_a_given_up_chunk_can_still_be_completed_by_a_worker_that_read_it_before(self, scene: Scene) -> None:
        scene.split(1)
        chunk = scene.start()
        scene.fail()
        assert scene.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1).late


HAPPENINGS = {
    "started": lambda scene: scene.start(),
    "given back": lambda scene: scene.ledger.end_attempt(scene.chunk(), "e", interrupted=False),
    "interrupted": lambda scene: scene.ledger.end_attempt(scene.chunk(), "e", interrupted=True),
    "deferred": lambda scene: scene.ledger.record_deferral(scene.run_id, scene.chunk_id()),
    "sent again": lambda scene: scene.ledger.record_resend(scene.chunk(), "lost"),
    "completed": lambda scene: scene.complete(),
    "failed": lambda scene: scene.fail(),
}


@pytest.mark.emulator
class TestGivingUp:
    def test_a_chunk_that_does_not_change_is_given_up(self, scene: Scene) -> None:
        scene.split(2)
        given_up = scene.ledger.give_up_chunk(scene.start(), "No more.", announcement_pending=True)
        assert given_up.changed
        assert (scene.chunk().state, scene.chunk().error, scene.chunk().announcement_pending) == (
            ChunkStatus.FAILED,
            "No more.",
            True,
        )
        assert scene.counters() == (0, 1)
        assert not scene.ledger.give_up_chunk(scene.start(1), "No more.").chunk.announcement_pending

    @pytest.mark.parametrize("happening", HAPPENINGS)
    @pytest.mark.parametrize("in_between", [True, False])
    def test_a_chunk_that_has_changed_since_it_was_read_is_not_given_up(
        self, scene: Scene, happening: str, in_between: bool
    ) -> None:
        scene.split(2)
        read = scene.start()
        if in_between:
            with before_request(scene.dynamodb, 0, lambda: HAPPENINGS[happening](scene)):
                outcome = scene.ledger.give_up_chunk(read, "No more.")
        else:
            HAPPENINGS[happening](scene)
            outcome = scene.ledger.give_up_chunk(read, "No more.")
        assert not outcome.changed
        assert scene.chunk().error != "No more."
        assert scene.counters() == scene.states()

    @pytest.mark.parametrize("happening", ["started", "deferred", "sent again", "completed", "failed"])
    def test_a_waiting_chunk_that_has_changed_is_not_given_up_either(self, scene: Scene, happening: str) -> None:
        scene.split(2)
        scene.ledger.end_attempt(scene.start(), "e", interrupted=False)
        read = scene.chunk()
        HAPPENINGS[happening](scene)
        assert not scene.ledger.give_up_chunk(read, "No more.").changed
        assert scene.chunk().error != "No more."

    def test_an_attempt_that_began_and_was_given_back_is_noticed_too(self, scene: Scene) -> None:
        scene.split(1)
        read = scene.chunk()
        scene.ledger.end_attempt(scene.start(), "e", interrupted=False)
        assert read.state is scene.chunk().state
        assert not scene.ledger.give_up_chunk(read, "No more.").changed


@pytest.mark.emulator
class TestDraining:
    def test_a_run_drains_with_its_last_chunk(self, scene: Scene) -> None:
        scene.split(2)
        assert scene.complete(0).run.drained_at is None
        run = scene.fail(1).run
        assert (run.drained_at is not None, run.drains) == (True, 1)
        assert run == scene.run == scene.complete(0).run, "a later call returns the same"

    def test_a_run_that_is_not_latched_does_not_drain(self, scene: Scene) -> None:
        scene.split(1, latch=False)
        assert scene.complete().run.drained_at is None
        assert scene.ledger.drain(scene.run_id).drained_at is None

    @pytest.mark.parametrize("requests", [1, 2])
    def test_two_workers_that_end_the_last_chunks_at_once_drain_the_run_once(self, scene: Scene, requests: int) -> None:
        scene.split(2)
        with before_request(scene.dynamodb, requests, lambda: scene.complete(1)):
            scene.complete(0)
        scene.ledger.drain(scene.run_id)
        assert (scene.run.drained_at is not None, scene.run.drains) == (True, 1)
        assert scene.counters() == (2, 0)

    def test_two_writers_that_see_the_end_at_once_drain_the_run_once(self, scene: Scene) -> None:
        scene.split(1)
        chunk = scene.start()
        with before_request(
            scene.dynamodb, 2, lambda: scene.ledger.drain(scene.run_id)
        ):  # requests: the end, the read, the drain
            run = scene.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1).run
        assert run == scene.run
        assert scene.run.drains == 1

    def test_a_run_whose_chunk_is_reopened_just_before_it_drains_does_not_drain(self, scene: Scene) -> None:
        scene.split(2)
        scene.fail(0)
        reopen = lambda: scene.ledger.reopen_chunk(scene.chunk(0), "op")  # noqa: E731
        chunk = scene.chunk(1)
        with before_request(scene.dynamodb, 2, reopen):  # requests: the end, the read, the drain
            run = scene.ledger.complete_chunk(chunk, Outcome("o"), duration_ms=1).run
        assert run.drained_at is scene.run.drained_at is None
        assert scene.complete(0).run.drains == 1

    def test_a_run_that_drains_after_it_was_stopped_and_closed_is_opened_again(self, scene: Scene) -> None:
        scene.split(1)
        scene.ledger.stop_run(scene.run_id, "failed")
        scene.close("failed")
        scene.complete()
        assert (scene.run.drained_at is not None, scene.run.ended_at, scene.run.ended_status) == (True, None, None)
        assert scene.is_open

    def test_chunks_of_many_workers_at_once_all_count_and_the_run_drains_once(self, scene: Scene) -> None:
        scene.split(12)

        def work(number: int) -> None:
            for _ in range(5):  # a write that collides for too long is a transient error: SQS redelivers the message
                with suppress(TransientError):
                    scene.ledger.start_chunk(scene.run_id, scene.chunk_id(number))
                    scene.complete(number)
                    return
            raise AssertionError(f"{number} collided five times")

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(work, [*range(12)] * 2))
        run = scene.run
        assert (run.chunks_completed, run.chunks_failed, run.drained_at is not None, run.drains) == (12, 0, True, 1)


@pytest.mark.emulator
class TestSlowLane:
    def test_a_refit_before_the_completion_is_a_transient_error(self, scene: Scene) -> None:
        scene.split(1)
        scene.start()
        with pytest.raises(TransientError, match="IN_PROGRESS"):
            scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=0)

    def test_rows_are_counted_down_and_never_up(self, scene: Scene) -> None:
        scene.split(2)
        scene.complete(0, n_timed_out=5)
        scene.complete(1, n_timed_out=1)
        changes = [
            scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=remaining)
            for remaining in (3, 3, 4, 5, 0, 1)
        ]
        assert changes == [True, False, False, False, True, False]
        assert (scene.chunk().n_timed_out, scene.run.n_timed_out) == (0, 1)

    @pytest.mark.parametrize(("mine", "other"), [(2, 1), (1, 2), (0, 0)])
    def test_of_two_overlapping_patches_the_smaller_number_of_rows_stays(
        self, scene: Scene, mine: int, other: int
    ) -> None:
        scene.split(1)
        scene.complete(n_timed_out=3)
        record = lambda remaining: scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=remaining)  # noqa: E731
        with before_request(scene.dynamodb, 1, lambda: record(other)):
            record(mine)
        assert scene.chunk().n_timed_out == scene.run.n_timed_out == min(mine, other)

    def test_rows_that_are_given_up_move_from_one_counter_to_the_other(self, scene: Scene) -> None:
        scene.split(2)
        scene.complete(0, n_timed_out=3)
        scene.complete(1, n_timed_out=1)
        assert scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(), "Its input is gone.")
        assert (scene.run.n_timed_out, scene.run.n_refit_failed) == (1, 3)
        chunk = scene.chunk()
        assert (chunk.n_timed_out, chunk.n_refit_failed, chunk.refit_error) == (0, 3, "Its input is gone.")
        assert chunk.state is ChunkStatus.COMPLETED
        assert not scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(), "again")
        assert scene.chunk() == chunk

    def test_rows_that_are_fitted_after_they_were_given_up_do_not_wait_again(self, scene: Scene) -> None:
        scene.split(1)
        scene.complete(n_timed_out=3)
        scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(), "e")
        scene.close()
        assert scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=1)
        assert (scene.run.n_timed_out, scene.run.n_refit_failed) == (0, 1)
        assert (scene.chunk().n_timed_out, scene.chunk().n_refit_failed, scene.chunk().refit_error) == (0, 1, "e")
        assert scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=0)
        assert (scene.run.n_refit_failed, scene.chunk().refit_error) == (0, None)

    @pytest.mark.parametrize(("mine", "other"), [(1, 2), (2, 1)])
    def test_of_two_patches_of_given_up_rows_the_smaller_number_stays(
        self, scene: Scene, mine: int, other: int
    ) -> None:
        scene.split(1)
        scene.complete(n_timed_out=3)
        scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(), "e")
        record = lambda remaining: scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=remaining)  # noqa: E731
        with before_request(scene.dynamodb, 1, lambda: record(other)):
            record(mine)
        assert scene.chunk().n_refit_failed == scene.run.n_refit_failed == 1

    def test_the_runs_counters_equal_the_chunks_when_a_slow_lane_dies(self, scene: Scene) -> None:
        scene.split(1)
        scene.complete(n_timed_out=3)
        for call in (
            lambda: scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=1),
            lambda: scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(), "e"),
        ):
            for _ in dying(scene.dynamodb, call):
                assert scene.run.n_timed_out == scene.chunk().n_timed_out
                assert scene.run.n_refit_failed == scene.chunk().n_refit_failed
        assert scene.run.n_refit_failed == 1
