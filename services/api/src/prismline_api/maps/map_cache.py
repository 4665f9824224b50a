"""Keeps the parts of maps in memory, up to a number of bytes. The least recently used part is dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

#: Values that are made at the same time. With more, each one would only finish later.
THREADS = 3

T = TypeVar("T")


class MapCache:
    """Values by key, at most `most_bytes` in total, and the threads that make them. A process has one."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="maps")
        self.n_bytes = 0

    def find(self, key: Hashable) -> Any | None:
        """The value, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def keep(self, key: Hashable, value: Any, n_bytes: int) -> None:
        """Keep a value. Others are dropped for it, or it is not kept if it is too large."""
        with self._lock:
            self._drop(key)
            self._values[key] = (value, n_bytes)
            self.n_bytes += n_bytes
            while self.n_bytes > self._most_bytes:
                self._drop(next(iter(self._values)))

    def forget(self, key: Hashable) -> None:
        """Drop a value if it is there."""
        with self._lock:
            self._drop(key)

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The value. It is made here if it is not there."""
        value: T | None = self.find(key)
        if value is None:
            value = make()
            self.keep(key, value, size(value))
        return value

    def later(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> Future[T]:
        """The value. One of the threads makes it if it is not there. Other callers get the same future meanwhile."""
        future: Future[T] = Future()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                future.set_result(self._values[key][0])
                return future
            if key in self._making:
                return self._making[key]
            self._making[key] = future
        self._pool.submit(self._make, key, make, size, future)
        return future

    def _make(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int], future: Future[T]) -> None:
        try:
            value = make()
            self.keep(key, value, size(value))
        except BaseException as error:
            with self._lock:
                self._making.pop(key)
            future.set_exception(error)
            return
        with self._lock:
            self._making.pop(key)
        future.set_result(value)

    def _drop(self, key: Hashable) -> None:
        if key in self._values:
            self.n_bytes -= self._values.pop(key)[1]
