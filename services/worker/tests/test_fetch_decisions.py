"""Decisions about a task after the answer of its site."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.items import AttemptError
from prismline_contracts.tasks import TaskItem
from prismline_runtime import TransientError
from prismline_worker.fetch_decisions import ThrottledError, asked_wait, backoff, given_up

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("17", 17),
        (" 17 ", 17),
        ("999999999999999999999", 3600),
        ("Sun, 01 Mar 2026 12:01:40 GMT", 100),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Mon, 01 Mar 2027 12:00:00 GMT", 3600),
        (None, None),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1.5", None),
        ("\u0661", None),
        (f"Sun, 01 Mar {'9' * 40} 12:01:40 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_within_bounds(header: str | None, seconds: float | None) -> None:
    assert asked_wait(header, NOW) == seconds


def test_waits_double_with_jitter_up_to_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    assert [backoff(n) for n in range(1, 11)] == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    monkeypatch.setattr(random, "uniform", lambda low, _: low)
    assert backoff(3) == 4
    monkeypatch.undo()
    assert backoff(10_000) <= 300


def task(
    attempts: int, failed: int = 0, interrupted: int = 0, first_started: timedelta = timedelta(), earlier: int = 0
) -> TaskItem:
    """A task in an attempt. failed, interrupted: how its attempts so far ended; earlier: failures before a recovery."""
    began = NOW - first_started

    def error(number: int, at: datetime, interrupted: bool = False) -> AttemptError:
        return AttemptError(attempt=number, at=timestamp(at), error="no", interrupted=interrupted)

    return TaskItem(
        PK="r",
        SK="TASK#" + "0" * 64,
        index=0,
        source="http://site.example/",
        status="IN_PROGRESS",
        created_at=timestamp(NOW - timedelta(days=3)),
        first_started_at=timestamp(began),
        attempts=attempts,
        interruptions=interrupted,
        errors=[
            *(error(n + 1, began - timedelta(hours=1)) for n in range(earlier)),
            *(error(n + 1, began) for n in range(failed)),
            *(error(n + 1, began, interrupted=True) for n in range(interrupted)),
        ],
    )


def test_a_task_is_given_up_after_its_failures_and_the_reason_counts_them() -> None:
    error = TransientError("The site answered 500 Internal Server Error.")
    assert given_up(task(4, failed=3), error, 5, NOW) is None
    assert given_up(task(5, failed=4), error, 5, NOW) == f"{error} This was attempt 5 of 5."
    assert given_up(task(7, failed=3, interrupted=3), error, 5, NOW) is None
    assert given_up(task(9, failed=3, earlier=5), error, 5, NOW) is None, "a recovery has reopened it"


def test_attempts_of_which_nothing_is_known_do_not_make_one_error_the_last() -> None:
    """The ledger was throttled for four deliveries, or five copies of the message were processed at the same time."""
    error = TransientError("The site answered 503 Service Unavailable.")
    assert given_up(task(5), error, 5, NOW) is None


def test_a_site_that_wants_fewer_requests_costs_no_attempt_for_a_day() -> None:
    error = ThrottledError("The site answered 429 Too Many Requests.", wait=1)
    assert given_up(task(50, first_started=timedelta(hours=23)), error, 5, NOW) is None
    assert "24 hours" in (given_up(task(50, first_started=timedelta(hours=24)), error, 5, NOW) or "")
