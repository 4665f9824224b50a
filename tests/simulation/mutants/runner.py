"""Runs schedules in a tree of the project and says what they found: `python -m tests.simulation.mutants.runner`.

A line of its input names a schedule and a seed, as JSON; the line that answers it is what was found, or `null`.
"""

from __future__ import annotations

import gc
import json
import sys

from tests.simulation import simulation
from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.simulation import simulate

#: Schedules between two collections of garbage.
BETWEEN_COLLECTIONS = 20


def run(schedule: str, seed: int) -> dict[str, str] | None:
    """The finding of a schedule; None: it has none."""
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


def main() -> None:
    """Answer until the input ends."""
    gc.disable()
    gc.freeze()
    for n, line in enumerate(sys.stdin, 1):
        asked = json.loads(line)
        print(json.dumps(run(asked["schedule"], asked["seed"])), flush=True)
        if n % BETWEEN_COLLECTIONS == 0:
            gc.collect()


if __name__ == "__main__":
    main()
