"""What may be done to a run in each of its states, and the sentence that says why not."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.finalization import Finalization
from prismline_contracts.items import RunItem
from prismline_ledger import ActionName, Counts, actions_of, going_on, has_ended, shown_status, warnings_of

MOMENT = "2026-03-10T12:00:00.000Z"
FULL = Counts(10, 8, 2)
STOPPED = {"cancelled_at": MOMENT, "stop_reason": "cancelled"}
FINALIZED = Finalization(status="COMPLETED").as_json()
CONTINUED = {"uncancelled_at": MOMENT, "resumed_at": MOMENT}


def run(**fields: Any) -> RunItem:
    base = {
        "PK": "r",
        "SK": "RUN",
        "GSI1_PK": "s",
        "GSI1_SK": MOMENT,
        "survey": "s",
        "job_id": "j",
        "workload": "spectra",
        "created_at": MOMENT,
    }
    return RunItem.model_validate(base | {"params": "{}"} | fields)


def allowed(item: RunItem | None, status: str, counts: Counts | None, *, has_job: bool = True) -> set[str]:
    return {name for name, action in actions_of("r", item, status, counts, has_job=has_job).items() if action.allowed}


@pytest.mark.parametrize(
    ("item", "status", "counts", "expected"),
    [
        (None, "pending", None, {"cancel"}),
        (None, "cancelled", None, set()),
        (run(), "running", Counts(None, 0, 0), {"cancel", "export"}),
        (run(), "running", Counts(10, 3, 1), {"cancel", "retry", "export"}),
        (run(drained_at=MOMENT), "completed", Counts(10, 10, 0), {"export"}),
        (run(drained_at=MOMENT), "failed", FULL, {"retry", "export"}),
        (run(unit="task", drained_at=MOMENT), "failed", FULL, {"retry", "rerun_failed", "export"}),
        (run(**STOPPED), "cancelled", Counts(10, 3, 1), {"continue", "export"}),
        (run(**CONTINUED), "cancelled", Counts(10, 3, 1), {"cancel", "retry", "export"}),
        (run(drained_at=MOMENT), "cancelled", Counts(10, 10, 0), {"export"}),
    ],
)
def test_each_state_of_a_run_allows_its_actions(
    item: RunItem | None, status: str, counts: Counts | None, expected: set[str]
) -> None:
    assert allowed(item, status, counts) == expected


def test_each_refused_action_says_why() -> None:
    for item, status in ((None, "pending"), (run(), "running"), (run(**STOPPED), "cancelled")):
        for action in actions_of("r", item, status, None if item is None else Counts(2, 0, 0), has_job=True).values():
            assert action.allowed == (action.reason is None)
            assert action.reason is None or action.reason[0].isupper() or action.reason.startswith("No ")


def test_tasks_of_a_run_without_a_job_are_not_run_again_in_a_new_run() -> None:
    item = run(unit="task", drained_at=MOMENT)
    assert "rerun_failed" not in allowed(item, "failed", FULL, has_job=False)
    reason = actions_of("r", item, "failed", FULL, has_job=False)[ActionName.RERUN_FAILED].reason
    assert "not submitted over the API" in (reason or "")


@pytest.mark.parametrize(
    ("status", "counts", "shown"),
    [
        ("pending", None, "pending"),
        ("pending", Counts(None, 0, 0), "pending"),
        ("pending", Counts(None, 596, 0), "running"),
        ("failed", Counts(10, 9, 1), "failed"),
    ],
)
def test_a_run_that_is_still_being_split_is_running_once_something_has_ended(
    status: str, counts: Counts | None, shown: str
) -> None:
    assert shown_status(status, counts) == shown


@pytest.mark.parametrize(
    ("item", "status", "message"),
    [
        (run(drains=1), "failed", "The run had failed and is being retried: 2 of its chunks are not finished yet."),
        (run(**CONTINUED), "cancelled", "The run was cancelled and continues: 2 of its chunks are not finished yet."),
        (run(drained_at=MOMENT, drains=1), "failed", None),
        (run(**STOPPED), "cancelled", None),
        (run(), "running", None),
    ],
)
def test_a_run_whose_work_continues_after_its_end_says_so(item: RunItem, status: str, message: str | None) -> None:
    assert going_on(item, status, Counts(10, 7, 1)) == message


@pytest.mark.parametrize(
    ("item", "status", "expected"),
    [
        (None, "pending", False),
        (None, "failed", True),
        (run(), "running", False),
        (run(drained_at=MOMENT), "completed", True),
        (run(drained_at=MOMENT, n_timed_out=1), "completed", False),
        (run(drained_at=MOMENT, n_timed_out=1), "failed", True),
        (run(drained_at=MOMENT, finalization="{}"), "completed", False),
        (run(drained_at=MOMENT, finalization=FINALIZED), "completed", True),
        (run(drained_at=MOMENT, finalization=FINALIZED, chunks_failed=1), "failed", False),
        (run(**STOPPED, finalization="{}"), "cancelled", True),
        (run(**STOPPED), "cancelled", True),
        (run(**CONTINUED), "cancelled", False),
        (run(**CONTINUED, drained_at=MOMENT), "cancelled", False),
        (run(drains=1), "failed", False),
        (run(drained_at=MOMENT, drains=2), "failed", False),
        (run(drained_at=MOMENT, drains=2, ended_status="failed"), "failed", True),
    ],
    ids=[
        "accepted",
        "refused",
        "running",
        "done",
        "refits",
        "failed",
        "not finalized",
        "finalized",
        "finalized for an earlier end",
        "stopped before it was finalized",
        "stopped",
        "continued",
        "announcing",
        "retried",
        "retried, announcing",
        "retried, failed again",
    ],
)
def test_a_run_has_ended_when_its_status_is_final_and_nothing_continues(
    item: RunItem | None, status: str, expected: bool
) -> None:
    assert has_ended(item, status) is expected


@pytest.mark.parametrize(
    ("fields", "counts", "message"),
    [
        ({}, Counts(20, 15, 3), "Partial: 15 of 20 chunks completed (3 failed, 2 not finished)."),
        ({"n_blank": 2000}, Counts(20, 20, 0), "All 2,000 spectra of the cube are blank: nothing was fitted."),
        ({"n_timed_out": 7}, Counts(20, 20, 0), "7 spectra ran out of time and wait to be fitted again."),
        ({"n_refit_failed": 7}, Counts(20, 20, 0), "7 spectra ran out of time and could not be fitted again."),
        (
            {"unit": "task", "n_rejected": 3, "rejects_key": "jobs/j/rejects"},
            Counts(20, 20, 0),
            "3 lines of the list are not valid tasks. The object jobs/j/rejects gives the reasons.",
        ),
    ],
)
def test_incomplete_results_are_a_warning(fields: dict[str, Any], counts: Counts, message: str) -> None:
    assert warnings_of(run(n_spectra=2000, **fields), counts) == [message]


def test_whole_results_have_no_warning() -> None:
    assert warnings_of(run(n_spectra=2000, n_blank=3), Counts(20, 20, 0)) == []


def test_a_failed_finalization_is_a_warning_and_can_be_retried() -> None:
    failed = Finalization(status="FAILED", error="a bug", attempts=3)
    item = run(drained_at=MOMENT, unit="task", finalization=failed.as_json())
    assert warnings_of(item, Counts(2, 2, 0)) == ["`finalize` has failed: a bug"]
    assert actions_of("r", item, "completed", Counts(2, 2, 0), has_job=True)[ActionName.RETRY].allowed
