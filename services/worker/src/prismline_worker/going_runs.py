"""Whether a run still goes on, without reading it before each of its chunks."""

from __future__ import annotations

import time
from collections import OrderedDict

from prismline_contracts import RunItem
from prismline_ledger import Ledger

#: For how long, in seconds, a run that was seen going on is believed to: the longest delay of a cancellation.
SEEN_SECONDS = 5.0
#: Runs that are remembered at once.
MOST_RUNS = 256


class GoingRuns:
    """The runs that this process saw going on a moment ago.

    The end of each chunk reads its run, and hands it on with `seen`, so that the next chunk of the run begins without
    a read of its own. Only that a run goes on is remembered. That one was stopped is read anew each time, because a
    recovery takes it back, and the message of a chunk that is skipped is gone.
    """

    def __init__(self, ledger: Ledger, *, seconds: float = SEEN_SECONDS, most: int = MOST_RUNS) -> None:
        self._ledger = ledger
        self._seconds = seconds
        self._most = most
        #: When a run was last seen going on (`time.monotonic` seconds), the latest one last.
        self._seen: OrderedDict[str, float] = OrderedDict()

    def stopped(self, run_id: str) -> bool:
        """Whether what is left of the run is skipped. Raises PermanentError if there is no such run."""
        seen = self._seen.get(run_id)
        if seen is not None and time.monotonic() - seen < self._seconds:
            return False
        began = time.monotonic()
        run = self._ledger.run(run_id)
        self.seen(run, began)
        return run.cancelled_at is not None

    def seen(self, run: RunItem, moment: float | None = None) -> None:
        """Remember the run as it was read at `moment` (`time.monotonic` seconds; default: now)."""
        self._seen.pop(run.run_id, None)
        if run.cancelled_at is None:
            self._seen[run.run_id] = time.monotonic() if moment is None else moment
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
