"""A number of places for tasks of asyncio, which runs get in turn: a run with few tasks waits for no long line."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """Like `asyncio.Semaphore`, but a place that becomes free goes to the run whose last turn is longest ago."""

    def __init__(self, places: int) -> None:
        self._free = places
        #: The waiting tasks of each run, in order. The first run is the next one.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def add(self) -> None:
        """Make one more place free."""
        while self._waiting:
            run_id, line = next(iter(self._waiting.items()))
            del self._waiting[run_id]
            first = line.popleft()
            if line:
                self._waiting[run_id] = line
            if not first.done():
                first.set_result(None)
                return
        self._free += 1

    @asynccontextmanager
    async def place(self, run_id: str) -> AsyncIterator[None]:
        """Wait for a place and keep it for the block."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(run_id, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self.add()
                raise
        try:
            yield
        finally:
            self.add()
