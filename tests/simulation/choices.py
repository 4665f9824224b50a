"""Every choice of a schedule: drawn from one seed, or replayed from a record of the choices that were not the default.

A choice is a small number; 0 is always the harmless one (no fault, the shortest wait, the smallest plan). Choices
belong to streams, one for each process and purpose, so that omitting a choice does not shift those of other processes.
So a schedule is described by its choices that are not 0, and shrinking it means omitting some of them.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence

#: The position of a choice: its stream, and its number in the stream.
Place = tuple[str, int]
#: The choices that were not 0.
Record = Mapping[Place, int]


class Stream:
    """The choices of one process for one purpose."""

    __slots__ = ("_choices", "_count", "_draw", "name")

    def __init__(self, name: str, choices: Choices) -> None:
        self.name = name
        self._choices = choices
        self._draw = choices.draw
        self._count = 0

    def weighted(self, cumulative: Sequence[float]) -> int:
        """The index of an interval of [0, 1) with these upper bounds (the last is 1), by its width."""
        if self._draw is not None:
            value = bisect_right(cumulative, self._draw())
            if self._choices.recording:
                self._note(value)
            return value
        return self._replayed(len(cumulative))

    def below(self, n: int) -> int:
        """A number from 0 to n - 1, uniformly distributed."""
        if self._draw is not None:
            value = int(self._draw() * n)
            if self._choices.recording:
                self._note(value)
            return value
        return self._replayed(n)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        if self._draw is not None:
            value = self._draw() < probability
            if self._choices.recording:
                self._note(int(value))
            return value
        return bool(self._replayed(2))

    def decided(self, value: bool) -> bool:
        """`value`, without a draw. A replay has what was recorded."""
        if self._draw is not None:
            if self._choices.recording:
                self._note(int(value))
            return value
        return bool(self._replayed(2))

    def _note(self, value: int) -> None:
        if value:
            self._choices.made[self.name, self._count] = value
        self._count += 1

    def _replayed(self, n: int) -> int:
        value = self._choices.made.get((self.name, self._count), 0)
        self._count += 1
        return min(value, n - 1)


class Choices:
    """The choices of one schedule, drawn from `seed` or replayed from `record`."""

    def __init__(self, seed: int | None = None, *, record: Record | None = None, recording: bool = False) -> None:
        self.seed = seed
        self.recording = recording
        #: Drawn choices while recording; the replayed ones otherwise.
        self.made: dict[Place, int] = dict(record or {})
        self.draw = random.Random(seed).random if record is None else None
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """The stream with this name, at its present position."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Stream(name, self)
        return stream


class ChosenRandom(random.Random):
    """A `random.Random` whose numbers are choices of a stream, for code that needs such an object."""

    _RESOLUTION = 8

    def __init__(self, stream: Stream) -> None:
        super().__init__(0)
        self._stream = stream

    def random(self) -> float:
        """One of eight evenly spaced numbers in [0, 1), enough for a jitter."""
        return self._stream.below(self._RESOLUTION) / self._RESOLUTION

    def getrandbits(self, k: int) -> int:
        """`k` random bits."""
        return self._stream.below(1 << k) if k <= 48 else (self._stream.below(1 << 48) << (k - 48))

    def uniform(self, a: float, b: float) -> float:
        """One of eight numbers between `a` and `b`; `b` by default, so that no process retries in a tight loop."""
        return b - (b - a) * self.random()
