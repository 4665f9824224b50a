"""The runner processes of this process, which all its messages share. Each works on one item at a time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismline.protocol import Entry
from prismline.supervisor import BatchOutcome, OtherCodeError, Outcome, Supervisor, WorkloadUnavailableError
from prismline_runtime import UnavailableError

#: Seconds until a function that could not be loaded is loaded again.
LOAD_AGAIN_SECONDS = 5.0
#: What a person can do about a run whose code is no longer there.
MOVE = "Restore it, or move the run to the new code: `prismline retry RUN --code latest`."


@dataclass(frozen=True)
class RunnerKind:
    """What the runners of an item have in common: any idle one of the same kind can take the item."""

    name: str
    #: Digest of the source files. A runner with other files is not used.
    code: str
    #: Parameters of the run, as JSON.
    parameters: str
    python: str
    paths: tuple[str, ...] = ()
    #: Names of environment variables that the function gets.
    variables: tuple[str, ...] = ()


class FunctionMissingError(UnavailableError):
    """This process cannot load the function: its package is missing or does not import, or its code is another one.

    No item is to blame, so they wait.
    """


class Runners:
    """At most `most` runner processes.

    make: starts a supervisor of a kind. An idle runner stays for the next item of its kind, until its place is needed.
    """

    def __init__(self, most: int, make: Callable[[RunnerKind], Supervisor]) -> None:
        self.most = most
        self._make = make
        self._places = threading.Semaphore(most)
        self._lock = threading.Lock()
        #: Idle supervisors, the one that was used last at the end.
        self._idle: OrderedDict[Supervisor, RunnerKind] = OrderedDict()
        self._working: set[Supervisor] = set()
        #: Functions that could not be loaded: until when that counts, and why.
        self._missing: dict[RunnerKind, tuple[float, str]] = {}

    def load(self, kind: RunnerKind) -> None:
        """Make sure that the function can be loaded. Raises FunctionMissingError."""
        with self._lock:
            if kind in self._idle.values():
                return
            until, reason = self._missing.get(kind, (0.0, ""))
        if time.monotonic() < until:
            raise FunctionMissingError(reason)
        with self._supervisor(kind) as supervisor:
            _ = supervisor.description

    def run(self, kind: RunnerKind, item: Any, *, item_id: str, attempt: int) -> Outcome:
        """One attempt of an item, as soon as there is a place for it. Raises FunctionMissingError."""
        with self._supervisor(kind) as supervisor:
            return supervisor.run(item, item_id=item_id, attempt=attempt)

    def run_batch(self, kind: RunnerKind, entries: Sequence[Entry]) -> BatchOutcome:
        """One call of a vectorized function, as soon as there is a place for it. Raises FunctionMissingError."""
        with self._supervisor(kind) as supervisor:
            return supervisor.run_batch(entries)

    def finalize(self, kind: RunnerKind, results: Path, *, item_id: str, attempt: int) -> Outcome:
        """One call of the function of `finalize`, as soon as there is a place for it. Raises FunctionMissingError."""
        with self._supervisor(kind) as supervisor:
            return supervisor.finalize(results, item_id=item_id, attempt=attempt)

    def close(self) -> None:
        """Kill all runners."""
        with self._lock:
            everyone = [*self._idle, *self._working]
            self._idle.clear()
        for each in everyone:
            each.close()

    @contextmanager
    def _supervisor(self, kind: RunnerKind) -> Iterator[Supervisor]:
        with self._places:
            supervisor = self._take(kind)
            try:
                yield supervisor
            except WorkloadUnavailableError as error:
                self._drop(supervisor)
                reason = f"{error} {MOVE}" if isinstance(error, OtherCodeError) else str(error)
                with self._lock:
                    self._missing[kind] = (time.monotonic() + LOAD_AGAIN_SECONDS, reason)
                raise FunctionMissingError(reason) from error
            except BaseException:
                self._drop(supervisor)
                raise
            with self._lock:
                self._working.discard(supervisor)
                self._idle[supervisor] = kind
                self._missing.pop(kind, None)

    def _take(self, kind: RunnerKind) -> Supervisor:
        """An idle supervisor of this kind, or a new one in the place of the one that has been idle for longest."""
        spare = None
        with self._lock:
            found = next((each for each in reversed(self._idle) if self._idle[each] == kind), None)
            if found is not None:
                del self._idle[found]
            elif len(self._idle) + len(self._working) >= self.most:
                spare, _ = self._idle.popitem(last=False)
            supervisor = self._make(kind) if found is None else found
            self._working.add(supervisor)
        if spare is not None:
            spare.close()
        return supervisor

    def _drop(self, supervisor: Supervisor) -> None:
        with self._lock:
            self._working.discard(supervisor)
        supervisor.close()
