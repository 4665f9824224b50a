"""What the ledger guarantees to the sweeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scenes import Scene, before_request

from prismline_contracts.items import ChunkStatus
from prismline_ledger import COUNTERS, Ledger

pytestmark = pytest.mark.emulator


def test_a_run_is_open_until_its_end_is_recorded_and_it_is_closed(scene: Scene) -> None:
    scene.split(1)
    assert scene.is_open
    assert not scene.ledger.close_run(scene.run), "its chunk has not ended"
    scene.complete()
    assert not scene.ledger.close_run(scene.run), "its end has not been recorded"
    scene.end()
    assert scene.is_open
    assert scene.ledger.close_run(scene.run)
    assert not scene.is_open
    assert scene.ledger.close_run(scene.run), "a repeat changes nothing"


def test_a_run_is_open_while_rows_wait_for_the_slow_lane(scene: Scene) -> None:
    scene.split(1)
    scene.complete(n_timed_out=1)
    scene.end()
    assert not scene.ledger.close_run(scene.run)
    assert scene.is_open
    scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=0)
    assert scene.ledger.close_run(scene.run)


def test_rows_of_a_stopped_run_keep_it_open_only_until_its_end_is_recorded(scene: Scene) -> None:
    scene.split(2)
    scene.complete(n_timed_out=1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert not scene.ledger.close_run(scene.run)
    scene.end("cancelled")
    assert scene.ledger.close_run(scene.run)
    assert not scene.is_open


CHANGES: dict[str, Callable[[Scene], object]] = {
    "a late success": lambda scene: scene.complete(0, n_timed_out=1),
    "a late success whose end is recorded": lambda scene: (scene.complete(0, n_timed_out=1), scene.end()),
    "a recovery": lambda scene: scene.ledger.reopen_chunk(scene.chunk(0), "op"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_between", [True, False])
def test_a_run_whose_end_may_have_changed_is_not_closed(scene: Scene, change: str, in_between: bool) -> None:
    scene.split(1)
    scene.fail()
    scene.end("failed")
    read = scene.run
    if in_between:
        with before_request(scene.dynamodb, 0, lambda: CHANGES[change](scene)):
            assert not scene.ledger.close_run(read)
    else:
        CHANGES[change](scene)
        assert not scene.ledger.close_run(read)
    assert scene.is_open


def test_a_run_that_was_ended_again_within_the_same_millisecond_is_not_closed_while_rows_wait(scene: Scene) -> None:
    frozen = Ledger(scene.dynamodb, scene.table.name, clock=lambda: "2026-03-01T12:00:00.000Z")
    still = Scene(frozen, scene.dynamodb, scene.table, scene.run_id)
    still.split(1)
    still.fail()
    still.end("failed")
    read = still.run
    still.complete(n_timed_out=1)
    still.end()
    assert still.run.ended_at == read.ended_at
    assert not frozen.close_run(read)
    assert still.is_open


def test_a_stopped_run_with_rows_that_was_resumed_since_it_was_read_is_not_closed(scene: Scene) -> None:
    scene.split(2)
    scene.complete(n_timed_out=1)
    scene.ledger.stop_run(scene.run_id, "failed")
    scene.end("failed")
    read = scene.run
    scene.ledger.resume_run(read)
    assert not scene.ledger.close_run(read)
    assert scene.is_open


def test_a_redelivered_split_does_not_open_a_closed_run_again(scene: Scene) -> None:
    scene.split(0)
    scene.close()
    scene.split(0)
    assert not scene.is_open


def test_only_one_of_two_sweeps_claims_a_run(scene: Scene) -> None:
    scene.split(1)
    seen_by_both = scene.run
    claimed = scene.ledger.claim_sweep(seen_by_both)
    assert claimed == scene.run
    assert scene.ledger.claim_sweep(seen_by_both) is None
    assert claimed is not None
    assert scene.ledger.claim_sweep(claimed) is not None, "the next sweep can claim it again"


def test_a_closed_run_is_not_claimed(scene: Scene) -> None:
    scene.split(0)
    stale = scene.run
    scene.close()
    assert scene.ledger.claim_sweep(stale) is None
    assert scene.ledger.claim_sweep(scene.run) is None
    assert not scene.is_open


def test_the_run_that_was_swept_longest_ago_comes_first(scene: Scene, new_run_id: Callable[[], str]) -> None:
    ids = [new_run_id() for _ in range(3)]
    for run_id in ids:
        Scene(scene.ledger, scene.dynamodb, scene.table, run_id).split(1)
    scene.ledger.claim_sweep(scene.ledger.run(ids[0]))
    in_order = [run.run_id for run in scene.ledger.open_runs() if run.run_id in ids]
    assert in_order == [ids[1], ids[2], ids[0]]


@pytest.mark.parametrize("begun", [True, False])
def test_a_chunk_that_is_sent_again_waits_and_keeps_its_attempts(scene: Scene, begun: bool) -> None:
    scene.split(1)
    read = scene.start() if begun else scene.chunk()
    assert scene.ledger.record_resend(read, "its worker never ended it")
    chunk = scene.chunk()
    assert (chunk.state, chunk.attempts, chunk.resends) == (ChunkStatus.PENDING, read.attempts, 1)
    assert chunk.last_error == "its worker never ended it"
    assert chunk.sent_at is not None
    assert not scene.ledger.record_resend(read, "again"), "the second of two sweeps is refused"
    assert scene.chunk() == chunk
    assert scene.complete().changed, "a late worker may still complete it"


HAPPENINGS: dict[str, Callable[[Scene], object]] = {
    "started": lambda scene: scene.start(),
    "completed": lambda scene: scene.complete(),
    "failed": lambda scene: scene.fail(),
    "started and given back": lambda scene: scene.ledger.end_attempt(scene.start(), "e", interrupted=False),
}


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("begun", [False, True])
def test_no_resend_is_recorded_for_a_chunk_that_progressed_meanwhile(scene: Scene, happening: str, begun: bool) -> None:
    scene.split(1)
    if begun:
        scene.start()
    read = scene.chunk()
    HAPPENINGS[happening](scene)
    before = scene.chunk()
    assert not scene.ledger.record_resend(read, "lost")
    assert scene.chunk() == before


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_no_resend_is_recorded_for_a_chunk_that_has_ended(scene: Scene, ending: str) -> None:
    scene.split(1)
    getattr(scene, ending)()
    ended = scene.chunk()
    assert not scene.ledger.record_resend(ended, "lost")
    assert scene.chunk() == ended


def test_an_announced_end_has_no_pending_announcement(scene: Scene) -> None:
    scene.split(1)
    given_up = scene.ledger.give_up_chunk(scene.start(), "e", announcement_pending=True)
    scene.ledger.mark_announced(given_up.chunk)
    assert not scene.chunk().announcement_pending
    assert scene.chunk() == given_up.chunk.model_copy(update={"announcement_pending": False})


def test_the_announcement_of_one_failure_does_not_mark_the_next_one(scene: Scene) -> None:
    scene.split(1)
    first = scene.ledger.give_up_chunk(scene.start(), "e", announcement_pending=True).chunk
    scene.ledger.reopen_chunk(scene.chunk(), "op")
    scene.ledger.give_up_chunk(scene.start(), "e", announcement_pending=True)
    scene.ledger.mark_announced(first)
    assert scene.chunk().announcement_pending


def test_only_one_of_two_sweeps_records_the_resend_of_a_refit(scene: Scene) -> None:
    scene.split(1)
    scene.complete(n_timed_out=2)
    read = scene.chunk()
    assert scene.ledger.record_refit_resend(read)
    assert scene.chunk().refit_sent_at is not None
    assert not scene.ledger.record_refit_resend(read)
    again = scene.chunk()
    scene.ledger.record_refit(scene.run_id, scene.chunk_id(), remaining=1)
    assert not scene.ledger.record_refit_resend(again), "the slow lane is working"


def test_only_one_of_two_sweeps_records_the_resend_of_a_split_and_none_after_the_latch(scene: Scene) -> None:
    scene.split(1, latch=False, manifest_key="manifests/m.json", split_token="token")
    read = scene.run
    assert (read.manifest_key, read.split_token) == ("manifests/m.json", "token")
    assert scene.ledger.record_split_resend(read)
    assert not scene.ledger.record_split_resend(read)
    again = scene.run
    assert again.split_resends == 1
    assert again.split_sent_at is not None
    scene.ledger.latch(scene.run_id)
    assert not scene.ledger.record_split_resend(again)


def test_a_check_is_recorded(scene: Scene) -> None:
    run = scene.open()
    scene.ledger.record_check(run)
    assert scene.run == run.model_copy(update={"checked_at": scene.run.checked_at})
    assert scene.run.checked_at is not None


MOVES: dict[str, Callable[[Scene], object]] = {
    "chunks_completed": lambda scene: scene.complete(3),
    "chunks_failed": lambda scene: scene.fail(3),
    "n_timed_out": lambda scene: scene.ledger.record_refit(scene.run_id, scene.chunk_id(0), remaining=1),
    "n_refit_failed": lambda scene: scene.ledger.record_refit(scene.run_id, scene.chunk_id(1), remaining=2),
}


@pytest.mark.parametrize("moving", COUNTERS)
def test_counters_are_corrected_only_if_none_has_changed_since_the_read(scene: Scene, moving: str) -> None:
    scene.split(4)
    scene.complete(0, n_timed_out=2)
    scene.complete(1, n_timed_out=4)
    scene.ledger.give_up_refit(scene.run_id, scene.chunk_id(1), "e")
    scene.fail(2)
    right = {"chunks_completed": 2, "chunks_failed": 1, "n_timed_out": 2, "n_refit_failed": 4}
    assert {name: getattr(scene.run, name) for name in COUNTERS} == right
    scene.damage(**{name: 7 for name in COUNTERS if name != moving})
    stale = scene.run
    MOVES[moving](scene)
    moved = scene.run
    assert not scene.ledger.correct_counters(stale, right)
    assert scene.run == moved
    assert scene.ledger.correct_counters(moved, right)
    assert {name: getattr(scene.run, name) for name in COUNTERS} == right


def test_a_corrected_run_drains(scene: Scene) -> None:
    scene.split(2)
    scene.complete(0)
    scene.damage(chunks_completed=0)
    scene.complete(1)
    assert scene.run.drained_at is None
    assert scene.ledger.correct_counters(scene.run, {"chunks_completed": 2})
    assert scene.ledger.drain(scene.run_id).drains == 1


def test_writes_for_a_run_that_does_not_exist_create_no_item(scene: Scene, ledger: Ledger) -> None:
    run = scene.open()
    chunks = ledger.chunks(scene.run_id)
    scene.dynamodb.delete_item(TableName=scene.table.name, Key={"PK": {"S": scene.run_id}, "SK": {"S": "RUN"}})
    ledger.record_check(run)
    assert ledger.claim_sweep(run) is None
    assert not ledger.record_end(run, "completed")
    assert not ledger.resume_run(run)
    assert ledger.get_run(scene.run_id) is None
    assert list(chunks) == []
