"""Places that runs share: nobody is forgotten, and a run with few tasks does not wait behind a long line."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismline_worker.fair_places import FairPlaces


class Workers:
    """Tasks of asyncio that each keep a place until they are told to leave."""

    def __init__(self, places: int) -> None:
        self.places = FairPlaces(places)
        #: Run ids in the order in which their tasks got a place.
        self.order: list[str] = []
        self.inside: dict[asyncio.Task[None], asyncio.Event] = {}

    def enter(self, run_id: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._work(run_id))

    async def _work(self, run_id: str) -> None:
        async with self.places.place(run_id):
            task = asyncio.current_task()
            assert task is not None
            self.order.append(run_id)
            self.inside[task] = asyncio.Event()
            try:
                await self.inside[task].wait()
            finally:
                del self.inside[task]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_small_run_waits_for_no_long_line() -> None:
    async def scene() -> list[str]:
        workers = Workers(2)
        tasks = [workers.enter("large") for _ in range(50)]
        await settle()
        tasks += [workers.enter("small") for _ in range(3)]
        await settle()
        while workers.inside:
            next(iter(workers.inside.values())).set()
            await settle()
        await asyncio.gather(*tasks)
        return workers.order

    order = asyncio.run(scene())
    assert Counter(order) == {"large": 50, "small": 3}
    assert "small" not in order[8:]


@pytest.mark.parametrize("places", [1, 3])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_cancelled_tasks_lose_no_place_and_nobody_waits_beside_a_free_one(places: int, seed: int) -> None:
    chance = random.Random(seed)

    async def scene() -> None:
        workers = Workers(places)
        tasks: list[asyncio.Task[None]] = []
        for _ in range(80):
            match chance.choice(["enter", "enter", "leave", "cancel"]):
                case "enter":
                    tasks.append(workers.enter(chance.choice("abc")))
                case "leave" if workers.inside:
                    chance.choice(list(workers.inside.values())).set()
                case "cancel" if tasks:
                    chance.choice(tasks).cancel()
            for _ in range(chance.randrange(4)):  # a task that has got a place is cancelled before it runs
                await asyncio.sleep(0)
        await settle()
        waiting = sum(not task.done() for task in tasks) - len(workers.inside)
        assert len(workers.inside) <= places
        assert waiting == 0 or len(workers.inside) == places
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        everybody = [workers.enter("a") for _ in range(places)]
        await settle()
        assert len(workers.inside) == places
        for task in everybody:
            task.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)

    asyncio.run(scene())
