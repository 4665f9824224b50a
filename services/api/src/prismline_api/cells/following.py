"""One look at a run for all streams that follow it: what each of them has to send.

Streams ask for the next look. A second after the last look began, the feed of a run takes one for all that have asked,
in one thread, and makes the text of each event once. So the cost of a run hardly depends on the number of its streams,
and the streams of one run do not take the threads of other requests. Without streams, nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread

from prismline_http.problems import ProblemError

#: Shortest time between the beginnings of two looks at a run, in seconds.
LOOK_SECONDS = 1.0
#: Threads in which all runs are looked at.
THREADS = 4
#: Seconds after which a client whose stream was refused may ask again.
RETRY_SECONDS = 10


@dataclass(frozen=True)
class Look:
    """What a look at a run found, as the texts of events."""

    #: The event with the run.
    run: str = ""
    #: By the version of the cells that a stream has sent: the present version, and the event with the changes since.
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: The event that says why nothing was found. Empty: something was.
    trouble: str = ""


class Feed:
    """The looks at one run, shared by all its streams."""

    def __init__(self, take: Callable[[Collection[str]], Look], threads: CapacityLimiter) -> None:
        self._take = take
        self._threads = threads
        self._asked: set[str] = set()
        self._next: asyncio.Task[Look] | None = None
        self._turn = asyncio.Lock()
        self._earliest = 0.0
        self.streams = 0

    async def look(self, version: str) -> Look:
        """The next look, which finds what has changed since `version`."""
        self._asked.add(version)
        if self._next is None:
            self._next = asyncio.create_task(self._look())
        return await asyncio.shield(self._next)  # a stream that ends must not end the look of the others

    async def _look(self) -> Look:
        async with self._turn:
            await asyncio.sleep(self._earliest - time.monotonic())
            asked, self._asked, self._next = self._asked, set(), None
            self._earliest = time.monotonic() + LOOK_SECONDS
            return await to_thread.run_sync(self._take, asked, limiter=self._threads)


class Feeds:
    """The feeds of the runs that streams follow, and the number of streams of each tenant."""

    def __init__(self, most_streams: int) -> None:
        self._most_streams = most_streams
        self._threads = CapacityLimiter(THREADS)
        self._feeds: dict[str, Feed] = {}
        self._streams: dict[str, int] = {}

    def admit(self, tenant: str) -> None:
        """Count a new stream of a tenant, until `leave`. Raises ProblemError (429) if it has too many."""
        if self._streams.get(tenant, 0) >= self._most_streams:
            raise ProblemError(
                429,
                "too-many-streams",
                f"Your tenant has {self._most_streams} streams open. Close one, or poll the cells of the run.",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        self._streams[tenant] = self._streams.get(tenant, 0) + 1

    def leave(self, tenant: str) -> None:
        """Count a stream of a tenant no longer."""
        self._streams[tenant] -= 1
        if not self._streams[tenant]:
            del self._streams[tenant]

    @contextmanager
    def following(self, run_id: str, take: Callable[[Collection[str]], Look]) -> Iterator[Feed]:
        """The feed of a run, for one stream. take: looks at the run; the first stream's is used for all."""
        feed = self._feeds.setdefault(run_id, Feed(take, self._threads))
        feed.streams += 1
        try:
            yield feed
        finally:
            feed.streams -= 1
            if not feed.streams:
                del self._feeds[run_id]
