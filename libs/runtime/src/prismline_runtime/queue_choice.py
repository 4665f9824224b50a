"""Which of several queues a consumer polls next: all in turn, by their priorities, the empty ones less often. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

#: A queue that was empty is not polled again for this number of seconds, unless all are empty.
REST_SECONDS = 1.0


class QueueChoice:
    """Chooses queues by the work that they have had. A queue of priority 6 gets twice the work of one of priority 3.

    The choice is weighted fair queueing: each queue has a virtual time, which grows by its work divided by its
    priority, and the queue whose next unit of work would end first is chosen. So a queue with little work never waits
    behind all the work of another one, however much work a message of the other one holds.
    """

    def __init__(self) -> None:
        self._priorities: dict[str, int] = {}
        #: The virtual time of each queue.
        self._spent: dict[str, Fraction] = {}
        #: The virtual time of the queues that have messages. A queue that comes or returns begins here, so that it
        #: makes up for no work that it did not have.
        self._present = Fraction(0)
        self._empty_at: dict[str, float] = {}

    def offer(self, queues: Mapping[str, int]) -> None:
        """Choose from `queues` from now on: names with their priorities, at least 1."""
        self._priorities = dict(queues)
        self._spent = {name: self._spent.get(name, self._present) for name in queues}
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

    def had_messages(self, name: str, work: int = 1) -> None:
        """Give a queue its regular turns again, and count the work of its messages. `next` has counted 1."""
        if self._empty_at.pop(name, None) is not None:
            self._spent[name] = max(self._spent[name], self._present)
        self._spent[name] += Fraction(work - 1, self._priorities[name])

    def next(self, now: float) -> tuple[str, bool]:
        """The queue to poll, and whether all queues rest, so that the caller may wait for a message."""
        awake = [name for name in self._priorities if now - self._empty_at.get(name, float("-inf")) >= REST_SECONDS]
        chosen = min(
            awake or self._priorities, key=lambda name: self._spent[name] + Fraction(1, self._priorities[name])
        )
        self._present = max(self._present, self._spent[chosen])
        self._spent[chosen] += Fraction(1, self._priorities[chosen])
        return chosen, not awake
