"""Prefetching: prepare the next item in another thread while the caller uses the current one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield `items`. While the caller uses one item, another thread prepares the next one."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        coming: Future[T | object] = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]
