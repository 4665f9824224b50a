"""A mutant: a deliberate bug in one place, such that a review could miss it, with its effect on a user."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.mutants.changes import Rewrite, Setting


@dataclass(frozen=True)
class Mutant:
    """A bug: a change in one function, or in the state machine."""

    name: str
    change: Rewrite | Setting
    #: The effect on a user.
    harm: str
    #: Plans of `schedules.SCHEDULES` that are tried before random ones.
    schedules: tuple[str, ...] = ()
    #: Tests, as pytest names them, that have to fail with it. They are tried if no schedule finds it.
    tests: tuple[str, ...] = ()
    #: Why no user and no check can tell the difference; None: the simulation has to find it.
    equivalent: str | None = None
