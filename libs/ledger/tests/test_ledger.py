"""What the ledger promises to each of its callers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts import MAX_CHUNK_ERROR_BYTES, ChunkStatus, timestamp
from prismline_ledger import Finished, Ledger, NewChunk, Skipped, Started, truncate
from prismline_runtime import PermanentError, TransientError

NewRunId = Callable[[], str]


def split(ledger: Ledger, run_id: str, n_chunks: int, *, survey: str = "s", latch: bool = True) -> list[str]:
    ledger.open_run(
        run_id=run_id, survey=survey, job_id="j", workload="spectra", params='{"beta": 4.0}', traceparent=None
    )
    chunks = [NewChunk(f"chunk-{n:07d}", f"in/{n}", 1) for n in range(n_chunks)]
    ledger.add_chunks(run_id, chunks)
    ledger.set_total(run_id, jobs_total=n_chunks, n_spectra=n_chunks, n_blank=0)
    if latch:
        ledger.latch(run_id)
    return [chunk.chunk_id for chunk in chunks]


@given(st.text())
def test_an_error_is_cut_to_what_an_item_holds(error: str) -> None:
    cut = truncate(error)
    assert len(cut.encode()) <= MAX_CHUNK_ERROR_BYTES
    assert cut == error or cut.endswith("…")


@given(st.text(min_size=500, alphabet="ü漢🜛"))
def test_a_long_error_is_cut_between_characters(error: str) -> None:
    assert error.startswith(truncate(error).removesuffix("…"))


@pytest.mark.emulator
class TestSplitter:
    def test_a_redelivered_split_leaves_chunks_that_progressed_alone(
        self, ledger: Ledger, new_run_id: NewRunId
    ) -> None:
        run_id = new_run_id()
        first, second, *_ = split(ledger, run_id, 120)
        ledger.start_chunk(run_id, first)
        ledger.complete_chunk(run_id, first, output_key="o", duration_ms=1)
        ledger.start_chunk(run_id, second)
        created = ledger.run(run_id).created_at
        split(ledger, run_id, 120)
        assert ledger.chunk(run_id, first).state is ChunkStatus.COMPLETED
        assert ledger.chunk(run_id, second).state is ChunkStatus.IN_PROGRESS
        assert ledger.run(run_id).jobs_completed == 1
        assert ledger.run(run_id).created_at == created
        assert sum(1 for _ in ledger.chunks(run_id)) == 120

    def test_a_half_written_split_is_filled_up(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        ledger.open_run(run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None)
        ledger.add_chunks(run_id, [NewChunk("chunk-0000003", "in/3", 1)])
        assert ledger.run(run_id).jobs_total is None
        assert len(split(ledger, run_id, 7)) == 7
        assert [c.chunk_id for c in ledger.chunks(run_id)] == [f"chunk-{n:07d}" for n in range(7)]

    def test_a_latched_total_cannot_be_changed(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        split(ledger, run_id, 2)
        ledger.set_total(run_id, jobs_total=2, n_spectra=2, n_blank=0)
        with pytest.raises(PermanentError, match="another number of chunks"):
            ledger.set_total(run_id, jobs_total=3, n_spectra=3, n_blank=0)

    def test_a_run_whose_chunks_all_ended_before_the_latch_drains_with_it(
        self, ledger: Ledger, new_run_id: NewRunId
    ) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1, latch=False)
        ledger.start_chunk(run_id, only)
        assert ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1) == Finished(True, None)
        drained = ledger.latch(run_id).drained
        assert drained is not None
        assert drained.drained_by == "split"
        assert ledger.latch(run_id).drained is not None, "a splitter that died before saying so has to be told again"


@pytest.mark.emulator
class TestWorker:
    def test_a_chunk_in_progress_may_be_started_again_after_its_worker_died(
        self, ledger: Ledger, new_run_id: NewRunId
    ) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        for attempt in (1, 2):
            started = ledger.start_chunk(run_id, only)
            assert isinstance(started, Started)
            assert started.chunk.attempts == attempt

    def test_a_cancelled_run_is_skipped(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        ledger.stop_run(run_id)
        cancelled_at = ledger.run(run_id).cancelled_at
        ledger.stop_run(run_id)
        assert isinstance(ledger.start_chunk(run_id, only), Skipped)
        assert ledger.chunk(run_id, only).attempts == 0
        assert ledger.run(run_id).cancelled_at == cancelled_at

    def test_a_late_success_moves_the_count(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        ledger.start_chunk(run_id, only)
        ledger.fail_chunk(run_id, only, "given up")
        assert ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1).changed
        run, chunk = ledger.run(run_id), ledger.chunk(run_id, only)
        assert (run.jobs_completed, run.jobs_failed) == (1, 0)
        assert chunk.error is None

    def test_a_completed_chunk_cannot_fail(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1)
        assert not ledger.fail_chunk(run_id, only, "too late").changed
        assert (ledger.run(run_id).jobs_completed, ledger.run(run_id).jobs_failed) == (1, 0)

    def test_the_drain_is_told_to_one_chunk_and_to_it_again(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        first, last = split(ledger, run_id, 2)
        assert ledger.complete_chunk(run_id, first, output_key="o", duration_ms=1).drained is None
        assert ledger.complete_chunk(run_id, last, output_key="o", duration_ms=1).drained is not None
        assert ledger.drained_by(run_id, first) is None
        assert ledger.drained_by(run_id, last) is not None

    def test_of_many_workers_at_once_each_counts_and_one_drains(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        chunk_ids = split(ledger, run_id, 12)
        told: set[str] = set()

        def work(chunk_id: str) -> None:
            for _ in range(5):  # a write that collides for too long is a transient error: the message comes again
                with suppress(TransientError):
                    ledger.start_chunk(run_id, chunk_id)
                    finished = ledger.complete_chunk(run_id, chunk_id, output_key="o", duration_ms=1)
                    if finished.drained:
                        told.add(chunk_id)
                    return
            raise AssertionError(f"{chunk_id} collided five times")

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(work, chunk_ids * 2))
        run = ledger.run(run_id)
        assert run.jobs_completed == run.jobs_total == 12
        assert told == {run.drained_by}

    def test_a_refit_before_the_completion_has_to_wait(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        ledger.start_chunk(run_id, only)
        with pytest.raises(TransientError, match="IN_PROGRESS"):
            ledger.record_refit(run_id, only, remaining=0)

    def test_the_slow_lane_is_counted_down(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        (only,) = split(ledger, run_id, 1)
        ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1, n_timed_out=3)
        assert ledger.run(run_id).n_timed_out == 3
        assert ledger.record_refit(run_id, only, remaining=1)
        assert not ledger.record_refit(run_id, only, remaining=1)
        assert ledger.run(run_id).n_timed_out == 1

    def test_a_message_about_nothing_is_a_permanent_error(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        with pytest.raises(PermanentError, match="no run"):
            ledger.start_chunk(run_id, "chunk-0000000")
        split(ledger, run_id, 1)
        with pytest.raises(PermanentError, match="no chunk-0000009"):
            ledger.start_chunk(run_id, "chunk-0000009")


@pytest.mark.emulator
class TestReads:
    def test_stuck_chunks_are_those_that_began_long_ago_and_never_ended(
        self, ledger: Ledger, new_run_id: NewRunId
    ) -> None:
        run_id = new_run_id()
        stuck, done, _pending = split(ledger, run_id, 3)
        ledger.start_chunk(run_id, stuck)
        ledger.start_chunk(run_id, done)
        ledger.complete_chunk(run_id, done, output_key="o", duration_ms=1)
        now = datetime.now(UTC)
        assert list(ledger.stuck_chunks(run_id, now=now)) == []
        later = list(ledger.stuck_chunks(run_id, now=now + timedelta(minutes=16)))
        assert [chunk.chunk_id for chunk in later] == [stuck]

    def test_the_latest_run_of_a_survey_comes_first(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        moments = iter(timestamp(datetime(2026, 3, day, tzinfo=UTC)) for day in (1, 2, 3))
        clocked = Ledger(ledger._dynamodb, ledger._table, clock=lambda: next(moments))
        ids = [new_run_id() for _ in range(3)]
        for run_id in ids:
            clocked.open_run(
                run_id=run_id, survey="order", job_id="j", workload="spectra", params=None, traceparent=None
            )
        assert [run.run_id for run in ledger.runs_of("order")] == ids[::-1]
        assert [run.run_id for run in ledger.runs_of("order", limit=1)] == ids[-1:]
        assert [r.run_id for r in ledger.runs_of("order", not_before="2026-03-02T00:00:00.000Z")] == ids[:0:-1]

    def test_chunks_can_be_filtered_by_status_over_many_pages(self, ledger: Ledger, new_run_id: NewRunId) -> None:
        run_id = new_run_id()
        chunk_ids = split(ledger, run_id, 60)
        for chunk_id in chunk_ids[::20]:
            ledger.fail_chunk(run_id, chunk_id, "x" * 5000)
        failed = list(ledger.chunks(run_id, status=ChunkStatus.FAILED))
        assert [chunk.chunk_id for chunk in failed] == chunk_ids[::20]
        assert all(len((chunk.error or "").encode()) <= MAX_CHUNK_ERROR_BYTES for chunk in failed)
