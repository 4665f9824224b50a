"""Replaces time, randomness, threads and logs in the project's code by virtual ones.

`virtual(scheduler)` replaces names in the project's own modules (and in tenacity, which waits for it), and restores
them. It changes no module of the standard library, so the test runner keeps its clock.
"""

from __future__ import annotations

import concurrent.futures
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, tzinfo
from functools import cache, lru_cache
from typing import Any, Self

import tenacity
import tenacity.nap
import tenacity.wait

from prismline_contracts import base
from prismline_runtime import dynamodb, telemetry
from tests.simulation import quick
from tests.simulation.choices import ChosenRandom
from tests.simulation.scheduler import START, Scheduler

#: The scheduler of the present virtual world.
_scheduler: Scheduler | None = None


def _now() -> float:
    assert _scheduler is not None
    return _scheduler.time


class _Clock:
    """The module `time`, in virtual time."""

    @staticmethod
    def time() -> float:
        return _now()

    @staticmethod
    def monotonic() -> float:
        return _now() - START

    perf_counter = monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        assert _scheduler is not None
        if _scheduler.current is not None:
            _scheduler.wait(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def uuid4() -> uuid.UUID:
    """A random id, drawn by the schedule."""
    assert _scheduler is not None
    return uuid.UUID(int=_ids.getrandbits(128), version=4)


class _Uuid:
    """The module `uuid`, whose random ids the schedule draws."""

    uuid4 = staticmethod(uuid4)

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)


class _Random:
    """The module `random`, whose jitter is a choice of the schedule."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_jitter if _scheduler is not None else random, name)


class _VirtualDatetime(datetime):
    """`datetime` whose `now` is the virtual clock's."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return _datetime(_now(), tz or UTC)


#: Code asks for the same moment several times in a row, so a small cache is enough.
_datetime = lru_cache(maxsize=8)(datetime.fromtimestamp)


class Done:
    """A finished future."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def result(self, _timeout: float | None = None) -> Any:
        """The returned value; or raises the error."""
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        """False: the call has been made."""
        return False


class InlineExecutor:
    """A ThreadPoolExecutor that runs each call immediately."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Done:
        """Call the function. The returned future is finished."""
        try:
            return Done(function(*arguments, **named), None)
        except Exception as error:
            return Done(None, error)

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        """The results, in order. All calls are made first, as in a pool."""
        futures = [self.submit(function, *each) for each in zip(*items, strict=True)]
        return (future.result() for future in futures)

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Do nothing: all calls are finished."""


def _one_after_the_other(call: Callable[[Any], Any], arguments: Iterable[Any], _at_a_time: int = 1) -> list[Any]:
    """`side_by_side` without threads."""
    return [call(argument) for argument in arguments]


class NoMetrics:
    """A metrics provider that discards all metrics."""

    def __init__(self, **_: Any) -> None:
        self.service = ""

    def add_dimension(self, *_: Any, **__: Any) -> None: ...

    def add_metric(self, *_: Any, **__: Any) -> None: ...

    def flush_metrics(self) -> None: ...


class TraceLogger:
    """A service's logger that writes into the trace. It passes unexpected errors to `unexpected`."""

    def __init__(self, scheduler: Scheduler, unexpected: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._unexpected = unexpected
        self._nothing: AbstractContextManager[None] = nullcontext()

    def append_context_keys(self, **_: Any) -> AbstractContextManager[None]:
        """Do nothing: the trace already has the context."""
        return self._nothing

    def thread_safe_append_keys(self, **_: Any) -> None:
        """Do nothing: the keys of a thread are not written."""

    def thread_safe_remove_keys(self, keys: Any) -> None:
        """Do nothing: there are no keys."""

    def info(self, event: str, **fields: Any) -> None:
        """Record an event."""
        if self._scheduler.trace.on:
            process = self._scheduler.current
            said = {name: value for name, value in (fields.get("extra") or {}).items() if value is not None}
            text = " ".join(f"{name}={value}" for name, value in said.items())
            self._scheduler.trace.note(self._scheduler.time, process.name if process else "-", f"  {event} {text}")

    def warning(self, event: str, **fields: Any) -> None:
        """Record an event. With `exc_info`, it is about an unexpected error."""
        self.info(event, **fields)
        if fields.get("exc_info"):
            error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
            self._unexpected(f"{event}: {error!r}")

    def exception(self, event: str, **fields: Any) -> None:
        """Record an unexpected error."""
        self.warning(event, **fields, exc_info=True)

    error = info
    debug = info


_clock, _uuid, _random = _Clock(), _Uuid(), _Random()
_ids = random.Random(0)
_jitter: random.Random = random.Random(0)


@cache
def replacements() -> list[tuple[Any, str, Any]]:
    """The names in the project's modules that refer to the real world, with their virtual replacements.

    They are looked for once. After another import of the project's modules, call `replacements.cache_clear()`.
    """
    stand_ins: dict[int, Any] = {
        id(time): _clock,
        id(uuid): _uuid,
        id(uuid.uuid4): uuid4,
        id(random): _random,
        id(concurrent.futures.ThreadPoolExecutor): InlineExecutor,
        id(dynamodb.side_by_side): _one_after_the_other,
        **quick.STAND_INS,
    }
    found: list[tuple[Any, str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("prismline_cli.") and getattr(module, "datetime", None) is datetime:
            found.append((module, "datetime", _VirtualDatetime))
        if name.startswith("prismline_"):
            found += [
                (module, key, stand_ins[id(value)]) for key, value in vars(module).items() if id(value) in stand_ins
            ]
    found += [(tenacity, "time", _clock), (tenacity.nap, "time", _clock), (tenacity.wait, "random", _random)]
    found += [(base, "datetime", _VirtualDatetime), (telemetry, "AmazonCloudWatchEMFProvider", NoMetrics)]
    return found + quick.NAMES


@contextmanager
def replaced(names: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace names of modules and classes within the block."""
    before = []
    for module, name, value in names:
        before.append((module, name, vars(module).get(name)))
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in reversed(before):
            if value is None:  # the class had inherited this name
                delattr(module, name)
            else:
                setattr(module, name, value)


@contextmanager
def virtual(scheduler: Scheduler) -> Iterator[None]:
    """Run the project's code in the time of `scheduler` within the block."""
    global _scheduler, _ids, _jitter  # noqa: PLW0603
    assert _scheduler is None, "one simulation at a time"
    _scheduler = scheduler
    _ids = random.Random(0)
    _jitter = ChosenRandom(scheduler.choices.stream("jitter"))
    try:
        with replaced(replacements()):
            yield
    finally:
        _scheduler = None
