"""What the ledger guarantees to the status service: a run is stopped, and only its current end is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scenes import Scene, before_request

from prismline_ledger import Ledger

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize("reason", ["cancelled", "failed"])
def test_a_run_is_stopped_once_and_for_the_first_reason(scene: Scene, reason: Any) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, reason)
    stopped = scene.run
    assert (stopped.cancelled_at is not None, stopped.stop_reason) == (True, reason)
    for again in ("cancelled", "failed"):
        scene.ledger.stop_run(scene.run_id, again)  # type: ignore[arg-type]
    assert scene.run == stopped


def test_a_run_that_has_drained_is_not_stopped(scene: Scene) -> None:
    scene.split(1)
    scene.complete()
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert scene.run.cancelled_at is None


def test_a_run_that_a_recovery_reopened_is_stopped_only_by_a_person(scene: Scene) -> None:
    scene.split(1)
    scene.fail()
    assert scene.ledger.reopen_chunk(scene.chunk(), "op")
    scene.ledger.stop_run(scene.run_id, "failed")
    assert scene.run.cancelled_at is None
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert scene.run.stop_reason == "cancelled"


def test_a_resumed_run_is_stopped_again_only_by_a_caller_that_knows_of_the_resumption(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "failed")
    assert scene.ledger.resume_run(scene.run)
    scene.ledger.stop_run(scene.run_id, "failed")
    assert scene.run.cancelled_at is None
    scene.ledger.stop_run(scene.run_id, "failed", resumed_at=scene.run.resumed_at)
    assert scene.run.stop_reason == "failed"


def test_a_continued_run_is_cancelled_again_only_by_a_caller_that_knows_of_the_continuation(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.close("cancelled")
    assert scene.ledger.resume_run(scene.run, cancelled_at=scene.run.cancelled_at)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.ledger.stop_run(scene.run_id, "cancelled", uncancelled_at="2026-01-01T00:00:00.000Z")
    scene.ledger.stop_run(scene.run_id, "failed")
    assert scene.run.cancelled_at is None
    scene.ledger.stop_run(scene.run_id, "cancelled", uncancelled_at=scene.run.uncancelled_at)
    assert scene.run.stop_reason == "cancelled"


def test_a_continued_run_is_not_cancelled_by_a_caller_that_saw_it_before_it_drained(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.close("cancelled")
    assert scene.ledger.resume_run(scene.run, cancelled_at=scene.run.cancelled_at)
    seen = scene.run
    scene.fail()
    assert scene.ledger.reopen_chunk(scene.chunk(), "operation")
    scene.ledger.stop_run(scene.run_id, "cancelled", uncancelled_at=seen.uncancelled_at, drains=seen.drains)
    assert (scene.run.drains, scene.run.cancelled_at) == (1, None)
    scene.ledger.stop_run(scene.run_id, "cancelled", uncancelled_at=seen.uncancelled_at, drains=scene.run.drains)
    assert scene.run.stop_reason == "cancelled"


@pytest.mark.parametrize("reason", ["cancelled", "failed"])
def test_a_run_that_is_stopped_before_it_is_opened_is_stopped_when_it_opens(scene: Scene, reason: Any) -> None:
    scene.ledger.stop_run(scene.run_id, reason)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert scene.ledger.get_run(scene.run_id) is None
    opened = scene.open()
    assert (opened.cancelled_at is not None, opened.stop_reason) == (True, reason)
    assert opened == scene.run == scene.open()


@pytest.mark.parametrize("request_number", range(4))
def test_a_run_that_is_opened_while_it_is_stopped_is_stopped(scene: Scene, request_number: int) -> None:
    with before_request(scene.dynamodb, request_number, scene.open):
        scene.ledger.stop_run(scene.run_id, "cancelled")
    assert scene.open().cancelled_at is not None


@pytest.mark.parametrize("request_number", range(2))
def test_a_run_that_is_stopped_while_it_is_opened_is_stopped(scene: Scene, request_number: int) -> None:
    with before_request(scene.dynamodb, request_number, lambda: scene.ledger.stop_run(scene.run_id, "cancelled")):
        scene.open()
    scene.open()
    assert scene.run.cancelled_at is not None


def test_the_end_of_a_drained_run_is_recorded(scene: Scene) -> None:
    scene.split(2)
    assert not scene.ledger.record_end(scene.run, "completed"), "it has not ended"
    scene.complete(0)
    scene.complete(1)
    assert scene.ledger.record_end(scene.run, "completed")
    assert (scene.run.ended_at is not None, scene.run.ended_status) == (True, "completed")


def test_the_end_of_a_stopped_run_is_recorded(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "cancelled")
    scene.end("cancelled")
    assert scene.run.ended_status == "cancelled"


CHANGES: dict[str, Callable[[Scene], object]] = {
    "a late success": lambda scene: scene.complete(0),
    "a recovery": lambda scene: scene.ledger.reopen_chunk(scene.chunk(0), "op"),
    "a recovery that failed again": lambda scene: (
        scene.ledger.reopen_chunk(scene.chunk(0), "op"),
        scene.fail(0),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_between", [True, False])
def test_an_end_that_may_have_changed_is_not_recorded(scene: Scene, change: str, in_between: bool) -> None:
    scene.split(2)
    scene.fail(0)
    scene.fail(1)
    read = scene.run
    if in_between:
        with before_request(scene.dynamodb, 0, lambda: CHANGES[change](scene)):
            assert not scene.ledger.record_end(read, "failed")
    else:
        CHANGES[change](scene)
        assert not scene.ledger.record_end(read, "failed")
    assert scene.run.ended_at is None


def test_the_end_of_a_stopped_run_that_drained_meanwhile_is_not_recorded(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "failed")
    read = scene.run
    scene.complete()
    assert not scene.ledger.record_end(read, "failed")


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_the_end_of_a_stopped_run_in_which_a_chunk_ended_meanwhile_is_not_recorded(scene: Scene, ending: str) -> None:
    scene.split(2)
    scene.ledger.stop_run(scene.run_id, "failed")
    read = scene.run
    getattr(scene, ending)()
    assert not scene.ledger.record_end(read, "failed")
    assert scene.ledger.record_end(scene.run, "failed")


def test_a_second_drain_in_the_same_millisecond_is_distinguished_from_the_first(scene: Scene) -> None:
    frozen = Ledger(scene.dynamodb, scene.table.name, clock=lambda: "2026-03-01T12:00:00.000Z")
    still = Scene(frozen, scene.dynamodb, scene.table, scene.run_id)
    still.split(1)
    still.fail()
    read = still.run
    assert frozen.reopen_chunk(still.chunk(), "op")
    still.fail()
    assert still.run.drained_at == read.drained_at
    assert not frozen.record_end(read, "failed")


def test_the_end_of_a_run_that_was_resumed_meanwhile_is_not_recorded(scene: Scene) -> None:
    scene.split(1)
    scene.ledger.stop_run(scene.run_id, "failed")
    read = scene.run
    assert scene.ledger.resume_run(read)
    assert not scene.ledger.record_end(read, "failed")
    scene.ledger.stop_run(scene.run_id, "cancelled")
    assert not scene.ledger.record_end(read, "failed"), "it was stopped again, for another reason"
