"""Which of several queues a consumer polls next: all in turn, by their priorities, the empty ones less often. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: A queue that was empty is not polled again for this number of seconds, unless all are empty.
REST_SECONDS = 1.0


class QueueChoice:
    """Chooses queues in turn. A queue of priority 6 is chosen twice as often as one of priority 3.

    The turns are spread evenly (smooth weighted round robin, as nginx chooses servers), so a queue with few messages
    never waits behind all the messages of another one.
    """

    def __init__(self) -> None:
        self._priorities: dict[str, int] = {}
        #: How far each queue is behind its share of the turns.
        self._credit: dict[str, float] = {}
        self._empty_at: dict[str, float] = {}

    def offer(self, queues: Mapping[str, int]) -> None:
        """Choose from `queues` from now on: names with their priorities, at least 1."""
        self._priorities = dict(queues)
        self._credit = {name: self._credit.get(name, 0.0) for name in queues}
        self._empty_at = {name: moment for name, moment in self._empty_at.items() if name in queues}

    @property
    def several(self) -> bool:
        """Whether there is more than one queue."""
        return len(self._priorities) > 1

    def remove(self, name: str) -> None:
        """Do not choose this queue again, because it was deleted."""
        self.offer({other: priority for other, priority in self._priorities.items() if other != name})

    def was_empty(self, name: str, now: float) -> None:
        """Let a queue rest, because it was empty at `now`, in seconds."""
        self._empty_at[name] = now

    def had_messages(self, name: str) -> None:
        """Give a queue its regular turns again."""
        self._empty_at.pop(name, None)

    def next(self, now: float) -> tuple[str, bool]:
        """The queue to poll, and whether all queues rest, so that the caller may wait for a message."""
        awake = [name for name in self._priorities if now - self._empty_at.get(name, float("-inf")) >= REST_SECONDS]
        candidates = awake or list(self._priorities)
        for name in candidates:
            self._credit[name] += self._priorities[name]
        chosen = max(candidates, key=lambda name: self._credit[name])
        self._credit[chosen] -= sum(self._priorities[name] for name in candidates)
        return chosen, not awake
