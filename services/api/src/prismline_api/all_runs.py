"""The runs of all tenants, for keys with the scope `all`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from prismline_contracts.items import WorkflowStateItem
from prismline_runtime import Table

#: Shortest time between two scans: in seconds, and as a multiple of the duration of a scan. The longer one counts.
SCAN_SECONDS, SCAN_SHARE = 1.0, 10


class AllRuns:
    """The status of every run, by a scan of the workflow-state table, which has one small item for each run.

    All requests of a process share the latest scan, so many open pages cost no more than one.
    """

    def __init__(self, states: Table, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._states = states
        self._clock = clock
        self._lock = threading.Lock()
        self._next_scan = 0.0
        self._found: list[WorkflowStateItem] = []

    def newest(self) -> list[WorkflowStateItem]:
        """All runs in the latest scan, the newest first. Raises UnavailableError."""
        with self._lock:
            began = self._clock()
            if began >= self._next_scan:
                states = [WorkflowStateItem.model_validate(item) for item in self._states.scan()]
                self._found = sorted(states, key=lambda state: (state.created_at or "", state.run_id), reverse=True)
                ended = self._clock()
                self._next_scan = ended + max(SCAN_SECONDS, SCAN_SHARE * (ended - began))
            return self._found
