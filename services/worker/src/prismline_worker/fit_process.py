"""A child process that fits spectra with phspectra, so that a fit that takes too long can be stopped.

A fit runs compiled code, which no Python exception can interrupt. The worker therefore sends one spectrum at a time to
a child process over a pipe. If the answer is late, the worker kills the child, and the next spectrum gets a new child.
Otherwise the child lives as long as the worker.

The module uses only `multiprocessing.Process` and `Pipe`, because queues and pools need `/dev/shm`, which AWS Lambda
does not have.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pkgutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Fit(NamedTuple):
    """The result for one spectrum.

    `rms` is the noise, in the unit of the spectrum. `components` has one (amplitude, mean, stddev) for each Gaussian,
    sorted by mean. Means and standard deviations are in channels.
    """

    rms: float
    components: list[tuple[float, float, float]]


#: Takes a spectrum (channels,) with finite values only, and phspectra's parameters. Returns the fit.
Kernel = Callable[[NDArray[np.float64], Mapping[str, Any]], Fit]

#: The kernel, as `module:function`. The child imports it.
KERNEL = "prismline_worker.phspectra_fit:fit_spectrum"

#: Longest time, in seconds, in which a child imports its kernel: about 1 on an idle machine, more on a cold Lambda.
START_TIMEOUT_S = 60.0

#: How many children may die on one spectrum. A second death shows that the spectrum is the cause.
TRIES = 2

#: Seconds in which a child that closed its pipe may exit with its own exit code.
EXIT_GRACE_S = 1.0

#: Signals that ask for a graceful stop. A terminal sends them to the whole group, but only the parent may act on them.
_STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


class FitTimeoutError(Exception):
    """The fit was stopped because it exceeded its time limit."""


class FitError(Exception):
    """The kernel raised an exception for this spectrum. The message names the exception."""


class FitterCrashError(Exception):
    """:data:`TRIES` children died on this spectrum. `exitcode` is that of the last one; -N means signal N."""

    def __init__(self, exitcode: int | None) -> None:
        super().__init__(f"the fitting process ended with exit code {exitcode}")
        self.exitcode = exitcode


class FitterUnavailableError(Exception):
    """No child could do the work, and the spectrum is not the cause.

    The child did not start, was killed from outside, or the kernel ran out of a resource of the machine.
    """


class _Lacking(NamedTuple):
    """The answer of a child whose kernel ran out of memory or got an error of the operating system."""

    what: str


class _ChildGoneError(Exception):
    """The child has closed its end of the pipe."""


class FitProcess:
    """Fits one spectrum at a time in a child process, which starts on demand and is replaced after a kill.

    Use it as a context manager, or call :meth:`close`. Only one thread may use it at a time.

        with FitProcess() as fitter:
            fit = fitter.fit(spectrum, {"beta": 3.5}, budget_s=5.0)
    """

    def __init__(self, kernel: str = KERNEL) -> None:
        self._kernel = kernel
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False

    def __enter__(self) -> Self:
        """Start the child, without waiting until it is ready."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None if there is no child."""
        return None if self._process is None else self._process.pid

    def fit(
        self,
        spectrum: NDArray[np.float64],
        params: Mapping[str, Any],
        *,
        budget_s: float | None = None,
        deadline: float | None = None,
    ) -> Fit:
        """Fit `spectrum` (channels,) within `budget_s` seconds and before `deadline` (`time.monotonic` seconds).

        None means no limit. The time to start a child is not part of the budget.
        Raises `FitTimeoutError`, `FitError`, `FitterCrashError` or `FitterUnavailableError`.
        """
        for _ in range(TRIES):
            pipe = self._start()
            try:
                self._await_ready(pipe, deadline)
                answer = self._ask(pipe, (spectrum, dict(params)), _seconds_left(budget_s, deadline))
            except _ChildGoneError:
                was_ready = self._ready
                exitcode = self._end(grace_s=EXIT_GRACE_S)
                continue
            if isinstance(answer, Fit):
                return answer
            if isinstance(answer, _Lacking):
                raise FitterUnavailableError(f"the fitting process raised {answer.what}")
            raise FitError(answer)
        if was_ready and exitcode != -signal.SIGKILL:
            raise FitterCrashError(exitcode)
        raise FitterUnavailableError(f"the fitting process ended with exit code {exitcode}")

    def close(self) -> None:
        """Kill the child. It holds no state, and the next :meth:`fit` starts another one."""
        self._end()

    def _start(self) -> Connection:
        """The pipe to the child. Starts a child if there is none."""
        if self._pipe is not None:
            return self._pipe
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._kernel), name="fit", daemon=True)
        # The child inherits blocked signals, so it ignores stop signals from its first moment. The resource tracker
        # unblocks them when it starts, so it must already be running.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            process.start()
        except OSError as error:
            ours.close()
            raise FitterUnavailableError(f"no process could be started ({error})") from error
        else:
            self._process, self._pipe, self._ready = process, ours, False
            # The exit handler of multiprocessing waits for the child. It was registered earlier, so it runs later.
            atexit.register(self.close)
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return ours

    def _await_ready(self, pipe: Connection, deadline: float | None) -> None:
        if self._ready:
            return
        if not pipe.poll(_seconds_left(START_TIMEOUT_S, deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                raise FitTimeoutError  # The child may finish its start. The next chunk can use it.
            raise _ChildGoneError
        try:
            pipe.recv()
        except (EOFError, OSError):
            raise _ChildGoneError from None
        self._ready = True

    def _ask(self, pipe: Connection, question: object, timeout_s: float | None) -> object:
        """The child's answer. A late child is killed, so that its answer is not taken for that of the next spectrum."""
        try:
            pipe.send(question)
            if pipe.poll(timeout_s):
                return pipe.recv()
        except (EOFError, OSError):
            raise _ChildGoneError from None
        except BaseException:
            self._end()
            raise
        self._end()
        raise FitTimeoutError

    def _end(self, grace_s: float = 0.0) -> int | None:
        """Wait up to `grace_s` seconds for the child to exit, then kill it. Return its exit code, None if no child."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is None:
            return None
        atexit.unregister(self.close)
        process.join(grace_s)
        process.kill()
        process.join()
        exitcode = process.exitcode
        process.close()
        return exitcode


def _seconds_left(budget_s: float | None, deadline: float | None) -> float | None:
    """How many seconds to wait for an answer. None means without limit."""
    if deadline is None:
        return budget_s
    left = max(0.0, deadline - time.monotonic())
    return left if budget_s is None else min(budget_s, left)


def _serve(pipe: Connection, kernel: str) -> None:
    """The child's main loop: answer each spectrum with a `Fit`, or with the text of the kernel's exception."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    fit: Kernel = pkgutil.resolve_name(kernel)
    try:
        pipe.send("ready")
        while True:
            spectrum, params = pipe.recv()
            try:
                answer: Fit | _Lacking | str = fit(spectrum, params)
            except (MemoryError, OSError) as error:
                answer = _Lacking(f"{type(error).__name__}: {error}".removesuffix(": "))
            except Exception as error:  # the parent gets any exception of the kernel as the answer
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)
    except (EOFError, OSError):  # the parent closed the pipe or is gone
        return


def _end_with_parent() -> None:
    """Exit when the parent dies, even in the middle of a fit."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
