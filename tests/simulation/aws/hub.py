"""The interface between the fakes and their surroundings: time, timers, a gate before every call, random choices."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

#: Start of the clock of a `PlainHub`: 2026-01-01T00:00:00Z, in seconds since the epoch.
START = 1_767_225_600.0


class Hub(Protocol):
    """The surroundings of one account."""

    def now(self) -> float:
        """The virtual wall clock, in seconds since the epoch."""
        ...

    def call_later(self, seconds: float, action: Callable[[], None], label: str) -> None:
        """Set a timer that calls `action` in `seconds`: a delivery, a timeout, a step of an execution.

        `label` describes it, e.g. `deliver:prismline-sim-run-events`. The hub may delay, repeat or drop it.
        """
        ...

    def gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        """Let a client's call through: the answer of `perform`, or an error of the hub before or after it."""
        ...

    def random(self) -> random.Random:
        """For choices of the fakes themselves, e.g. which visible messages a receive gets."""
        ...


class PlainHub:
    """A hub without a scheduler: calls go straight through, and time passes only in `advance`."""

    def __init__(self, start: float = START, seed: int = 0) -> None:
        self._now = start
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def call_later(self, seconds: float, action: Callable[[], None], label: str) -> None:
        heapq.heappush(self._timers, (self._now + seconds, next(self._numbers), action))

    def gate(self, service: str, operation: str, parameters: Mapping[str, Any], perform: Callable[[], Any]) -> Any:
        return perform()

    def random(self) -> random.Random:
        return self._random

    def advance(self, seconds: float = 0.0) -> None:
        """Let `seconds` pass and call every due timer in order. With 0, call the timers that are due now."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, action = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            action()
        self._now = end
