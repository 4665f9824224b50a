"""When a chunk is given up, from its item and a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.delivery import LIMITS
from prismline_contracts.items import ChunkItem
from prismline_ledger import Patience, attempts_used, exhausted, leased, seconds_since
from prismline_ledger import testing as kit

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PATIENCE = Patience(max_attempts=5, seconds=7200.0, lease_seconds=1200.0)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def chunk_item(status: str = "PENDING", **fields: Any) -> ChunkItem:
    return kit.chunk_item(status, **{"created_at": timestamp(START)} | fields)


def tried(attempts: int, **fields: Any) -> ChunkItem:
    return chunk_item(**{"attempts": attempts, "first_started_at": timestamp(START)} | fields)


@pytest.mark.parametrize(
    ("attempts", "seconds", "given_up"),
    [(5, 7200, True), (4, 7200, False), (5, 7199, False), (4, 10**9, False), (10**3, 7199, False)],
)
def test_a_chunk_is_given_up_when_its_attempts_and_its_time_are_used_up(
    attempts: int, seconds: float, given_up: bool
) -> None:
    assert bool(exhausted(tried(attempts), after(seconds), PATIENCE)) == given_up


def test_interrupted_attempts_do_not_count() -> None:
    assert attempts_used(tried(7, interruptions=3)) == 4
    assert exhausted(tried(7, interruptions=3), after(10**6), PATIENCE) is None
    assert exhausted(tried(8, interruptions=3), after(10**6), PATIENCE)


@pytest.mark.parametrize("fields", [{"deferrals": 10**3}, {"resends": 10**3}])
def test_deferrals_and_resends_do_not_count_as_attempts(fields: dict[str, int]) -> None:
    assert exhausted(tried(4, **fields), after(10**6), PATIENCE) is None


def test_a_chunk_without_an_attempt_is_not_given_up() -> None:
    assert exhausted(chunk_item(attempts=9), after(10**9), PATIENCE) is None


def test_a_chunk_that_a_worker_may_be_processing_is_leased() -> None:
    chunk = tried(5, status="IN_PROGRESS", started_at=timestamp(after(7000)))
    assert leased(chunk, after(8200), PATIENCE)
    assert not leased(chunk, after(8201), PATIENCE)


def test_an_attempt_that_ended_holds_no_lease() -> None:
    assert not leased(tried(1, started_at=timestamp(START)), START, PATIENCE)


def test_the_lease_of_an_attempt_without_a_start_time_begins_at_the_chunks_creation() -> None:
    chunk = chunk_item("IN_PROGRESS")
    assert leased(chunk, after(1200), PATIENCE)
    assert not leased(chunk, after(1201), PATIENCE)


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_chunk_that_has_ended_is_not_given_up(status: str) -> None:
    assert exhausted(tried(9, status=status), after(10**6), PATIENCE) is None


def test_the_reason_has_the_last_error_and_the_number_of_attempts() -> None:
    error = exhausted(tried(9, interruptions=2, last_error="The kernel died."), after(10**6), PATIENCE)
    assert error == "The kernel died. Given up after 7 attempts."
    error = exhausted(tried(5, last_error="TypeError: not a number"), after(10**6), PATIENCE)
    assert error == "TypeError: not a number. Given up after 5 attempts."
    assert exhausted(tried(5), after(10**6), PATIENCE) == (
        "Its workers died without saying why. Given up after 5 attempts."
    )


@pytest.mark.parametrize("queue", [Queue.CHUNKS, Queue.REFITS, Queue.TASKS])
def test_a_lease_outlasts_every_function_that_holds_one(queue: Queue) -> None:
    assert Patience().lease_seconds >= LIMITS[queue].function_seconds + 60


def test_a_chunk_is_retried_for_an_hour_or_more() -> None:
    """Also if every attempt fails at once."""
    assert Patience().seconds >= 3600


@given(st.floats(0, 10**9))
def test_seconds_are_counted_from_a_timestamp(seconds: float) -> None:
    assert seconds_since(timestamp(START), after(seconds)) == pytest.approx(seconds, abs=1e-3)


@given(
    attempts=st.integers(0, 12),
    interruptions=st.integers(0, 12),
    seconds=st.floats(0, 10**5),
    more=st.floats(0, 10**5),
    status=st.sampled_from(["PENDING", "IN_PROGRESS"]),
)
def test_an_exhausted_chunk_stays_exhausted(
    attempts: int, interruptions: int, seconds: float, more: float, status: str
) -> None:
    chunk = tried(attempts, interruptions=min(interruptions, attempts), status=status, started_at=timestamp(START))
    if exhausted(chunk, after(seconds), PATIENCE):
        assert exhausted(chunk, after(seconds + more), PATIENCE)


def test_a_chunk_with_a_status_of_a_newer_release_is_not_given_up() -> None:
    assert exhausted(tried(9), after(10**9), PATIENCE)
    assert exhausted(tried(9, status="ARCHIVED"), after(10**9), PATIENCE) is None
