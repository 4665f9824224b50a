"""What may be done to a run in each of its states, and the sentence that says why not."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.items import RunItem
from prismline_ledger import ActionName, Counts, actions_of, going_on, shown_status

MOMENT = "2026-03-10T12:00:00.000Z"
FULL = Counts(10, 8, 2)
STOPPED = {"cancelled_at": MOMENT, "stop_reason": "cancelled"}
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
    ("item", "status", "said"),
    [
        (run(drains=1), "failed", "The run had failed and is being retried: 2 of its chunks are not finished yet."),
        (run(**CONTINUED), "cancelled", "The run was cancelled and continues: 2 of its chunks are not finished yet."),
        (run(drained_at=MOMENT, drains=1), "failed", None),
        (run(**STOPPED), "cancelled", None),
        (run(), "running", None),
    ],
)
def test_a_run_whose_work_continues_after_its_end_says_so(item: RunItem, status: str, said: str | None) -> None:
    assert going_on(item, status, Counts(10, 7, 1)) == said
