"""The cells of a run, read from the ledger part by part and shared by all requests about the run.

Nothing runs in the background: a request that finds the picture older than a second reads for a short time, and other
requests wait for it. So the ledger is read at a limited rate, however many pages are open, and not at all if none is.
"""

from __future__ import annotations

import gzip
import json
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from prismline_api.cells.columns import (
    COMPLETED,
    DEFERRED,
    EMPTY,
    FAILED,
    IN_PROGRESS,
    PENDING,
    STATES,
    Columns,
    columns_of,
    joined,
    packed,
    result_bytes,
)
from prismline_contracts.base import chunk_id, timestamp
from prismline_contracts.items import CHUNK_SK_PREFIX, RunItem
from prismline_ledger import Ledger
from prismline_runtime import Page, call_concurrently

#: Shortest time between two looks at the ledger, in seconds.
LOOK_SECONDS = 1.0
#: How long one look may read, in seconds: while the first picture is incomplete, and later.
FIRST_SECONDS, LATER_SECONDS = 1.5, 0.25
#: Pause between two looks while the first picture is incomplete, in seconds.
FIRST_PAUSE_SECONDS = 0.1
#: How much later a stretch is read again if all its cells are PENDING, in seconds.
QUIET_SECONDS = 5.0
#: Cells that are read with one request.
STRETCH_CELLS = 1000
#: Stretches that are read at the same time, and stretches into which a run of chunks is divided at first.
READERS, FIRST_STRETCHES = 4, 8
#: In a run with more items, chunk ids differ in length, so they do not sort by number.
MOST_ORDERED_ITEMS = 10_000_000
#: Changed cells that are remembered for clients that follow the run.
MOST_CHANGES = 20_000
#: Runs that are remembered.
MOST_RUNS = 16


@dataclass
class _Stretch:
    """A part of the cells that is read with one request."""

    shard: int
    #: Sort keys of the limits: `after` is exclusive, `until` inclusive. None: from the beginning, to the end.
    after: str | None = None
    until: str | None = None
    cells: Columns = EMPTY
    #: Total bytes of the results of its tasks.
    bytes: int = 0
    #: When it was read, on the monotonic clock. 0: never.
    read_at: float = 0.0

    @property
    def final(self) -> bool:
        """Whether all its cells have ended, and no cell can be added."""
        return self.until is not None and self.cells.count(COMPLETED, FAILED) == len(self.cells)

    @property
    def urgency(self) -> float:
        """Sort key of the next reads: never-read stretches first, then the oldest. All-PENDING ones wait longer."""
        quiet = self.read_at > 0 and self.cells.count(PENDING) == len(self.cells)
        return self.read_at + (QUIET_SECONDS if quiet else 0.0)


def _first_stretches(run: RunItem) -> list[_Stretch]:
    """The stretches of a run that was not read yet. They can be read in parallel.

    A run of chunks is divided only when no chunk can be added: before that, it grows at its end.
    """
    if run.unit == "task":
        return [_Stretch(shard) for shard in range(run.shard_count)]
    items, chunks = run.n_items or 0, run.chunks_total or 0
    if run.latched_at is None or chunks <= STRETCH_CELLS or items > MOST_ORDERED_ITEMS:
        return [_Stretch(0)]
    borders = [f"{CHUNK_SK_PREFIX}{chunk_id(items * part // FIRST_STRETCHES)}" for part in range(1, FIRST_STRETCHES)]
    return [_Stretch(0, after, until) for after, until in zip([None, *borders], [*borders, None], strict=True)]


@dataclass(frozen=True)
class Picture:
    """The cells of a run as one answer."""

    version: str
    body: bytes
    compressed: bytes


@dataclass
class RunCells:
    """The cells of one run, shared by all requests."""

    ledger: Ledger
    run_id: str
    clock: Callable[[], float] = time.monotonic
    _epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stretches: list[_Stretch] = field(default_factory=list)
    _run: RunItem | None = None
    _total: int | None = None
    _number: int = 0
    _next_look: float = 0.0
    _changes: deque[tuple[int, Columns]] = field(default_factory=deque)
    _picture: Picture | None = None

    def picture(self) -> Picture:
        """All cells. Raises UnavailableError."""
        with self._lock:
            self._look()
            if self._picture is None:
                self._picture = self._draw()
            return self._picture

    def since_each(self, versions: Iterable[str]) -> tuple[str, dict[str, Columns | None]]:
        """The present version, and the cells that changed since each version. None: unknown; get the picture.

        Raises UnavailableError.
        """
        with self._lock:
            self._look()
            return self._version, {version: self._changed_since(version) for version in versions}

    def _changed_since(self, version: str) -> Columns | None:
        epoch, _, text = version.partition("-")
        if epoch != self._epoch or not text.isdecimal():
            return None
        number = int(text)
        if number == self._number:
            return EMPTY
        if number > self._number or not self._changes or self._changes[0][0] > number + 1:
            return None
        return joined(cells for changed, cells in self._changes if changed > number)

    @property
    def _version(self) -> str:
        return f"{self._epoch}-{self._number}"

    # ---- reading

    def _look(self) -> None:
        """Read the stretches that may have changed, for a short time. Does nothing right after another look."""
        began = self.clock()
        if began < self._next_look:
            return
        run = self.ledger.get_run(self.run_id)
        if run is not None:
            opened_at = datetime.fromisoformat(run.created_at)
            if not self._stretches:
                self._stretches = _first_stretches(run)
            counts = self.ledger.counts(run)
            if self._contradicts(counts.completed, counts.failed, drained=run.drained_at is not None):
                for stretch in self._stretches:
                    stretch.read_at = 0.0
            changed, was_complete = [], self._complete
            until = began + (LATER_SECONDS if was_complete else FIRST_SECONDS)
            waiting = sorted(
                (each for each in self._stretches if not (each.final and each.read_at)), key=lambda each: each.urgency
            )
            all_ended = counts.total is not None and counts.completed + counts.failed == counts.total == self._n_ended
            while waiting and not (all_ended and waiting[0].read_at):
                # Stretches that were never read come before all others.
                some = [each for each in waiting[:READERS] if not each.read_at] or waiting[:READERS]
                waiting = waiting[len(some) :]
                pages = call_concurrently(partial(self._page, run), some)
                for stretch, page in zip(some, pages, strict=True):
                    found, rest = self._take(stretch, page, opened_at)
                    changed.append(found)
                    if rest is not None:
                        waiting.insert(0, rest)
                if self.clock() >= until:
                    break
            noted = joined(changed)
            if len(noted) or (self._run, self._total, was_complete) != (run, counts.total, self._complete):
                self._note(noted)
            self._run, self._total = run, counts.total
        reading = run is not None and not self._complete
        self._next_look = self.clock() + (FIRST_PAUSE_SECONDS if reading else LOOK_SECONDS)

    def _page(self, run: RunItem, stretch: _Stretch) -> Page:
        return self.ledger.page_of_cells(
            run, stretch.shard, after=stretch.after, until=stretch.until, limit=STRETCH_CELLS
        )

    def _take(self, stretch: _Stretch, page: Page, opened_at: datetime) -> tuple[Columns, _Stretch | None]:
        """Store the cells of a stretch. Return the changed ones, and the rest of the stretch if the page ends early."""
        cells = columns_of(page.items, opened_at, timestamp())
        rest = None
        if page.last_key is not None and page.last_key["SK"] != stretch.until:
            last = page.last_key["SK"]
            rest = _Stretch(stretch.shard, last, stretch.until)
            self._stretches.insert(self._stretches.index(stretch) + 1, rest)
            stretch.until = last
        changed = cells.changed(stretch.cells)
        stretch.cells, stretch.bytes, stretch.read_at = cells, result_bytes(page.items), self.clock()
        return changed, rest

    def _contradicts(self, completed: int, failed: int, *, drained: bool) -> bool:
        """Whether ended cells were reopened: then more cells were read as ended than the run counts."""
        if not self._complete:
            return False
        seen = self._count(COMPLETED), self._count(FAILED)
        return (
            seen[0] > completed or seen[1] > failed or (drained and self._n_open == 0 and seen != (completed, failed))
        )

    def _count(self, *states: int) -> int:
        return sum(stretch.cells.count(*states) for stretch in self._stretches)

    @property
    def _n_ended(self) -> int:
        return self._count(COMPLETED, FAILED)

    @property
    def _n_open(self) -> int:
        return self._count(PENDING, IN_PROGRESS, DEFERRED)

    @property
    def _complete(self) -> bool:
        """Whether every cell was read at least once."""
        return bool(self._stretches) and all(stretch.read_at for stretch in self._stretches)

    def _note(self, changed: Columns) -> None:
        self._number += 1
        self._picture = None
        self._changes.append((self._number, changed))
        left = sum(len(cells) for _, cells in self._changes)
        while self._changes and left > MOST_CHANGES:
            left -= len(self._changes.popleft()[1])

    # ---- answering

    def _draw(self) -> Picture:
        cells = joined(stretch.cells for stretch in self._stretches)
        if self._run is not None and self._run.unit == "task":
            cells = cells.sorted()
        run = self._run
        document = {
            "run_id": self.run_id,
            "unit": run.unit if run else "chunk",
            "version": self._version,
            "opened_at": run.created_at if run else None,
            "total": self._total,
            "complete": self._complete,
            "count": len(cells),
            "states": list(STATES),
            "processing_seconds": round(cells.processing_ms / 1000, 3),
            "bytes": sum(stretch.bytes for stretch in self._stretches) if run and run.unit == "task" else None,
            "columns": {name: packed(column) for name, column in cells.by_name.items()},
        }
        body = json.dumps(document, separators=(",", ":")).encode()
        return Picture(self._version, body, gzip.compress(body, 6, mtime=0))


class Watched:
    """The cells of the runs that clients viewed most recently."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, RunCells] = OrderedDict()

    def run(self, run_id: str) -> RunCells:
        """The cells of a run."""
        with self._lock:
            found = self._runs.pop(run_id, None) or RunCells(self._ledger, run_id)
            self._runs[run_id] = found
            while len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
            return found
