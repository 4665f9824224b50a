"""Runs one schedule: what a process does that was sent into a copy of the code."""

from __future__ import annotations

from tests.simulation import simulation
from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.simulation import simulate


def run(schedule: str, seed: int) -> dict[str, str] | None:
    """The finding of a schedule: which check, and what it says; None: it has none."""
    directed = SCHEDULES.get(schedule)
    names = vars(simulation)
    usual = names["PATIENCE"]
    try:
        if directed is not None and directed.patience is not None:
            names["PATIENCE"] = directed.patience
        finding = simulate(seed, plan=directed.plan if directed is not None else None).finding
    finally:
        names["PATIENCE"] = usual
    return None if finding is None else {"check": finding.check, "message": finding.message}
