"""Replaces time, randomness, threads and logs in the project's code by virtual ones.

`virtual(scheduler)` replaces names in the project's own modules (and in tenacity, which waits for it), and restores
them. It changes no module of the standard library, so the test runner keeps its clock.
"""

from __future__ import annotations

import concurrent.futures
import queue
import random
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from tests.simulation.scheduler import START, Process, Scheduler

#: The scheduler of the present virtual world.
_scheduler: Scheduler | None = None


def _world() -> Scheduler:
    assert _scheduler is not None
    return _scheduler


def _now() -> float:
    return _world().time


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


class VirtualEvent:
    """`threading.Event` for threads of the scheduler."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Process] = []

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._set

    def set(self) -> None:
        """Let all waiting threads go on."""
        self._set = True
        _wake(self._waiting)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `set`, at most `timeout` seconds. Returns whether it was called."""
        if not self._set:
            _park_among(self._waiting, None if timeout is None else _now() + timeout)
        return self._set


class VirtualSemaphore:
    """`threading.Semaphore` for threads of the scheduler."""

    def __init__(self, value: int = 1) -> None:
        self._free = value
        self._waiting: list[Process] = []

    def __enter__(self) -> None:
        while not self._free:
            _park_among(self._waiting)
        self._free -= 1

    def __exit__(self, *_: object) -> None:
        self._free += 1
        _wake(self._waiting)


class VirtualLock(VirtualSemaphore):
    """`threading.Lock` for threads of the scheduler."""


class VirtualQueue:
    """`queue.SimpleQueue` for threads of the scheduler."""

    def __init__(self) -> None:
        self._held: deque[Any] = deque()
        self._waiting: list[Process] = []

    def put(self, item: Any) -> None:
        """Add an item."""
        self._held.append(item)
        _wake(self._waiting)

    def get(self, timeout: float | None = None) -> Any:
        """The first item, as soon as there is one. Raises queue.Empty after `timeout` seconds."""
        end = None if timeout is None else _now() + timeout
        while not self._held:
            if end is not None and _now() >= end:
                raise queue.Empty
            _park_among(self._waiting, end)
        return self._held.popleft()


def _park_among(waiting: list[Process], end: float | None = None) -> None:
    """Let the running thread wait until it is woken, or until `end`."""
    scheduler = _world()
    thread = scheduler.running_thread()
    if end is not None:
        scheduler.wake_at(thread, end)
    waiting.append(thread)
    try:
        scheduler.park(thread)
    finally:
        waiting.remove(thread)


def _wake(waiting: Iterable[Process]) -> None:
    for thread in waiting:
        _world().wake_at(thread, _now())


class VirtualThread:
    """`threading.Thread`, as a further thread of the running process."""

    def __init__(
        self, *, target: Callable[..., None], args: Sequence[Any] = (), daemon: bool = True, name: str = ""
    ) -> None:
        assert daemon, "a process does not wait for its threads"
        self._target, self._args = target, args
        self._name = name or target.__name__.strip("_")
        self._ended = VirtualEvent()

    def start(self) -> None:
        """Begin at this moment, after the events that are due."""
        scheduler = _world()
        scheduler.spawn_thread(scheduler.running_thread(), self._name, self._run)

    def _run(self, _: Process) -> None:
        try:
            self._target(*self._args)
        finally:
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self._ended.wait(timeout)


class _Threading:
    """The module `threading`, in virtual time."""

    Event, Lock, Semaphore, Thread = VirtualEvent, VirtualLock, VirtualSemaphore, VirtualThread

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class _Queue:
    """The module `queue`, in virtual time."""

    SimpleQueue = VirtualQueue

    def __getattr__(self, name: str) -> Any:
        return getattr(queue, name)


def _one_after_the_other(call: Callable[[Any], Any], arguments: Iterable[Any], _at_a_time: int = 1) -> list[Any]:
    """`call_concurrently` without threads."""
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
            logged = {name: value for name, value in (fields.get("extra") or {}).items() if value is not None}
            text = " ".join(f"{name}={value}" for name, value in logged.items())
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
virtual_threading, virtual_queue = _Threading(), _Queue()
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
        id(dynamodb.call_concurrently): _one_after_the_other,
        **quick.STAND_INS,
    }
    found: list[tuple[Any, str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("prismline_cli.") and getattr(module, "datetime", None) is datetime:
            found.append((module, "datetime", _VirtualDatetime))
        if name.startswith(("prismline_", "prismline.")):
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
