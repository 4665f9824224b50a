"""What the ledger promises to the dead-letter consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

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


def test_a_deferral_is_counted_and_leaves_the_chunk_as_it_is(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    ledger.start_chunk(run_id, only)
    ledger.record_error(run_id, only, "S3 said 503.")
    for deferrals in (1, 2):
        chunk = ledger.record_deferral(run_id, only)
        assert chunk is not None
        assert (chunk.deferrals, chunk.attempts, chunk.state) == (deferrals, 1, ChunkStatus.IN_PROGRESS)
        assert chunk.last_error == "S3 said 503.", "a deferral is no attempt, and has no error"
        assert chunk.deferred_at is not None


def test_a_chunk_that_has_ended_or_does_not_exist_is_not_deferred(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    ledger.fail_chunk(run_id, only, "given up")
    assert ledger.record_deferral(run_id, only) is None
    assert ledger.record_deferral(run_id, "chunk-9999999") is None
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


def test_a_recovery_is_not_taken_for_another_whose_name_begins_alike(ledger: Ledger, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    (only,) = split(ledger, run_id, 1)
    assert ledger.allow_recovery({(run_id, only): "op-10/m"}, "op-10") == {(run_id, only)}
    assert ledger.allow_recovery({(run_id, only): "op-1/m"}, "op-1") == {(run_id, only)}


def test_a_write_that_collides_is_not_taken_for_one_that_was_refused(
    ledger: Ledger, new_run_id: NewRunId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB reports both reasons of one cancelled transaction."""
    run_id = new_run_id()
    done, other = split(ledger, run_id, 2)
    ledger.complete_chunk(run_id, done, output_key="o", duration_ms=1)
    real, collisions = ledger._dynamodb, [1]

    class Colliding:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def transact_write_items(self, **arguments: object) -> object:
            if not collisions:
                return real.transact_write_items(**arguments)  # type: ignore[arg-type]
            collisions.clear()
            reasons = [{"Code": "ConditionalCheckFailed"}, {"Code": "TransactionConflict"}]
            answer = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(answer, "TransactWriteItems")  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "_dynamodb", Colliding())
    tokens = {(run_id, chunk_id): f"op/{chunk_id}" for chunk_id in (done, other)}
    assert ledger.allow_recovery(tokens, "op") == {(run_id, other)}
