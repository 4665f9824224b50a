"""What the ledger promises to the sweeper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from prismline_contracts import ChunkItem, ChunkStatus, RunItem
from prismline_ledger import DRAINED_BY_SWEEPER, Ledger, NewChunk

pytestmark = pytest.mark.emulator

NewRunId = Callable[[], str]


def split(ledger: Ledger, run_id: str, n_chunks: int, *, latch: bool = True) -> list[str]:
    ledger.open_run(
        run_id=run_id,
        survey="s",
        job_id="j",
        workload="spectra",
        params=None,
        traceparent=None,
        manifest_key="manifests/m.json",
        split_token="token",
    )
    chunks = [NewChunk(f"chunk-{n:07d}", f"in/{n}", 1) for n in range(n_chunks)]
    ledger.add_chunks(run_id, chunks)
    ledger.set_total(run_id, jobs_total=n_chunks, n_spectra=n_chunks, n_blank=0)
    if latch:
        ledger.latch(run_id)
    return [chunk.chunk_id for chunk in chunks]


@dataclass
class Damage:
    """Writes that go round the ledger, as a bug or a restored backup would."""

    ledger: Ledger

    def set(self, run_id: str, sk: str = "RUN", **values: Any) -> None:
        self.ledger._update(run_id, sk, sets=values)


def is_open(ledger: Ledger, run_id: str) -> bool:
    return run_id in [run.run_id for run in ledger.open_runs()]


def test_a_run_is_open_until_it_is_closed(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    assert is_open(ledger, run_id)
    assert not ledger.close_run(run_id), "its chunk has not ended"
    assert is_open(ledger, run_id)
    ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1)
    assert is_open(ledger, run_id), "the sweeper has to see its end"
    assert ledger.close_run(run_id)
    assert not is_open(ledger, run_id)
    assert ledger.close_run(run_id), "a repeat changes nothing"
    assert ledger.run(run_id).jobs_completed == 1


def test_a_cancelled_run_can_be_closed(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    split(ledger, run_id, 1, latch=False)
    ledger.stop_run(run_id)
    assert ledger.close_run(run_id)
    assert not is_open(ledger, run_id)


def test_a_redelivered_split_does_not_open_a_closed_run_again(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    split(ledger, run_id, 0)
    assert ledger.close_run(run_id)
    split(ledger, run_id, 0)
    assert not is_open(ledger, run_id)


def test_a_run_is_claimed_by_one_sweep_of_two(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    split(ledger, run_id, 1)
    seen_by_both = ledger.run(run_id)
    claimed = ledger.claim_sweep(seen_by_both)
    assert claimed is not None
    assert ledger.claim_sweep(seen_by_both) is None
    assert ledger.claim_sweep(claimed) is not None, "the next sweep comes by again"


def test_a_closed_run_cannot_be_claimed(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    split(ledger, run_id, 0)
    stale = ledger.run(run_id)
    ledger.close_run(run_id)
    assert ledger.claim_sweep(stale) is None
    assert ledger.claim_sweep(ledger.run(run_id)) is None
    assert not is_open(ledger, run_id)


def test_the_run_that_was_swept_longest_ago_comes_first(ledger: Ledger, new_run_id: NewRunId) -> None:
    ids = [new_run_id() for _ in range(3)]
    for run_id in ids:
        split(ledger, run_id, 1)
    ledger.claim_sweep(ledger.run(ids[0]))
    in_order = [run.run_id for run in ledger.open_runs() if run.run_id in ids]
    assert in_order == [ids[1], ids[2], ids[0]]


def test_a_resent_chunk_waits_again_and_keeps_its_attempts(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    ledger.start_chunk(run_id, only)
    read = ledger.chunk(run_id, only)
    assert ledger.record_resend(read, "its worker never ended it")
    chunk = ledger.chunk(run_id, only)
    assert (chunk.state, chunk.attempts, chunk.resends) == (ChunkStatus.PENDING, 1, 1)
    assert chunk.last_error == "its worker never ended it"
    assert chunk.sent_at is not None
    assert not ledger.record_resend(read, "again"), "the second of two sweeps is refused"
    assert ledger.chunk(run_id, only).resends == 1
    assert ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1).changed, "a late worker is welcome"


def changes() -> dict[str, Callable[[Ledger, str, str], object]]:
    return {
        "started": lambda ledger, run_id, chunk_id: ledger.start_chunk(run_id, chunk_id),
        "completed": lambda ledger, run_id, chunk_id: ledger.complete_chunk(
            run_id, chunk_id, output_key="o", duration_ms=1
        ),
        "failed": lambda ledger, run_id, chunk_id: ledger.fail_chunk(run_id, chunk_id, "e"),
    }


@pytest.mark.parametrize("change", sorted(changes()))
@pytest.mark.parametrize("begun", [False, True])
def test_a_chunk_that_went_on_meanwhile_is_left_alone(
    ledger: Ledger, new_run_id: NewRunId, change: str, begun: bool
) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    if begun:
        ledger.start_chunk(run_id, only)
    read = ledger.chunk(run_id, only)
    changes()[change](ledger, run_id, only)
    before: ChunkItem = ledger.chunk(run_id, only)
    assert not ledger.record_resend(read, "lost")
    assert ledger.chunk(run_id, only) == before


@pytest.mark.parametrize("change", ["completed", "failed"])
def test_a_chunk_that_has_ended_is_never_sent_back(ledger: Ledger, new_run_id: NewRunId, change: str) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    changes()[change](ledger, run_id, only)
    ended = ledger.chunk(run_id, only)
    assert not ledger.record_resend(ended, "lost")
    assert ledger.chunk(run_id, only) == ended


def test_a_split_is_asked_for_again_by_one_sweep_of_two_and_not_once_latched(
    ledger: Ledger, new_run_id: NewRunId
) -> None:
    run_id = new_run_id()
    split(ledger, run_id, 1, latch=False)
    read = ledger.run(run_id)
    assert (read.manifest_key, read.split_token) == ("manifests/m.json", "token")
    assert ledger.record_split_resend(read)
    assert not ledger.record_split_resend(read)
    again = ledger.run(run_id)
    assert again.split_resends == 1
    assert again.split_sent_at is not None
    ledger.latch(run_id)
    assert not ledger.record_split_resend(again)


def test_counters_are_corrected_only_while_nothing_moves(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    first, second = split(ledger, run_id, 2)
    ledger.complete_chunk(run_id, first, output_key="o", duration_ms=1)
    Damage(ledger).set(run_id, jobs_completed=0, jobs_failed=5)
    stale: RunItem = ledger.run(run_id)
    ledger.fail_chunk(run_id, second, "e")
    assert not ledger.correct_counters(stale, {"jobs_completed": 1, "jobs_failed": 0, "n_timed_out": 0})
    right = {"jobs_completed": 1, "jobs_failed": 1, "n_timed_out": 0}
    assert ledger.correct_counters(ledger.run(run_id), right)
    run = ledger.run(run_id)
    assert (run.jobs_completed, run.jobs_failed, run.drained_at) == (1, 1, None)
    drained = ledger.drain(run_id)
    assert drained is not None
    assert drained.drained_by == DRAINED_BY_SWEEPER
    assert ledger.drain(run_id) is not None, "a sweeper that died before saying so has to be told again"


def test_a_run_that_another_drained_is_not_the_sweepers_to_announce(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    assert ledger.drain(run_id) is None
    ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1)
    assert ledger.drain(run_id) is None
    assert ledger.run(run_id).drained_by == only


def test_a_chunk_that_the_sweeper_fails_drains_its_run_in_the_sweepers_name(
    ledger: Ledger, new_run_id: NewRunId
) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    finished = ledger.fail_chunk(run_id, only, "given up", by=DRAINED_BY_SWEEPER)
    assert finished.drained is not None
    assert finished.drained.drained_by == DRAINED_BY_SWEEPER
    assert ledger.drain(run_id) is not None
