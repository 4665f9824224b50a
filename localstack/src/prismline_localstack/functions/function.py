"""A function: its execution environments are created on demand, frozen between invocations, and ended when unused.

Invocations beyond the reserved concurrency of a function are refused: the outcome is `THROTTLED`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from prismline_localstack.functions.environment import EnvironmentFailedError, ExecutionEnvironment, Outcome

#: A frozen environment that has been unused for this long is ended, in seconds.
IDLE_SECONDS = 120.0
#: An environment older than this, in seconds, gets no more invocations: its credentials are valid for an hour, and an
#: invocation may take a quarter of an hour.
OLDEST_SECONDS = 2400.0
#: The outcome of an invocation for which a function has no concurrency left.
THROTTLED = Outcome(None, "TooManyRequestsException", "Rate Exceeded.")


@dataclass(frozen=True)
class Release:
    """The deployed state of a function. Another release gets other environments."""

    name: str
    image: str
    #: Changes whenever the code or the configuration of the function changes.
    revision: str
    timeout: float
    #: Reserved concurrency. Invocations of earlier releases count, too. None: no limit.
    reserved: int | None = None


class Function:
    """One release of a function. Invocations in progress end in it, also after `retire`.

    start: creates an environment. logger: logs each invocation.
    """

    def __init__(self, release: Release, start: Callable[[], ExecutionEnvironment], logger: Logger) -> None:
        self.release = release
        self._start = start
        self._logger = logger
        self._lock = threading.Lock()
        self._idle: list[ExecutionEnvironment] = []
        self._retired = False

    def invoke(self, event: bytes) -> Outcome:
        """Invoke the handler in an idle environment, or in a new one. An error is returned as an outcome."""
        environment, cold = self._take()
        began = time.monotonic()
        try:
            outcome = environment.invoke(event, self.release.timeout)
        except EnvironmentFailedError as error:
            outcome = Outcome(None, "Runtime.InitError", str(error))
        self._give_back(environment)
        self._logger.info(
            "invocation",
            extra={
                "function": self.release.name,
                "image": self.release.image,
                "error": outcome.error,
                "reason": outcome.message,
                "duration_ms": round((time.monotonic() - began) * 1000),
                "cold_start": environment.cold_start if cold else None,
            },
        )
        return outcome

    def _take(self) -> tuple[ExecutionEnvironment, bool]:
        with self._lock:
            while self._idle:
                environment = self._idle.pop()
                if environment.alive:
                    return environment, False
                environment.stop()
        return self._start(), True

    def _give_back(self, environment: ExecutionEnvironment) -> None:
        with self._lock:
            young = time.monotonic() - environment.started < OLDEST_SECONDS
            if environment.alive and young and not self._retired:
                self._idle.append(environment)
                return
        environment.stop()

    def retire(self) -> None:
        """End all idle environments, and each of the others when its invocation is over."""
        with self._lock:
            self._retired = True
            idle, self._idle = self._idle, []
        for environment in idle:
            environment.stop()

    def end_unused(self) -> None:
        """End environments that have been idle for a while."""
        oldest = time.monotonic() - IDLE_SECONDS
        with self._lock:
            unused = [each for each in self._idle if each.idle_since < oldest]
            self._idle = [each for each in self._idle if each.idle_since >= oldest]
        for environment in unused:
            environment.stop()


class Functions:
    """The functions that are deployed now, by name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._by_name: dict[str, Function] = {}
        self._under_way: Counter[str] = Counter()
        self._changed = threading.Condition()

    @property
    def names(self) -> set[str]:
        """Names of the functions that are deployed."""
        with self._changed:
            return set(self._by_name)

    def find(self, name: str, patience: float = 0.0) -> Function | None:
        """The function of this name. If there is none yet, wait for it up to `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._by_name, patience)
            return self._by_name.get(name)

    def invoke(self, name: str, event: bytes, patience: float = 0.0) -> Outcome | None:
        """Invoke the function of this name. None if there is none within `patience` seconds."""
        function = self.find(name, patience)
        if function is None:
            return None
        with self._changed:
            reserved = function.release.reserved
            if reserved is not None and self._under_way[name] >= reserved:
                return THROTTLED
            self._under_way[name] += 1
        try:
            return function.invoke(event)
        finally:
            with self._changed:
                self._under_way[name] -= 1

    def replace(self, name: str, function: Function | None) -> None:
        """Replace or remove the function with this name. The old function is retired."""
        with self._changed:
            before = self._by_name.pop(name, None)
            if function is not None:
                self._by_name[name] = function
                self._changed.notify_all()
        if before is not None:
            before.retire()

    def retire(self) -> None:
        """End all idle environments, and each of the others when its invocation is over."""
        with self._changed:
            functions = list(self._by_name.values())
        for function in functions:
            function.retire()
