"""What threads make together is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from prismline_runtime.once import once


def test_threads_that_call_at_the_same_time_get_one_object() -> None:
    threads, calls = 4, []
    together = Barrier(threads)

    @once
    def make() -> object:
        calls.append(None)
        return object()

    def call(_: int) -> object:
        together.wait(10)
        return make()

    with ThreadPoolExecutor(threads) as pool:
        made = set(pool.map(call, range(threads)))
    assert (len(made), len(calls)) == (1, 1)
