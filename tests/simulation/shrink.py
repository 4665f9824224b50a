"""Shrinks a schedule that broke a promise to one that breaks it with fewer choices that are not the default.

Without its choice a fault does not happen, a call is fast, a run has one chunk less. So the
smallest record has the fewest chunks, faults and delays (delta debugging: Zeller and Hildebrandt, 2002).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tests.simulation.choices import Place, Record
from tests.simulation.simulation import Result, simulate

#: Longest time for shrinking, in seconds.
MOST_SECONDS = 60.0


def shrink(
    seed: int,
    focus: str | None = None,
    *,
    most_seconds: float = MOST_SECONDS,
    report: Callable[[int], None] = lambda _: None,
) -> Result:
    """The smallest schedule found that breaks the same promise as the schedule of `seed`, with its trace."""
    first = simulate(seed, focus=focus, recording=True)
    if first.finding is None:
        return simulate(seed, focus=focus, trace=True)
    return _Shrinking(first, focus, time.monotonic() + most_seconds, report).smallest()


class _Shrinking:
    def __init__(self, first: Result, focus: str | None, deadline: float, report: Callable[[int], None]) -> None:
        assert first.finding is not None
        self._focus = focus
        self._kind = first.finding.kind
        self._best: dict[Place, int] = dict(first.record)
        self._deadline = deadline
        self._report = report

    def smallest(self) -> Result:
        """Omit whole streams, then ever smaller groups of choices, then lower the values. Repeat while it helps."""
        while not self._over():
            before = dict(self._best)
            streams = sorted({name for name, _ in self._best}, key=lambda name: (name == "plan", name))
            for stream in streams:
                self._without(place for place in self._best if place[0] == stream)
            self._halve()
            self._lower()
            if self._best == before:
                break
        return simulate(record=self._best, focus=self._focus, trace=True)

    def _over(self) -> bool:
        return time.monotonic() > self._deadline

    def _halve(self) -> None:
        size = max(1, len(self._best) // 2)
        while size and not self._over():
            places = sorted(self._best, reverse=True)
            for start in range(0, len(places), size):
                self._without(places[start : start + size])
                if self._over():
                    return
            size = size // 2 if size > 1 else 0

    def _lower(self) -> None:
        for place in sorted(self._best):
            while self._best.get(place, 0) > 1 and not self._over():
                if not self._try({**self._best, place: self._best[place] - 1}):
                    break

    def _without(self, places: Iterable[Place]) -> bool:
        gone = set(places)
        candidate = {place: value for place, value in self._best.items() if place not in gone}
        return len(candidate) < len(self._best) and self._try(candidate)

    def _try(self, candidate: Record) -> bool:
        result = simulate(record=candidate, focus=self._focus)
        if result.finding is None or result.finding.kind != self._kind:
            return False
        self._best = dict(candidate)
        self._report(len(self._best))
        return True
