"""Runs one schedule: what a process does that was sent into a copy of the code."""

from __future__ import annotations

from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.simulation import simulate


def run(schedule: str, seed: int) -> dict[str, str] | None:
    """The finding of a schedule: which check, and what it says; None: it has none."""
    plan = SCHEDULES.get(schedule)
    # a script says all that happens: nothing is drawn
    scripted = plan is not None and plan.script
    finding = (simulate(record={}, plan=plan) if scripted else simulate(seed, plan=plan)).finding
    return None if finding is None else {"check": finding.check, "message": finding.message}
