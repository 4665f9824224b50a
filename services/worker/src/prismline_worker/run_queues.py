"""The queues of runs with many tasks: which ones a worker polls, and how often compared with the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import RunItem
from prismline_ledger import Ledger
from prismline_runtime import clients
from prismline_worker.settings import WorkerSettings

#: Seconds for which the consumers of a process share one read of the open runs.
READ_SECONDS = 4.0


def queues_of(runs: Iterable[RunItem]) -> dict[str, int]:
    """The full names of the queues of runs that have work, with the priority of the run."""
    return {
        run.task_queue: run.priority
        for run in runs
        if run.task_queue is not None
        and run.cancelled_at is None
        and (run.drained_at is None or due_finalization(run) is not None)
    }


class RunQueues:
    """Reads the queues of the open runs from the ledger, at most once in `READ_SECONDS`."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._queues: Mapping[str, int] = {}

    def __call__(self) -> Mapping[str, int]:
        """The queues, with their priorities."""
        with self._lock:
            if self._clock() - self._read_at >= READ_SECONDS:
                self._queues = queues_of(self._ledger.open_runs())
                self._read_at = self._clock()
            return self._queues


@cache
def _run_queues() -> RunQueues:
    return RunQueues(Ledger(clients.dynamodb(), WorkerSettings().runs_table))


def run_queues() -> Mapping[str, int]:
    """The function that `prismline-runtime --more-queues` calls."""
    return _run_queues()()
