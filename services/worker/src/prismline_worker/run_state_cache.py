"""Remembers for a few seconds that a run is not stopped, so that the worker need not read the run for every chunk."""

from __future__ import annotations

import time
from collections import OrderedDict

from aws_lambda_powertools import Logger

from prismline_contracts.base import now
from prismline_contracts.items import RunItem
from prismline_ledger import Ledger, seconds_since

#: For this many seconds after it was read, a run counts as not stopped. A stop takes effect up to this much later.
SEEN_SECONDS = 5.0
#: Most runs that are remembered.
MOST_RUNS = 256
#: Least time, in seconds, between two records of what a run waits for.
WAITING_SECONDS = 30.0
#: Least time, in seconds, between two log lines of a process that say so.
LOGGED_SECONDS = 60.0


class RunStateCache:
    """The runs that this process has read recently, and that were not stopped then.

    The end of a chunk reads its run and passes it to `seen`. The next chunk of the run then needs no read. Stopped runs
    are not remembered: a recovery may resume a run, and a chunk that is then still skipped would lose its message.
    """

    def __init__(self, ledger: Ledger, logger: Logger, *, seconds: float = SEEN_SECONDS, most: int = MOST_RUNS) -> None:
        self._ledger = ledger
        self._logger = logger
        self._seconds = seconds
        self._most = most
        #: When each run was last read (`time.monotonic` seconds), and its item.
        self._seen: OrderedDict[str, tuple[float, RunItem]] = OrderedDict()
        #: When it was last logged that a run waits (`time.monotonic` seconds), the latest at the end.
        self._logged: OrderedDict[str, float] = OrderedDict()

    def stopped(self, run_id: str) -> bool:
        """Whether the run was stopped. Raises PermanentError if there is no such run."""
        return self.run(run_id).cancelled_at is not None

    def run(self, run_id: str, *, fresh: bool = False) -> RunItem:
        """The run's item as it was a few seconds ago, or as it is now. Raises PermanentError if there is none.

        fresh: as it is now.
        """
        seen = None if fresh else self._seen.get(run_id)
        if seen is not None and time.monotonic() - seen[0] < self._seconds:
            return seen[1]
        began = time.monotonic()
        run = self._ledger.run(run_id)
        self.seen(run, began)
        return run

    def waits(self, run_id: str, reason: str) -> None:
        """Record in the run's item what its work waits for, for people to see. At most every `WAITING_SECONDS`.

        Each message of the run that waits calls this, but only one of them in `LOGGED_SECONDS` is logged.
        """
        if time.monotonic() - self._logged.get(run_id, -LOGGED_SECONDS) >= LOGGED_SECONDS:
            self._logger.info("run_waits", extra={"reason": reason})
            self._logged.pop(run_id, None)
            self._logged[run_id] = time.monotonic()
            while len(self._logged) > self._most:
                self._logged.popitem(last=False)
        run = self.run(run_id)
        if run.waiting_at is not None and seconds_since(run.waiting_at, now()) < WAITING_SECONDS:
            return
        recorded = self._ledger.record_waiting(run, reason)
        if recorded is not None:
            self.seen(recorded)

    def seen(self, run: RunItem, moment: float | None = None) -> None:
        """Remember a run that was read at `moment` (`time.monotonic` seconds; default: now)."""
        self._seen.pop(run.run_id, None)
        if run.cancelled_at is None:
            self._seen[run.run_id] = (time.monotonic() if moment is None else moment, run)
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
