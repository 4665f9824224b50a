"""Runs one schedule, in a process that imports a copy of the code."""

from __future__ import annotations

from tests.simulation.mutants.schedules import LISTS, SCHEDULES
from tests.simulation.simulation import simulate


def run(schedule: str, seed: int) -> dict[str, str] | None:
    """The finding of a schedule: the check and its message. None: there is no finding."""
    plan = SCHEDULES.get(schedule)
    # a script decides everything: nothing is random
    if plan is not None and plan.script:
        finding = simulate(record={}, plan=plan).finding
    else:
        finding = simulate(seed, plan=plan, focus="lists" if schedule == LISTS else None).finding
    return None if finding is None else {"check": finding.check, "message": finding.message}
