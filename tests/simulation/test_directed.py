"""Schedules written by hand, one for each fault that the simulation found in the services: seen to fail before its fix.

Nothing is drawn here: calls are quick, and only what the plan names goes wrong.
"""

from __future__ import annotations

from tests.simulation.plan import MINUTE, Outage, Plan, RunPlan
from tests.simulation.simulation import simulate


def assert_kept(plan: Plan) -> None:
    """Every promise is kept in the schedule of `plan`."""
    result = simulate(plan=plan, record={})
    assert result.finding is None, str(result.finding)


def test_a_resumed_run_that_cannot_be_split_ends_again() -> None:
    """Its split is a dead letter when it fails, is recovered, and fails for good again; the state machine is gone."""
    assert_kept(
        Plan(
            runs=(RunPlan(invalid=True),),
            outages=(Outage("sqs", start=0.082, seconds=9), Outage("ledger", start=10, seconds=20 * MINUTE - 4)),
            recoveries=(20 * MINUTE,),
        )
    )
