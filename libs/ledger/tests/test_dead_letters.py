"""What the ledger promises to the dead-letter consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prismline_contracts import ChunkStatus
from prismline_ledger import Ledger, NewChunk

pytestmark = pytest.mark.emulator

NewRunId = Callable[[], str]


def split(ledger: Ledger, run_id: str, n_chunks: int) -> list[str]:
    ledger.open_run(run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None)
    chunks = [NewChunk(f"chunk-{n:07d}", f"in/{n}", 1) for n in range(n_chunks)]
    ledger.add_chunks(run_id, chunks)
    ledger.set_total(run_id, jobs_total=n_chunks, n_spectra=n_chunks, n_blank=0)
    ledger.latch(run_id)
    return [chunk.chunk_id for chunk in chunks]


def test_a_deferral_is_counted_with_its_reason_and_leaves_the_chunk_as_it_is(
    ledger: Ledger, new_run_id: NewRunId
) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    ledger.start_chunk(run_id, only)
    for deferrals in (1, 2):
        chunk = ledger.record_deferral(run_id, only, "The resource gpu is down.")
        assert chunk is not None
        assert (chunk.deferrals, chunk.attempts, chunk.state) == (deferrals, 1, ChunkStatus.IN_PROGRESS)
        assert chunk.last_error == "The resource gpu is down."
        assert chunk.deferred_at is not None


def test_a_chunk_that_has_ended_or_does_not_exist_is_not_deferred(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    ledger.fail_chunk(run_id, only, "given up")
    assert ledger.record_deferral(run_id, only, "later") is None
    assert ledger.record_deferral(run_id, "chunk-9999999", "later") is None
    assert ledger.chunk(run_id, only).deferrals == 0


def test_many_chunks_are_found_together_and_missing_ones_are_left_out(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    chunk_ids = split(ledger, run_id, 130)
    names = [(run_id, chunk_id) for chunk_id in chunk_ids]
    found = ledger.find([*names, *names, (run_id, "chunk-9999999"), ("nobody", chunk_ids[0])])
    assert set(found) == set(names)
    assert set(ledger.find_runs([run_id, run_id, "nobody"])) == {run_id}


def test_a_recovery_is_given_every_chunk_but_those_completed_or_unknown(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    chunk_ids = split(ledger, run_id, 60)
    ledger.complete_chunk(run_id, chunk_ids[7], output_key="o", duration_ms=1)
    for chunk_id in chunk_ids[:5]:
        ledger.fail_chunk(run_id, chunk_id, "given up")
    names = [(run_id, chunk_id) for chunk_id in [*chunk_ids, "chunk-9999999"]]
    tokens = {name: f"op/{name[1]}" for name in names}
    wanted = set(names) - {(run_id, chunk_ids[7]), (run_id, "chunk-9999999")}
    assert ledger.allow_recovery(tokens, "op") == wanted
    assert ledger.allow_recovery(tokens, "op") == wanted, "a repeat is given the same"
    assert ledger.allow_recovery(dict.fromkeys(names, "op/another"), "op") == set()
    states = {chunk.chunk_id: chunk.state for chunk in ledger.chunks(run_id)}
    assert states[chunk_ids[0]] is ChunkStatus.FAILED
    assert states[chunk_ids[9]] is ChunkStatus.PENDING
    assert ledger.run(run_id).jobs_failed == 5
