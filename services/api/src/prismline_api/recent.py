"""Answers that requests share for a second, so that many open pages cost no more than one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

#: How old a shared answer may be, in seconds.
SECONDS = 1.0
#: Answers that are kept.
MOST_ANSWERS = 256

T = TypeVar("T")


class Recent:
    """The latest answers, by request. A request waits for an answer that another request is loading."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    def get_or_load(self, asked: Hashable, load: Callable[[], T]) -> T:
        """A kept answer that is at most `SECONDS` old, else the result of `load`. Errors of `load` are not kept."""
        with self._lock:
            answer = self._answers.pop(asked, None) or _Answer()
            self._answers[asked] = answer
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        with answer.lock:
            if self._clock() >= answer.until:
                answer.value = load()
                answer.until = self._clock() + SECONDS
            return cast("T", answer.value)


class _Answer:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.until = 0.0
        self.value: Any = None
