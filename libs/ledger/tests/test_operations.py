"""What the ledger guarantees to recoveries: one process works on an operation at a time, and no count is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from scenes import before_request

from prismline_contracts.deadletters import DeadlettersRecover, RecoveryCounts
from prismline_ledger import LeaseLostError, Operations
from prismline_runtime import Table

pytestmark = pytest.mark.emulator

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=60)


@dataclass
class Clock:
    seconds: float = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def operations(dynamodb: object, table: Table, clock: Clock) -> Operations:
    return Operations(dynamodb, table.name, clock=clock.now)  # type: ignore[arg-type]


@pytest.fixture
def request_of_one(new_run_id: Callable[[], str]) -> DeadlettersRecover:
    return DeadlettersRecover(operation_id=new_run_id(), requested_at="2026-03-01T12:00:00.000Z")


def test_the_first_claim_creates_the_operation(operations: Operations, request_of_one: DeadlettersRecover) -> None:
    assert operations.get(request_of_one.operation_id) is None
    operation = operations.claim(request_of_one, "me", LEASE)
    assert operation == operations.get(request_of_one.operation_id)
    assert (operation.status, operation.owner, operation.prefix) == ("RUNNING", "me", request_of_one.prefix)


def test_another_owner_has_to_wait_until_the_lease_ends(
    operations: Operations, request_of_one: DeadlettersRecover, clock: Clock
) -> None:
    operations.claim(request_of_one, "me", LEASE)
    clock.seconds = 20
    with pytest.raises(LeaseLostError) as refused:
        operations.claim(request_of_one, "you", LEASE)
    assert refused.value.retry_after == 41
    clock.seconds = 61
    assert operations.claim(request_of_one, "you", LEASE).owner == "you"


def test_an_owner_that_lost_its_lease_can_write_nothing_more(
    operations: Operations, request_of_one: DeadlettersRecover, clock: Clock
) -> None:
    mine = operations.claim(request_of_one, "me", LEASE)
    clock.seconds = 61
    operations.claim(request_of_one, "you", LEASE)
    before = operations.get(request_of_one.operation_id)
    for note in (
        lambda: operations.commit(mine, RecoveryCounts(n_sent=1), lease=LEASE),
        lambda: operations.await_endings(mine),
        lambda: operations.release(mine),
        lambda: operations.finish(mine),
    ):
        with pytest.raises(LeaseLostError):
            note()
    assert operations.get(request_of_one.operation_id) == before


def test_counts_add_up_over_commits_and_the_records_to_delete_are_those_of_the_last(
    operations: Operations, request_of_one: DeadlettersRecover, clock: Clock
) -> None:
    operation = operations.claim(request_of_one, "me", LEASE)
    first = RecoveryCounts(n_records=3, n_sent=2)
    operation = operations.commit(operation, first, cursor="b", to_delete=["a", "b"], lease=LEASE)
    clock.seconds = 50
    operation = operations.commit(operation, RecoveryCounts(n_records=1, n_failed=1), to_delete=["c"], lease=LEASE)
    assert (operation.n_records, operation.n_sent, operation.n_failed) == (4, 2, 1)
    assert (operation.cursor, operation.to_delete) == ("b", ["c"])
    clock.seconds = 100
    with pytest.raises(LeaseLostError):
        operations.claim(request_of_one, "you", LEASE)


def test_any_process_can_claim_a_released_operation(operations: Operations, request_of_one: DeadlettersRecover) -> None:
    operations.release(operations.claim(request_of_one, "me", LEASE))
    assert operations.claim(request_of_one, "you", LEASE).owner == "you"


def test_an_operation_records_that_it_waits_and_how_often_it_has_checked(
    operations: Operations, request_of_one: DeadlettersRecover
) -> None:
    operation = operations.claim(request_of_one, "me", LEASE)
    assert (operation.listed, operation.rounds) == (False, 0)
    operation = operations.await_endings(operations.await_endings(operation))
    assert (operation.listed, operation.rounds) == (True, 2)


def test_a_claim_of_an_ended_operation_returns_it_unchanged(
    operations: Operations, request_of_one: DeadlettersRecover, clock: Clock
) -> None:
    done = operations.finish(operations.claim(request_of_one, "me", LEASE))
    assert (done.status, done.finished_at is not None) == ("COMPLETED", True)
    clock.seconds = 10**6
    assert operations.claim(request_of_one, "you", LEASE) == done


def test_of_two_claims_at_once_one_wins(
    operations: Operations, request_of_one: DeadlettersRecover, dynamodb: object
) -> None:
    other = lambda: operations.claim(request_of_one, "you", LEASE)  # noqa: E731
    with before_request(dynamodb, 0, other), pytest.raises(LeaseLostError):  # type: ignore[arg-type]
        operations.claim(request_of_one, "me", LEASE)
    operation = operations.get(request_of_one.operation_id)
    assert operation is not None
    assert operation.owner == "you"
