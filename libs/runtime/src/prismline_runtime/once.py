"""What a process makes once, for all its threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Decorator of a function that makes something: the first call makes it, and the others wait for that.

    `functools.cache` alone would let threads that call at the same time make several.
    """
    made, making = cache(make), Lock()

    @wraps(make)
    def get() -> T:
        with making:
            return made()

    return get
