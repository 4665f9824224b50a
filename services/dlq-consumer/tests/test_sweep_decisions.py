"""What a sweep decides about a run and its chunks, from their items and a clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import NoneType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.base import timestamp
from prismline_contracts.commands import ChunkProcess, Queue
from prismline_contracts.delivery import LIMITS as QUEUE_LIMITS
from prismline_contracts.items import ChunkItem, RunItem
from prismline_dlq_consumer.sweep_decisions import (
    AnnounceEnd,
    ChunkTotals,
    GiveUp,
    MessageLocation,
    Progress,
    Resend,
    ResendRefit,
    RunAnnouncement,
    SweepLimits,
    counters_unchanged,
    drift,
    due_announcement,
    refit_command,
    split_command,
    sweep_chunk,
    sweep_split,
    sweep_tasks,
    total_is_wrong,
)
from prismline_ledger import Patience
from prismline_ledger import testing as kit

LIMITS = SweepLimits(workload_lease_seconds={"captions": 60.0})
PATIENCE = Patience(max_attempts=5, seconds=7200.0)
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = 3600.0, 86_400.0


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def at(seconds: float) -> str:
    return timestamp(after(seconds))


def run_item(**fields: Any) -> RunItem:
    base = {
        "PK": "r",
        "GSI1_PK": "s",
        "GSI1_SK": at(0),
        "survey": "s",
        "workload": "spectra",
        "job_id": "j",
        "created_at": at(0),
        "latched_at": at(0),
        "manifest_key": "manifests/m.json",
        "chunks_total": 1,
    }
    return RunItem.model_validate({name: value for name, value in (base | fields).items() if value is not None})


STOPPED = run_item(cancelled_at=at(0), stop_reason="failed")


def chunk_item(status: str = "PENDING", **fields: Any) -> ChunkItem:
    return kit.chunk_item(status, **{"created_at": at(0)} | fields)


def begun(**fields: Any) -> ChunkItem:
    first = fields.get("started_at", at(0))
    return chunk_item("IN_PROGRESS", **{"started_at": at(0), "first_started_at": first, "attempts": 1} | fields)


def unfitted(**fields: Any) -> ChunkItem:
    return chunk_item("COMPLETED", **{"completed_at": at(0), "output_key": "out/0", "n_timed_out": 3} | fields)


def decide(
    chunk: ChunkItem, now: datetime, *, run: RunItem | None = None, location: MessageLocation = MessageLocation.NOWHERE
) -> object:
    return sweep_chunk(chunk, run or run_item(), now, PATIENCE, LIMITS, lambda _: location)


class TestDeadWorkers:
    def test_a_chunk_is_its_workers_until_the_lease_has_run_out(self) -> None:
        assert decide(begun(), after(1200)) is None
        assert decide(begun(), after(1201)) == Resend("Its worker did not end it within 20 minutes.")

    def test_the_lease_outlasts_every_worker(self) -> None:
        assert decide(begun(), after(QUEUE_LIMITS[Queue.CHUNKS].function_seconds + 1)) is None

    def test_a_dead_worker_is_noticed_before_its_message_is_seen_again(self) -> None:
        assert decide(begun(), after(QUEUE_LIMITS[Queue.CHUNKS].visibility_seconds)) == Resend(
            "Its worker did not end it within 20 minutes."
        )

    def test_a_workload_has_a_lease_of_its_own(self) -> None:
        captions = run_item(workload="captions")
        assert decide(begun(), after(60), run=captions) is None
        assert decide(begun(), after(61), run=captions) == Resend("Its worker did not end it within 60 seconds.")

    def test_the_lease_begins_with_the_latest_attempt(self) -> None:
        assert decide(begun(started_at=at(5000), first_started_at=at(0)), after(6200)) is None

    def test_a_chunk_whose_attempts_and_time_are_used_up_is_given_up_with_its_last_error(self) -> None:
        chunk = begun(attempts=5, started_at=at(6000), first_started_at=at(0), last_error="The kernel died.")
        assert decide(chunk, after(7200)) is None, "its worker may still be at it"
        assert decide(chunk, after(7201)) == GiveUp("The kernel died. Given up after 5 attempts.")

    def test_a_chunk_that_used_up_its_attempts_quickly_is_sent_again(self) -> None:
        assert isinstance(decide(begun(attempts=5), after(7199)), Resend)
        assert isinstance(decide(begun(attempts=5), after(7200)), GiveUp)

    def test_attempts_that_an_outage_cut_short_do_not_count(self) -> None:
        assert isinstance(decide(begun(attempts=5, interruptions=1), after(DAY)), Resend)

    def test_a_chunk_that_a_dead_worker_held_before_the_latch_is_sent_again(self) -> None:
        assert isinstance(decide(begun(), after(1201), run=run_item(latched_at=None)), Resend)


class TestLostMessages:
    @pytest.mark.parametrize(
        ("location", "seconds"),
        [(MessageLocation.NOWHERE, 300), (MessageLocation.DEAD_LETTERS, HOUR), (MessageLocation.QUEUE, DAY)],
    )
    def test_how_long_silence_may_last_depends_on_where_messages_are(
        self, location: MessageLocation, seconds: float
    ) -> None:
        assert decide(chunk_item(), after(seconds), location=location) is None
        assert isinstance(decide(chunk_item(), after(seconds + 1), location=location), Resend)

    @pytest.mark.parametrize(("resends", "days"), [(0, 1), (1, 2), (2, 4), (3, 7), (4, 7), (10_000, 7)])
    def test_a_backlog_is_given_more_time_with_every_resend_up_to_a_week(self, resends: int, days: int) -> None:
        chunk = chunk_item(resends=resends, sent_at=at(0))
        assert decide(chunk, after(days * DAY), location=MessageLocation.QUEUE) is None
        assert isinstance(decide(chunk, after(days * DAY + 1), location=MessageLocation.QUEUE), Resend)

    def test_a_message_is_found_missing_before_a_queue_would_have_expired_its_copy(self) -> None:
        assert LIMITS.longest_seconds < QUEUE_LIMITS[Queue.CHUNKS].retention_seconds
        assert LIMITS.longest_seconds < QUEUE_LIMITS[Queue.REFITS].retention_seconds

    @pytest.mark.parametrize("sign", ["sent_at", "started_at", "attempt_ended_at", "deferred_at"])
    def test_silence_begins_with_the_last_write_about_the_chunk(self, sign: str) -> None:
        chunk = chunk_item(**{sign: at(1000)})
        assert decide(chunk, after(1300)) is None
        assert isinstance(decide(chunk, after(1301)), Resend)

    def test_a_lost_message_is_never_a_reason_to_fail(self) -> None:
        chunk = chunk_item(attempts=50, resends=50, first_started_at=at(0), started_at=at(0), attempt_ended_at=at(0))
        assert isinstance(decide(chunk, after(365 * DAY)), Resend)

    @pytest.mark.parametrize("location", [MessageLocation.QUEUE, MessageLocation.DEAD_LETTERS])
    def test_a_chunk_whose_attempts_ended_waits_in_a_backlog_and_does_not_fail(self, location: MessageLocation) -> None:
        chunk = chunk_item(attempts=5, first_started_at=at(0), started_at=at(0), attempt_ended_at=at(1))
        assert decide(chunk, after(HOUR), location=location) is None

    def test_a_chunk_of_a_run_that_is_still_being_split_waits(self) -> None:
        assert decide(chunk_item(), after(365 * DAY), run=run_item(latched_at=None)) is None

    @pytest.mark.parametrize("chunk", [chunk_item(), begun(attempts=9), unfitted()])
    def test_a_stopped_run_is_left_alone(self, chunk: ChunkItem) -> None:
        assert decide(chunk, after(365 * DAY), run=STOPPED) is None

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
    def test_a_chunk_that_has_ended_is_left_alone(self, status: str) -> None:
        assert decide(chunk_item(status), after(365 * DAY)) is None

    def test_queues_are_not_asked_where_their_answer_makes_no_difference(self) -> None:
        def asked(_: Queue) -> MessageLocation:
            raise AssertionError("nobody has to ask")

        for chunk, now, expected in [
            (chunk_item(), after(300), NoneType),
            (begun(), after(DAY), Resend),
            (unfitted(), after(300), NoneType),
        ]:
            decided = sweep_chunk(chunk, run_item(), now, PATIENCE, LIMITS, asked)
            assert isinstance(decided, expected)

    @given(
        st.lists(
            st.tuples(
                st.floats(0, 10 * DAY), st.sampled_from(MessageLocation), st.sampled_from(["lost", "died", "gave back"])
            ),
            max_size=40,
        )
    )
    def test_whatever_happens_a_chunk_is_sent_once_and_then_given_time(
        self, story: list[tuple[float, MessageLocation, str]]
    ) -> None:
        """Each step: something happens to the chunk, time passes, and a sweep comes by."""
        chunk, now = chunk_item(), START
        for seconds, location, fate in story:
            if fate != "lost":
                moment = timestamp(now)
                fields = {"started_at": moment, "first_started_at": chunk.first_started_at or moment}
                chunk = chunk.model_copy(update=fields | {"status": "IN_PROGRESS", "attempts": chunk.attempts + 1})
            if fate == "gave back":
                chunk = chunk.model_copy(update={"status": "PENDING", "attempt_ended_at": timestamp(now)})
            now += timedelta(seconds=seconds)
            decision = decide(chunk, now, location=location)
            if isinstance(decision, GiveUp):
                assert chunk.status == "IN_PROGRESS", "a worker had it and died"
                assert chunk.attempts >= PATIENCE.max_attempts
                return
            if isinstance(decision, Resend):
                fields = {"status": "PENDING", "sent_at": timestamp(now), "resends": chunk.resends + 1}
                chunk = chunk.model_copy(update=fields)
                assert decide(chunk, now + timedelta(seconds=LIMITS.idle_seconds - 1)) is None


class TestEndsThatWereNotSaid:
    @pytest.mark.parametrize("run", [run_item(), STOPPED, run_item(ended_at=at(0))])
    @pytest.mark.parametrize(
        "chunk",
        [
            chunk_item("FAILED", unsaid=True, error="The kernel died.", completed_at=at(0)),
            chunk_item("COMPLETED", unsaid=True, output_key="o", n_timed_out=1, completed_at=at(0)),
        ],
    )
    def test_an_end_that_was_not_announced_is_announced_whatever_the_run_does(
        self, chunk: ChunkItem, run: RunItem
    ) -> None:
        assert decide(chunk, START, run=run) == AnnounceEnd()


class TestSlowLane:
    @pytest.mark.parametrize(
        ("location", "seconds"),
        [(MessageLocation.NOWHERE, 300), (MessageLocation.DEAD_LETTERS, HOUR), (MessageLocation.QUEUE, DAY)],
    )
    def test_rows_that_nobody_refits_are_sent_again(self, location: MessageLocation, seconds: float) -> None:
        assert decide(unfitted(), after(seconds), location=location) is None
        assert isinstance(decide(unfitted(), after(seconds + 1), location=location), ResendRefit)

    def test_a_resend_restarts_the_silence(self) -> None:
        assert decide(unfitted(refit_sent_at=at(1000)), after(1300)) is None
        assert isinstance(decide(unfitted(refit_sent_at=at(1000)), after(1301)), ResendRefit)

    def test_a_backlog_is_given_more_time_with_every_resend_up_to_a_week(self) -> None:
        chunk, sent = unfitted(), [0]
        for hour in range(1, 30 * 24):
            if decide(chunk, after(hour * HOUR + 1), location=MessageLocation.QUEUE):
                chunk = chunk.model_copy(update={"refit_sent_at": at(hour * HOUR + 1)})
                sent.append(hour)
        waits = [later - earlier for earlier, later in pairwise(sent)]
        assert waits[0] == 24
        assert waits == sorted(waits)
        assert max(waits) <= 7 * 24 + 1
        assert len(waits) <= 7, "in a month"

    def test_rows_that_were_given_up_are_not_sent_again(self) -> None:
        assert decide(unfitted(n_timed_out=0, n_refit_failed=3), after(365 * DAY)) is None


class TestSplit:
    def test_a_run_that_was_never_latched_is_split_again(self) -> None:
        run = run_item(latched_at=None)
        assert sweep_split(run, after(2400), LIMITS) is None
        assert sweep_split(run, after(2401), LIMITS) == Resend("The run was not split within 40 minutes.")
        again = run_item(latched_at=None, split_sent_at=at(2401), split_resends=1)
        assert sweep_split(again, after(4801), LIMITS) is None
        assert isinstance(sweep_split(again, after(4802), LIMITS), Resend)

    def test_a_split_is_never_given_up(self) -> None:
        run = run_item(latched_at=None, split_resends=10_000)
        assert isinstance(sweep_split(run, after(365 * DAY), LIMITS), Resend)

    @pytest.mark.parametrize(
        "fields", [{}, {"latched_at": None, "cancelled_at": at(0)}, {"latched_at": None, "manifest_key": None}]
    )
    def test_a_run_that_is_latched_or_stopped_or_has_no_manifest_is_not_split_again(
        self, fields: dict[str, Any]
    ) -> None:
        assert sweep_split(run_item(**fields), after(365 * DAY), LIMITS) is None


class TestResumedRuns:
    """Workers acknowledge the messages of a stopped run without work."""

    def test_a_skipped_chunk_is_sent_after_the_shortest_wait_though_the_queue_has_a_backlog(self) -> None:
        run = run_item(resumed_at=at(HOUR))
        assert decide(chunk_item(), after(HOUR + 300), run=run, location=MessageLocation.QUEUE) is None
        assert isinstance(decide(chunk_item(), after(HOUR + 301), run=run, location=MessageLocation.QUEUE), Resend)

    def test_a_chunk_that_was_sent_or_tried_since_waits_like_any_other(self) -> None:
        run = run_item(resumed_at=at(HOUR))
        for since in ({"sent_at": at(HOUR)}, {"attempt_ended_at": at(HOUR + 1)}, {"deferred_at": at(HOUR + 1)}):
            assert decide(chunk_item(**since), after(2 * HOUR), run=run, location=MessageLocation.QUEUE) is None

    def test_skipped_tasks_are_sent_after_the_shortest_wait_though_the_queue_has_a_backlog(self) -> None:
        run = run_item(unit="task", resumed_at=at(HOUR), progress_at=at(10), progress_ended=3)
        assert sweep_tasks(run, 5, after(HOUR + 300), LIMITS, tasks=lambda: MessageLocation.QUEUE) == Progress()
        due = sweep_tasks(run, 5, after(HOUR + 301), LIMITS, tasks=lambda: MessageLocation.QUEUE)
        assert (due.record, due.resend is not None) == (5, True)
        sent = run.model_copy(update={"progress_at": at(HOUR + 301), "progress_ended": 5, "task_resends": 1})
        assert sweep_tasks(sent, 5, after(3 * HOUR), LIMITS, tasks=lambda: MessageLocation.QUEUE) == Progress()


class TestNews:
    def test_a_run_that_goes_on_is_looked_at_every_quarter_of_an_hour(self) -> None:
        assert due_announcement(run_item(), after(900), LIMITS) is None
        assert due_announcement(run_item(), after(901), LIMITS) is RunAnnouncement.CHECK
        assert due_announcement(run_item(checked_at=at(901)), after(1801), LIMITS) is None
        assert due_announcement(run_item(checked_at=at(901)), after(1802), LIMITS) is RunAnnouncement.CHECK

    def test_a_drained_run_is_announced_until_its_end_is_recorded(self) -> None:
        drained = run_item(drained_at=at(0), checked_at=at(0))
        assert due_announcement(drained, START, LIMITS) is RunAnnouncement.DRAINED
        assert due_announcement(drained, after(365 * DAY), LIMITS) is RunAnnouncement.DRAINED
        assert due_announcement(drained.model_copy(update={"ended_at": at(1)}), after(365 * DAY), LIMITS) is None

    def test_a_stopped_run_is_looked_at_until_its_end_is_recorded(self) -> None:
        stopped = STOPPED.model_copy(update={"checked_at": at(0)})
        assert due_announcement(stopped, START, LIMITS) is RunAnnouncement.CHECK
        assert due_announcement(stopped.model_copy(update={"ended_at": at(1)}), after(365 * DAY), LIMITS) is None

    def test_a_stopped_run_that_drained_is_announced(self) -> None:
        assert (
            due_announcement(STOPPED.model_copy(update={"drained_at": at(1)}), START, LIMITS) is RunAnnouncement.DRAINED
        )


def totals_of(chunks: Iterable[ChunkItem]) -> ChunkTotals:
    counted = ChunkTotals()
    for chunk in chunks:
        counted.add(chunk)
    return counted


def numbered(number: int, status: str, **fields: Any) -> ChunkItem:
    return chunk_item(status, SK=f"CHUNK#chunk-{number:07d}", **fields)


class TestCounters:
    CHUNKS = (
        numbered(0, "COMPLETED", completed_at=at(1), n_timed_out=2),
        numbered(1, "COMPLETED", completed_at=at(1), n_timed_out=1, n_refit_failed=4),
        numbered(2, "FAILED", completed_at=at(1)),
        numbered(3, "PENDING"),
        numbered(4, "IN_PROGRESS"),
    )
    RIGHT: ClassVar = {"chunks_completed": 2, "chunks_failed": 1, "n_timed_out": 3, "n_refit_failed": 4}

    def test_counters_that_agree_with_the_items_are_right(self) -> None:
        run = run_item(**self.RIGHT, chunks_total=5)
        assert drift(run, totals_of(self.CHUNKS)) == {}
        assert not total_is_wrong(run, totals_of(self.CHUNKS))

    @pytest.mark.parametrize("counter", sorted(RIGHT))
    def test_each_counter_that_disagrees_is_named_with_what_it_should_be(self, counter: str) -> None:
        run = run_item(**{**self.RIGHT, counter: 9})
        assert drift(run, totals_of(self.CHUNKS)) == {counter: self.RIGHT[counter]}

    def test_a_total_is_compared_once_there_is_one(self) -> None:
        assert total_is_wrong(run_item(chunks_total=4), totals_of(self.CHUNKS))
        assert not total_is_wrong(run_item(chunks_total=None, latched_at=None), totals_of(self.CHUNKS))

    @pytest.mark.parametrize(
        "number", ["chunks_completed", "chunks_failed", "n_timed_out", "n_refit_failed", "chunks_total"]
    )
    def test_a_run_whose_numbers_move_is_not_compared(self, number: str) -> None:
        run = run_item(**self.RIGHT)
        assert counters_unchanged(run, run.model_copy(update={"checked_at": at(7)}))
        assert not counters_unchanged(run, run.model_copy(update={number: 7}))

    @pytest.mark.parametrize(
        "changed",
        [
            numbered(3, "FAILED", completed_at=at(2)),
            numbered(2, "FAILED", completed_at=at(2), recovery="op"),
            numbered(2, "PENDING", recovery="op"),
            numbered(0, "COMPLETED", completed_at=at(1), n_timed_out=1),
            numbered(0, "COMPLETED", completed_at=at(1), n_refit_failed=2),
            numbered(5, "PENDING"),
        ],
    )
    def test_items_that_changed_in_between_do_not_confirm_a_count(self, changed: ChunkItem) -> None:
        by_id = {chunk.SK: chunk for chunk in self.CHUNKS}
        assert not totals_of((by_id | {changed.SK: changed}).values()).confirms(totals_of(self.CHUNKS))

    def test_attempts_do_not_keep_a_count_from_being_confirmed(self) -> None:
        later = [chunk.model_copy(update={"attempts": 9, "sent_at": at(9)}) for chunk in self.CHUNKS]
        assert totals_of(later).confirms(totals_of(self.CHUNKS))


class TestMessages:
    def test_a_chunks_command_is_the_splitters_once_more(self) -> None:
        run = run_item(params='{"beta": 4.0, "preset": "best"}', params_given='{"beta": 4.0}', max_concurrency=2)
        command = ChunkProcess.of(begun(deferrals=7), run, "bucket", attempt=3)
        assert (command.attempt, command.deferrals, command.max_concurrency) == (3, 7, 2)
        assert command.params == {"beta": 4.0}
        assert (command.chunk_key, command.bucket, command.n_items) == ("in/0", "bucket", 1)

    def test_a_refit_asks_for_every_row_that_the_output_says_is_left(self) -> None:
        command = refit_command(unfitted(), run_item(params='{"beta": 4.0}'), "bucket")
        assert (command.chunk_key, command.output_key, command.bucket) == ("in/0", "out/0", "bucket")
        assert command.params.beta == 4.0
        assert command.rows == []

    def test_a_split_is_asked_for_with_the_runs_manifest(self) -> None:
        command = split_command(run_item(), "bucket")
        assert (command.run_id, command.job_id, command.manifest_key) == ("r", "j", "manifests/m.json")


def test_a_chunk_with_a_status_of_a_newer_release_is_left_alone() -> None:
    assert isinstance(decide(begun(attempts=9), after(DAY)), GiveUp)
    assert decide(begun(attempts=9).model_copy(update={"status": "ARCHIVED"}), after(DAY)) is None
