"""Limits concurrent work: the leases that a process holds for its runs and for the hosts of its URLs.

A process takes slots of a resource for all its work together, renews them, and gives them back when none of its work
needs them any more. It cancels work whose slots are lost, because another process may have them by then.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from aws_lambda_powertools import Logger

from prismline_coordination import Lease, Leases
from prismline_runtime import UnavailableError
from prismline_worker.fair_places import FairPlaces

#: Renewals in the life of a lease. One of them may fail without harm.
RENEWALS = 3


class NoSlotError(UnavailableError):
    """All slots of the resource are taken. The work waits, and no attempt is used."""


class LostSlotError(UnavailableError):
    """The slots of the work were lost before it ended. Another process may have them."""


class Slots:
    """The process's slots of one resource. Tasks of asyncio work in them, and runs take turns."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.leases: list[Lease] = []
        self.users = 0
        self.wanted = 0
        self.lost = False
        self._places = FairPlaces(0)
        self._working: set[asyncio.Task[object]] = set()

    def add(self, leases: Iterable[Lease]) -> None:
        """Add slots. Each lets one more task work at the same time."""
        for lease in leases:
            self.leases.append(lease)
            self._places.add()

    def lose(self) -> None:
        """Cancel all tasks that work in the slots or wait for one."""
        self.lost = True
        for task in self._working:
            task.cancel()

    @asynccontextmanager
    async def turn(self, run_id: str) -> AsyncIterator[None]:
        """Wait for a slot for a task of the run, and keep it for the block.

        Raises LostSlotError if the slots are lost meanwhile.
        """
        task = asyncio.current_task()
        assert task is not None, "a turn is taken by a task"
        if self.lost:
            raise LostSlotError(f"The lease of {self.resource} was lost.")
        self._working.add(task)
        try:
            async with self._places.place(run_id):
                yield
        except asyncio.CancelledError:
            if not self.lost:
                raise
            task.uncancel()
            raise LostSlotError(f"The lease of {self.resource} was lost.") from None
        finally:
            self._working.discard(task)


class SlotPool:
    """The slots of one process. All calls are made in one event loop."""

    def __init__(self, leases: Leases, logger: Logger) -> None:
        self._leases = leases
        self._logger = logger
        self._held: dict[str, Slots] = {}
        self._lock = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def slots(self, resource: str, limit: int, wanted: int) -> AsyncIterator[Slots]:
        """Slots of `resource` for the block: up to `wanted` more than the process has for its other work.

        If the process has none, raises NoSlotError if it gets none, and UnavailableError if Valkey does not answer.
        """
        held = await self._enter(resource, limit, wanted)
        try:
            yield held
        finally:
            await self._leave(held, wanted)

    async def _enter(self, resource: str, limit: int, wanted: int) -> Slots:
        async with self._lock:
            held = self._held.get(resource) or Slots(resource)
            missing = min(limit, held.wanted + wanted) - len(held.leases)
            if missing > 0:
                try:
                    held.add(await asyncio.to_thread(self._leases.take, resource, limit, missing))
                except UnavailableError:
                    if not held.leases:
                        raise
            if not held.leases:
                raise NoSlotError(f"No slot of {_shown(resource)} is free: it has {limit}.")
            self._held[resource] = held
            held.users += 1
            held.wanted += wanted
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew())
            return held

    async def _leave(self, held: Slots, wanted: int) -> None:
        async with self._lock:
            held.users -= 1
            held.wanted -= wanted
            if held.users == 0 and not held.lost:
                del self._held[held.resource]
                # Slots that cannot be given back become free when their leases expire.
                with suppress(UnavailableError):
                    await asyncio.to_thread(self._leases.release, held.leases)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(self._leases.seconds / RENEWALS)
            async with self._lock:
                for held in list(self._held.values()):
                    kept = await asyncio.to_thread(renewed, self._leases, held.leases)
                    if len(kept) == len(held.leases):
                        held.leases = kept
                        continue
                    self._logger.warning("lease_lost", extra={"resource": held.resource})
                    del self._held[held.resource]
                    held.lose()
                    with suppress(UnavailableError):
                        await asyncio.to_thread(self._leases.release, kept)


def _shown(resource: str) -> str:
    """The name of a resource for people. They read it in the item of a run, so the run needs no id."""
    kind, _, name = resource.partition(":")
    return "the run" if kind == "run" else f"the host {name}"


def renewed(leases: Leases, held: list[Lease]) -> list[Lease]:
    """Renew leases and return those that are still held. If Valkey does not answer: those that have not expired."""
    try:
        return leases.renew(held)
    except UnavailableError:
        return [lease for lease in held if leases.valid(lease)]


@contextmanager
def keeping(leases: Leases, held: list[Lease], logger: Logger) -> Iterator[None]:
    """Renew leases in a thread during the block, and give them back at its end. For work that cannot be cancelled.

    If a lease is lost, the work continues. The ledger guards its result, so the only harm is an exceeded limit.
    """
    done = threading.Event()

    def renew() -> None:
        left = held
        while left and not done.wait(leases.seconds / RENEWALS):
            kept = renewed(leases, left)
            if len(kept) < len(left):
                logger.warning("lease_lost", extra={"resource": left[0].resource})
            left = kept

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(UnavailableError):
            leases.release(held)
