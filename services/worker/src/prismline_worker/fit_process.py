"""A child process that fits spectra, so that a fit that takes too long can be stopped.

A fit spends its time in compiled code, which no Python exception interrupts. The worker therefore hands one spectrum at
a time to a child process over a pipe; when the answer does not come in time the child is killed and the next spectrum
gets a new one. Otherwise a child lives as long as its worker, so its start is paid once.

Only `multiprocessing.Process` and `Pipe` are used: AWS Lambda has no `/dev/shm`, which queues and pools need.
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
    """The outcome for one spectrum.

    `rms` is the noise in the unit of the spectrum; `components` has a row (amplitude, mean, stddev) for each Gaussian,
    sorted by mean, with mean and stddev in channels.
    """

    rms: float
    components: list[tuple[float, float, float]]


#: From a spectrum (channels,), all finite, and phspectra's parameters to its fit.
Kernel = Callable[[NDArray[np.float64], Mapping[str, Any]], Fit]

#: Where the child finds its kernel: `module:function`, importable by name in a fresh interpreter.
KERNEL = "prismline_worker.kernel:fit_spectrum"

#: Seconds that a child may take to import its kernel: about one on an idle machine, many on a cold Lambda.
START_TIMEOUT_S = 60.0

#: Children that one spectrum may use up. The second one tells a chance death from a spectrum that kills.
TRIES = 2

#: Seconds that a child which closed its pipe gets to end with an exit code of its own.
EXIT_GRACE_S = 1.0

#: Signals that mean "stop gracefully". A terminal sends them to the whole group, but only the parent may act on them.
_STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


class FitTimeoutError(Exception):
    """The fit was given up because its time was over."""


class FitError(Exception):
    """The kernel raised an exception for this spectrum. The message names it."""


class FitterCrashError(Exception):
    """This spectrum ended :data:`TRIES` children. `exitcode` is the last one's, -N for signal N."""

    def __init__(self, exitcode: int | None) -> None:
        super().__init__(f"the fitting process ended with exit code {exitcode}")
        self.exitcode = exitcode


class FitterUnavailableError(Exception):
    """No child could do its work, for no fault of the spectrum: it did not start, something killed it, or the machine
    had not what the kernel asked it for.
    """


class _Lacking(NamedTuple):
    """The answer of a child whose kernel ran out of memory or met an error of the operating system."""

    what: str


class _ChildGoneError(Exception):
    """The pipe has no other end any more."""


class FitProcess:
    """Fits one spectrum at a time in a child process, which is started when needed and replaced when killed.

    Use it as a context manager, or call :meth:`close`. Not safe for use by two threads at once.

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
        """The process id of the child, None while there is none."""
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

        None means no limit. The start of a child does not count against the budget.
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
                raise FitterUnavailableError(f"the fitting process met {answer.what}")
            raise FitError(answer)
        if was_ready and exitcode != -signal.SIGKILL:
            raise FitterCrashError(exitcode)
        raise FitterUnavailableError(f"the fitting process ended with exit code {exitcode}")

    def close(self) -> None:
        """End the child at once; it holds no state. The next :meth:`fit` starts another."""
        self._end()

    def _start(self) -> Connection:
        """The pipe to the child, which is started if there is none."""
        if self._pipe is not None:
            return self._pipe
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._kernel), name="fit", daemon=True)
        # A blocked signal stays blocked in a child: it is deaf to stop signals even before its first line runs. The
        # tracker, which the first start launches as well, would unblock them, so it has to run already.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            process.start()
        except OSError as error:
            ours.close()
            raise FitterUnavailableError(f"no process could be started ({error})") from error
        else:
            self._process, self._pipe, self._ready = process, ours, False
            # The exit handler of multiprocessing, which was registered earlier and so runs later, waits for the child.
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
                raise FitTimeoutError  # The child is left to finish its start: the next chunk can use it.
            raise _ChildGoneError
        try:
            pipe.recv()
        except (EOFError, OSError):
            raise _ChildGoneError from None
        self._ready = True

    def _ask(self, pipe: Connection, question: object, timeout_s: float | None) -> object:
        """The child's answer. Without one the child is ended: a late answer must not pass for the next spectrum's."""
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
        """Kill the child, if there is one, unless it ends by itself within `grace_s` seconds; its exit code."""
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
    """How long to wait for an answer; None means for ever."""
    if deadline is None:
        return budget_s
    left = max(0.0, deadline - time.monotonic())
    return left if budget_s is None else min(budget_s, left)


def _serve(pipe: Connection, kernel: str) -> None:
    """The child: answer each spectrum with its `Fit`, or the text of the kernel's exception, while there is a pipe."""
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
            except Exception as error:  # whatever the kernel raises is its answer
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)
    except (EOFError, OSError):  # the parent closed the pipe or is gone
        return


def _end_with_parent() -> None:
    """End the child in the middle of a fit when its parent dies; nobody waits for the answer any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
