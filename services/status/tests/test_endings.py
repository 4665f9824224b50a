"""Decisions about a run's end, from the ledger and the run's item."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.commands import StepFunctionsError
from prismline_contracts.items import RunItem
from prismline_status.endings import (
    announcement_recorded,
    ending,
    ending_after_cancel,
    may_cancel_again,
    over,
    recovered,
    stop_reason,
)
from prismline_status.workflow_state import RunState

NOW = "2026-03-01T12:00:00.000Z"
#: Fields of the ledger's items of runs with four chunks.
GOING_ON = {"latched_at": NOW, "jobs_total": 4, "jobs_completed": 1}
DRAINED = GOING_ON | {"jobs_completed": 3, "jobs_failed": 1, "drained_at": NOW, "drains": 1}
REOPENED = GOING_ON | {"jobs_completed": 3, "drains": 1}
STOPPED = GOING_ON | {"cancelled_at": NOW, "stop_reason": "failed"}
RESUMED = GOING_ON


def item(fields: dict[str, Any] | None) -> RunItem | None:
    if fields is None:
        return None
    return RunItem(
        PK="r", GSI1_PK="s", GSI1_SK=NOW, survey="s", workload="spectra", job_id="j", created_at=NOW, **fields
    )


def state(status: str, announced: str | None = None, tolerated: str = "0") -> RunState:
    return RunState(run_id="r", status=status, updated_at=NOW, announced=announced, tolerated_failure_percent=tolerated)


@pytest.mark.parametrize(
    ("percent", "failures", "cause"),
    [
        ("0", 1, "2 of 4 chunks failed (50 %), 1 failure is tolerated."),
        ("60", 1, "2 of 4 chunks failed (50 %), 60 % and 1 failure are tolerated."),
        ("40", 2, "2 of 4 chunks failed (50 %), 40 % and 2 failures are tolerated."),
        ("0", 2, None),
        ("50", 2, None),
    ],
)
def test_a_drained_run_fails_if_either_limit_is_exceeded(percent: str, failures: int, cause: str | None) -> None:
    run = item({"drained_at": NOW, "chunks_total": 4, "chunks_completed": 2, "chunks_failed": 2})
    assert run is not None
    limited = state("running", tolerated=percent).model_copy(update={"tolerated_failures": failures})
    end = ending(limited, run, NOW)[-1]
    assert end.status == ("COMPLETED" if cause is None else "FAILED")
    assert cause is None or end.error == StepFunctionsError(Error="TooManyFailures", Cause=cause)
    assert recovered(limited.model_copy(update={"status": "failed"}), run) is (cause is None)


@pytest.mark.parametrize(
    ("status", "announced", "run", "reason"),
    [
        ("cancelled", None, GOING_ON, "cancelled"),
        ("cancelled", "cancelled", GOING_ON, "cancelled"),
        ("cancelled", None, REOPENED, "cancelled"),
        ("cancelled", None, None, "cancelled"),
        ("cancelled", None, STOPPED, None),
        ("cancelled", None, DRAINED, None),
        ("failed", None, GOING_ON, "failed"),
        ("failed", "running", GOING_ON, "failed"),
        ("failed", None, None, "failed"),
        ("failed", "failed", RESUMED, None),
        ("failed", None, STOPPED, None),
        ("failed", None, DRAINED, None),
        ("completed", None, REOPENED, None),
    ],
)
def test_an_ended_run_is_stopped_once_and_a_recovery_is_never_stopped(
    status: str, announced: str | None, run: dict[str, Any] | None, reason: str | None
) -> None:
    assert stop_reason(state(status, announced), item(run)) == reason


@pytest.mark.parametrize(
    ("status", "tolerated", "run", "is_recovered"),
    [
        ("failed", "25", DRAINED, True),
        ("failed", "24.9", DRAINED, False),
        ("failed", "25", REOPENED, False),
        ("failed", "100", STOPPED, False),
        ("failed", "100", None, False),
        ("cancelled", "100", DRAINED, False),
        ("running", "100", DRAINED, False),
    ],
)
def test_a_failed_run_is_recovered_when_it_has_drained_and_no_more_failed_than_it_tolerates(
    status: str, tolerated: str, run: dict[str, Any] | None, is_recovered: bool
) -> None:
    assert recovered(state(status, tolerated=tolerated), item(run)) is is_recovered


@pytest.mark.parametrize(
    ("status", "tolerated", "run", "update"),
    [
        ("cancelled", "25", DRAINED | {"uncancelled_at": NOW}, "COMPLETED"),
        ("cancelled", "0", DRAINED | {"uncancelled_at": NOW}, "FAILED"),
        ("cancelled", "25", GOING_ON | {"uncancelled_at": NOW}, None),
        ("cancelled", "25", STOPPED | {"uncancelled_at": NOW}, "FAILED"),
        ("cancelled", "25", STOPPED | {"uncancelled_at": NOW, "stop_reason": "cancelled"}, None),
        ("cancelled", "25", DRAINED, None),
        ("failed", "25", DRAINED | {"uncancelled_at": NOW}, None),
        ("cancelled", "25", None, None),
    ],
)
def test_a_cancelled_run_that_was_continued_ends_by_the_same_rule_as_any_other(
    status: str, tolerated: str, run: dict[str, Any] | None, update: str | None
) -> None:
    found = ending_after_cancel(state(status, status, tolerated), item(run), NOW)
    assert (found.status if found else None) == update


def test_a_continued_run_is_cancelled_again_only_by_a_request_that_saw_it_continued() -> None:
    goes_on = GOING_ON | {"uncancelled_at": NOW}
    assert may_cancel_again(NOW, item(goes_on))
    assert not may_cancel_again(None, item(GOING_ON)), "the run was never cancelled"
    assert not may_cancel_again(None, item(goes_on))
    assert not may_cancel_again("2026-03-01T11:00:00.000Z", item(goes_on))
    assert not may_cancel_again(NOW, item(STOPPED | {"uncancelled_at": NOW}))


@pytest.mark.parametrize(("run", "is_over"), [(None, False), (GOING_ON, False), (DRAINED, True), (STOPPED, True)])
def test_a_run_is_over_when_it_has_drained_or_was_stopped(run: dict[str, Any] | None, is_over: bool) -> None:
    assert over(item(run)) is is_over


def test_an_end_is_complete_when_it_was_announced_and_the_ledger_has_recorded_it() -> None:
    ended = item(DRAINED | {"ended_at": NOW, "ended_status": "failed"})
    assert announcement_recorded(state("failed", "failed"), ended)
    assert not announcement_recorded(state("failed", None), ended)
    assert not announcement_recorded(state("completed", "completed"), ended)
    assert not announcement_recorded(state("failed", "failed"), item(DRAINED))
    assert not announcement_recorded(state("failed", "failed"), None)


@pytest.mark.parametrize(
    ("status", "tolerated", "updates"),
    [
        ("pending", "25", ["RUNNING", "COMPLETED"]),
        ("running", "25", ["COMPLETED"]),
        ("pending", "0", ["FAILED"]),
        ("running", "0", ["FAILED"]),
    ],
)
def test_the_ledger_ends_a_run_as_its_execution_would_have(status: str, tolerated: str, updates: list[str]) -> None:
    run = item(DRAINED)
    assert run is not None
    assert [update.status for update in ending(state(status, tolerated=tolerated), run, NOW)] == updates
