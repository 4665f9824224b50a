"""Whatever order messages arrive in, however often: the counters are the numbers of chunk items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from prismline_contracts import ChunkStatus
from prismline_ledger import DRAINED_BY_SPLIT, DRAINED_BY_SWEEPER, Ledger, NewChunk, Skipped

pytestmark = pytest.mark.emulator

CHUNKS = [NewChunk(f"chunk-{start:07d}", f"in/{start}", 10) for start in range(0, 40, 10)]
chunk_ids = st.sampled_from([chunk.chunk_id for chunk in CHUNKS])


class LedgerMachine(RuleBasedStateMachine):
    """A splitter that may be redelivered at any step, workers with duplicates, a canceller, a sweeper, a rerun."""

    ledger: Ledger
    new_run_id: Callable[[], str]

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self.times_drained: Counter[str] = Counter()
        self.terminal: dict[tuple[str, str], ChunkStatus] = {}

    @initialize()
    def submit(self) -> None:
        self._submit()

    @precondition(lambda self: len(self.runs) < 2)
    @rule()
    def rerun(self) -> None:
        """The same job again is a run of its own."""
        self._submit()

    def _submit(self) -> None:
        run_id = self.new_run_id()
        self.ledger.open_run(run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None)
        self.ledger.add_chunks(run_id, CHUNKS)
        self.ledger.set_total(run_id, jobs_total=len(CHUNKS), n_spectra=40, n_blank=0)
        self.runs.append(run_id)

    @rule(data=st.data())
    def redeliver_split(self, data: st.DataObject) -> None:
        run_id = self._run(data)
        self.ledger.open_run(run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None)
        self.ledger.add_chunks(run_id, CHUNKS)
        self.ledger.set_total(run_id, jobs_total=len(CHUNKS), n_spectra=40, n_blank=0)

    @rule(data=st.data())
    def latch(self, data: st.DataObject) -> None:
        run_id = self._run(data)
        self._note_drained(run_id, changed=True, drained=self.ledger.latch(run_id).drained is not None)

    @rule(data=st.data(), chunk_id=chunk_ids)
    def start(self, data: st.DataObject, chunk_id: str) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id)
        outcome = self.ledger.start_chunk(run_id, chunk_id)
        cancelled = self.ledger.run(run_id).cancelled_at is not None
        assert isinstance(outcome, Skipped) == (before.state.terminal or cancelled)
        after = self.ledger.chunk(run_id, chunk_id)
        assert after.attempts == before.attempts + (not isinstance(outcome, Skipped))

    @rule(data=st.data(), chunk_id=chunk_ids, timed_out=st.integers(0, 3))
    def complete(self, data: st.DataObject, chunk_id: str, timed_out: int) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id).state
        done = self.ledger.complete_chunk(run_id, chunk_id, output_key="o", duration_ms=1, n_timed_out=timed_out)
        assert done.changed == (before is not ChunkStatus.COMPLETED)
        assert self.ledger.chunk(run_id, chunk_id).state is ChunkStatus.COMPLETED
        self._note_drained(run_id, changed=done.changed, drained=done.drained is not None)

    @rule(data=st.data(), chunk_id=chunk_ids)
    def fail(self, data: st.DataObject, chunk_id: str) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id).state
        done = self.ledger.fail_chunk(run_id, chunk_id, "because")
        assert done.changed == (not before.terminal)
        self._note_drained(run_id, changed=done.changed, drained=done.drained is not None)

    @rule(data=st.data(), chunk_id=chunk_ids)
    def retryable_failure(self, data: st.DataObject, chunk_id: str) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id)
        self.ledger.record_error(run_id, chunk_id, "later")
        after = self.ledger.chunk(run_id, chunk_id)
        assert after.state is before.state
        assert after.last_error == (before.last_error if before.state.terminal else "later")

    @rule(data=st.data(), chunk_id=chunk_ids, remaining=st.integers(0, 3))
    def refit(self, data: st.DataObject, chunk_id: str, remaining: int) -> None:
        run_id = self._run(data)
        if self.ledger.chunk(run_id, chunk_id).state is ChunkStatus.COMPLETED:
            self.ledger.record_refit(run_id, chunk_id, remaining=remaining)

    @rule(data=st.data(), chunk_id=chunk_ids)
    def sweeper_resends(self, data: st.DataObject, chunk_id: str) -> None:
        before = self.ledger.chunk(self._run(data), chunk_id)
        assert self.ledger.record_resend(before, "lost") != before.state.terminal
        after = self.ledger.chunk(before.run_id, chunk_id)
        assert after.state is (before.state if before.state.terminal else ChunkStatus.PENDING)
        assert after.attempts == before.attempts

    @rule(data=st.data(), chunk_id=chunk_ids)
    def sweeper_gives_up(self, data: st.DataObject, chunk_id: str) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id).state
        assert self.ledger.fail_chunk(run_id, chunk_id, "because", by=DRAINED_BY_SWEEPER).changed == (
            not before.terminal
        )

    @rule(data=st.data())
    def sweeper_visits(self, data: st.DataObject) -> None:
        seen = self.ledger.run(self._run(data))
        run = self.ledger.claim_sweep(seen)
        assert (run is None) == (seen.GSI2_PK is None)
        drained = self.ledger.drain(seen.run_id)
        assert (drained is not None) == (self.ledger.run(seen.run_id).drained_by == DRAINED_BY_SWEEPER)
        ended = self.ledger.run(seen.run_id)
        closed = self.ledger.close_run(seen.run_id)
        assert closed == (ended.drained_at is not None or ended.cancelled_at is not None)

    @rule(data=st.data(), chunk_id=chunk_ids)
    def defer(self, data: st.DataObject, chunk_id: str) -> None:
        run_id = self._run(data)
        before = self.ledger.chunk(run_id, chunk_id)
        deferred = self.ledger.record_deferral(run_id, chunk_id)
        assert (deferred is None) == before.state.terminal
        assert self.ledger.chunk(run_id, chunk_id).state is before.state

    @rule(data=st.data(), chunk_id=chunk_ids, operation=st.sampled_from(["a", "b"]))
    def recover(self, data: st.DataObject, chunk_id: str, operation: str) -> None:
        """A FAILED chunk may be tried by the recovery that it was given to, and stays FAILED meanwhile."""
        run_id, token = self._run(data), f"{operation}/1"
        before = self.ledger.chunk(run_id, chunk_id)
        given = self.ledger.allow_recovery({(run_id, chunk_id): token}, operation)
        assert bool(given) == (before.state is not ChunkStatus.COMPLETED and before.recovery != f"{token}/failed")
        outcome = self.ledger.start_chunk(run_id, chunk_id, recovery=token)
        cancelled = self.ledger.run(run_id).cancelled_at is not None
        assert isinstance(outcome, Skipped) == (cancelled or not given)
        if before.state is ChunkStatus.FAILED:
            assert self.ledger.chunk(run_id, chunk_id).state is ChunkStatus.FAILED
            if data.draw(st.booleans()):
                self.ledger.end_recovery(run_id, chunk_id, token, "failed again")

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.ledger.stop_run(self._run(data))

    def _run(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.runs))

    def _note_drained(self, run_id: str, *, changed: bool, drained: bool) -> None:
        """A drain that a change brought about may be told once; a repeat of the same call may be told again."""
        if changed and drained:
            self.times_drained[run_id] += 1

    @invariant()
    def counters_are_item_counts(self) -> None:
        for run_id in self.runs:
            run, items = self.ledger.run(run_id), list(self.ledger.chunks(run_id))
            states = Counter(item.state for item in items)
            assert run.jobs_total == len(items) == len(CHUNKS)
            assert run.jobs_completed == states[ChunkStatus.COMPLETED]
            assert run.jobs_failed == states[ChunkStatus.FAILED]
            assert run.n_timed_out == sum(item.n_timed_out for item in items)
            assert (run.drained_at is not None) == run.all_terminal

    @invariant()
    def a_completed_chunk_stays_completed(self) -> None:
        for run_id in self.runs:
            for item in self.ledger.chunks(run_id):
                key = (run_id, item.chunk_id)
                assert self.terminal.get(key) is not ChunkStatus.COMPLETED or item.state is ChunkStatus.COMPLETED
                if item.state.terminal:
                    self.terminal[key] = item.state
                    assert (item.error is not None) == (item.state is ChunkStatus.FAILED)

    def teardown(self) -> None:
        for run_id in self.runs:
            drained = self.ledger.run(run_id).drained_at is not None
            may_repeat = self.ledger.run(run_id).drained_by in {DRAINED_BY_SPLIT, DRAINED_BY_SWEEPER}
            assert may_repeat or self.times_drained[run_id] >= drained


def test_counters_always_equal_item_counts(ledger: Ledger, new_run_id: Callable[[], str]) -> None:
    class Machine(LedgerMachine):
        pass

    Machine.ledger, Machine.new_run_id = ledger, staticmethod(new_run_id)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
