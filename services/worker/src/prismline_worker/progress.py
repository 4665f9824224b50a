"""Reports how far a long attempt has come, so that a run with few chunks shows its progress.

A report costs a write to the ledger. A short attempt makes no report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Seconds from the beginning of an attempt to its first report, and from a report to the next one.
REPORT_SECONDS = 5.0


class Progress:
    """Counts the items of a chunk that are done, and reports the count at most every `REPORT_SECONDS`.

    report: takes the count. It returns whether there may be another report.
    """

    def __init__(self, report: Callable[[int], bool]) -> None:
        self._report = report
        self._n_done = 0
        self._due = time.monotonic() + REPORT_SECONDS

    def add(self, n_items: int = 1) -> None:
        """Count `n_items` more items as done, and report the count if a report is due."""
        self._n_done += n_items
        if time.monotonic() >= self._due:
            goes_on = self._report(self._n_done)
            self._due = time.monotonic() + REPORT_SECONDS if goes_on else math.inf
