"""How many failures a run tolerates: judged at its end and while it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.items import RunItem
from prismline_ledger import Counts, Tolerance, early_stop, too_many
from prismline_ledger.transitions import Costs

NOW = "2026-03-01T12:00:00.000Z"
TOLERANCES = st.builds(
    Tolerance,
    percent=st.one_of(st.just(0.0), st.floats(0, 100)),
    failures=st.one_of(st.none(), st.integers(0, 50)),
)


def run_of(tolerance: Tolerance, **fields: Any) -> RunItem:
    given = {name: value for name, value in tolerance.attributes.items() if value is not None}
    return RunItem(
        PK="r", GSI1_PK="s", GSI1_SK=NOW, survey="s", workload="urls", job_id="j", created_at=NOW, **given, **fields
    )


def counts(failed: int, total: int | None, completed: int = 0) -> Counts:
    return Counts(total, completed, failed, Costs(0, 0, 0))


@pytest.mark.parametrize(
    ("tolerance", "failed", "total", "cause"),
    [
        (Tolerance(), 1, 40, "1 of 40 chunks failed (2.5 %), 0 % are tolerated."),
        (Tolerance(percent=5), 3, 40, "3 of 40 chunks failed (7.5 %), 5 % are tolerated."),
        (Tolerance(percent=7.5), 3, 40, None),
        (Tolerance(failures=2), 3, 40, "3 of 40 chunks failed (7.5 %), 2 failures are tolerated."),
        (Tolerance(failures=3), 3, 3, None),
        (Tolerance(failures=0), 1, None, "1 chunk failed, 0 failures are tolerated."),
        (Tolerance(failures=1), 2, None, "2 chunks failed, 1 failure is tolerated."),
        (Tolerance(percent=5, failures=9), 3, 40, "3 of 40 chunks failed (7.5 %), 5 % and 9 failures are tolerated."),
        (Tolerance(percent=5, failures=9), 3, None, None),
        (Tolerance(), 0, 0, None),
    ],
)
def test_a_run_with_more_failures_than_it_tolerates_says_so_in_a_sentence(
    tolerance: Tolerance, failed: int, total: int | None, cause: str | None
) -> None:
    assert too_many(tolerance, failed, total, "chunk") == cause


def test_a_run_without_a_limit_goes_to_its_end() -> None:
    """Only the end of such a run is judged: people expect to see all that fails."""
    assert early_stop(run_of(Tolerance()), counts(39, 40)) is None


@pytest.mark.parametrize("field", ["drained_at", "cancelled_at", "ended_at", "resumed_at"])
def test_a_run_that_is_over_or_that_a_person_continued_is_not_stopped(field: str) -> None:
    tolerance = Tolerance(failures=0)
    assert early_stop(run_of(tolerance), counts(1, 4)) is not None
    assert early_stop(run_of(tolerance, **{field: NOW}), counts(1, 4)) is None


def test_the_limits_are_kept_in_the_runs_item() -> None:
    for tolerance in (Tolerance(), Tolerance(12.5), Tolerance(failures=0), Tolerance(33.3, 4)):
        assert Tolerance.of(run_of(tolerance)) == tolerance


@given(tolerance=TOLERANCES, ends=st.lists(st.booleans(), max_size=60), known_after=st.integers(0, 60))
def test_a_stop_is_right_and_comes_with_the_first_failure_too_many(
    tolerance: Tolerance, ends: list[bool], known_after: int
) -> None:
    """Chunks end one after the other (True: failed); the total is known from some end on.

    A run is stopped at the first moment at which no ending of the other chunks could let it complete, as far as that is
    known, and never before.
    """
    total, run, stopped_at = len(ends), run_of(tolerance), None
    for n_ended in range(total + 1):
        failed = sum(ends[:n_ended])
        known = total if n_ended >= known_after else None
        if early_stop(run, counts(failed, known, n_ended - failed)) is not None:
            stopped_at = n_ended
            break
        best = too_many(tolerance, failed, known, run.unit)
        assert best is None or not tolerance.given, "it goes on although it can only fail"
    if stopped_at is not None:
        failed = sum(ends[:stopped_at])
        assert too_many(tolerance, failed, total, run.unit) is not None, "it was stopped although it could complete"
    elif tolerance.given and known_after <= total:
        assert too_many(tolerance, sum(ends), total, run.unit) is None, "it should have been stopped"
