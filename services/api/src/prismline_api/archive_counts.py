"""How many dead letters each run has in the archive, for the list of runs.

The archive is ordered by day, and only the content of a record names its run. So each record is read once, the newest
first. Each look reads a few records and keeps their runs in memory, for all requests.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from prismline_api.archive import Archive, day_of
from prismline_runtime import UnavailableError

#: Most records that are counted, the newest ones.
MOST_RECORDS = 5000
#: Shortest time between two looks, in seconds: usually, and while records are left to read.
LOOK_SECONDS, NEXT_READ_SECONDS = 5.0, 1.0
#: About how long one look may read records, in seconds.
READ_SECONDS = 0.5
#: Records that are read at the same time.
READERS = 8


@dataclass(frozen=True)
class Counted:
    """The numbers of dead letters that the latest look found."""

    by_run: Mapping[str, int] = field(default_factory=dict)
    #: The dead letters from this day on, in UTC, were all counted. Empty: all were counted. None: none yet.
    first_day: str | None = None

    def of(self, run_id: str, created_at: str) -> int | None:
        """The number of a run that was created at `created_at`. None: not all of its dead letters were counted."""
        if self.first_day is None or created_at[:10] < self.first_day:
            return None
        return self.by_run.get(run_id, 0)


class ArchiveCounts:
    """Counts the dead letters of each run. Raises UnavailableError if S3 does not answer."""

    def __init__(
        self,
        archive: Archive,
        *,
        most_records: int = MOST_RECORDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._archive = archive
        self._most_records = most_records
        self._clock = clock
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._run_of: dict[str, str | None] = {}
        self._counted = Counted()

    def now(self) -> Counted:
        """The numbers, at most `LOOK_SECONDS` old. Requests during a look get the numbers of the look before."""
        if self._lock.acquire(blocking=False):
            try:
                if self._clock() >= self._next_look:
                    self._counted, unread = self._look()
                    self._next_look = self._clock() + (NEXT_READ_SECONDS if unread else LOOK_SECONDS)
            finally:
                self._lock.release()
        return self._counted

    def _look(self) -> tuple[Counted, bool]:
        """The numbers, and whether the next look has records left to read."""
        keys, more = self._keys()
        until = self._clock() + READ_SECONDS
        unread = (key for key in keys if key not in self._run_of)
        with ThreadPoolExecutor(READERS) as pool:
            while self._clock() < until and (some := list(islice(unread, READERS))):
                for found in pool.map(self._run_in, some):
                    self._run_of.update(found)
            tried_all = next(unread, None) is None
        self._run_of = {key: self._run_of[key] for key in keys if key in self._run_of}
        unread_days = [day_of(key) for key in keys if key not in self._run_of]
        left = unread_days + ([day_of(keys[-1])] if more else [])
        by_run = Counter(run_id for run_id in self._run_of.values() if run_id is not None)
        return Counted(by_run, _after(max(left)) if left else ""), not tried_all

    def _keys(self) -> tuple[list[str], bool]:
        """The keys of the newest records, the newest day first, and whether there are more."""
        keys: list[str] = []
        for folder in self._archive.folders():
            keys += [key for key, _ in self._archive.entries(folder)]
            if len(keys) > self._most_records:
                return keys[: self._most_records], True
        return keys, False

    def _run_in(self, key: str) -> dict[str, str | None]:
        """The run of a record, by its key. None: it names none, or a recovery has removed it meanwhile. Empty: S3 does
        not give the record now; a later look tries again."""
        try:
            record = self._archive.read(key)
        except UnavailableError:
            return {}
        return {key: None if record is None else record.run_id}


def _after(day: str) -> str:
    """A text that sorts after all times of `day` and before those of the next day."""
    return f"{day}~"
