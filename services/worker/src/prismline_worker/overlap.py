"""Doing one thing while the next, or the one before, is still being fetched or written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """`items`, the next one made in another thread while the caller works on this one."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        coming: Future[T | object] = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]
