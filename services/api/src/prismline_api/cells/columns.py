"""Columns of cells: their state, attempts and times as arrays, and their encoding in an answer. Pure.

A cell is a chunk or a task. Its number is the index of the chunk's first item, or of the task.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.base import MOST_INDEX
from prismline_contracts.items import CHUNK_SK_PREFIX

#: The states of cells, by code. A deferred cell is PENDING and waits for a resource, or for a retry after an error.
STATES = ("pending", "in_progress", "completed", "failed", "deferred")
PENDING, IN_PROGRESS, COMPLETED, FAILED, DEFERRED = range(len(STATES))
#: The value of an unknown time.
UNKNOWN = -1

#: The types of a cell's columns.
KINDS = (np.int32, np.uint8, np.uint8, np.int32, np.int32, np.int32)

_CODES = {"PENDING": PENDING, "IN_PROGRESS": IN_PROGRESS, "COMPLETED": COMPLETED, "FAILED": FAILED}
_CHUNK_ID = f"{CHUNK_SK_PREFIX}chunk-"
_MOST_MS = 2**31 - 1


@dataclass(frozen=True)
class Columns:
    """Some cells, in the order of their numbers unless stated otherwise."""

    cell: NDArray[np.int32]
    #: Codes of `STATES`.
    state: NDArray[np.uint8]
    #: Attempts that began, at most 255.
    attempts: NDArray[np.uint8]
    #: When the latest attempt began, in ms since the run was opened, and how long it took in ms; or `UNKNOWN`.
    started: NDArray[np.int32]
    duration: NDArray[np.int32]
    #: When the cell completed or failed, in ms since the run was opened; or `UNKNOWN`. The ledger records it some time
    #: after the attempt: it is not the sum of `started` and `duration`.
    ended: NDArray[np.int32]

    @classmethod
    def of(cls, arrays: Iterable[NDArray[Any]]) -> Columns:
        """The columns, from arrays in the order of the fields."""
        return cls(*(array.astype(kind, copy=False) for array, kind in zip(arrays, KINDS, strict=True)))

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: NDArray[Any]) -> Columns:
        """The cells in these rows, in their order."""
        return Columns.of(column[rows] for column in self.arrays)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All columns."""
        return self.cell, self.state, self.attempts, self.started, self.duration, self.ended

    @property
    def by_name(self) -> dict[str, NDArray[Any]]:
        """All columns by the names that clients know."""
        return {field.name: column for field, column in zip(fields(self), self.arrays, strict=True)}

    def sorted(self) -> Columns:
        """The cells in the order of their numbers."""
        return self.take(np.argsort(self.cell, kind="stable"))

    def count(self, *states: int) -> int:
        """How many cells are in one of these states."""
        return int(np.isin(self.state, states).sum())

    @property
    def processing_ms(self) -> int:
        """Total duration of the latest attempts, in ms."""
        return int(self.duration[self.duration > 0].sum(dtype=np.int64))

    def changed(self, before: Columns) -> Columns:
        """The cells that are new, or differ from those in `before`."""
        if not np.array_equal(self.cell, before.cell):
            return self
        pairs = zip(self.arrays[1:], before.arrays[1:], strict=True)
        return self.take(np.flatnonzero(np.logical_or.reduce([new != old for new, old in pairs])))


EMPTY = Columns.of(np.empty(0) for _ in KINDS)


def columns_of(items: Iterable[Mapping[str, Any]], opened_at: datetime, now: str) -> Columns:
    """The columns of chunks or tasks. items: with the ledger's `CELL_ATTRIBUTES`. now: decides which cells wait."""
    rows = []
    for item in items:
        key = item["SK"]
        number = int(key[len(_CHUNK_ID) :]) if key.startswith(_CHUNK_ID) else int(item["index"])
        state = _CODES.get(item["status"], PENDING)
        started, ended = item.get("started_at"), item.get("completed_at")
        if (state == PENDING and item.get("attempts", 0)) or (
            state in (PENDING, IN_PROGRESS) and _waits(item, started or "", now)
        ):
            state = DEFERRED
        rows.append(
            (
                min(MOST_INDEX, number),  # an older release accepted larger ones
                state,
                min(255, item.get("attempts", 0)),
                UNKNOWN if started is None else _ms(datetime.fromisoformat(started), opened_at),
                min(_MOST_MS, item.get("duration_ms", UNKNOWN)),
                UNKNOWN
                if ended is None or state not in (COMPLETED, FAILED)
                else _ms(datetime.fromisoformat(ended), opened_at),
            )
        )
    return Columns.of(np.array(column) for column in zip(*rows, strict=True)) if rows else EMPTY


def result_bytes(items: Iterable[Mapping[str, Any]]) -> int:
    """Total bytes of the results of tasks."""
    return sum((item.get("result") or {}).get("length", 0) for item in items)


def joined(parts: Iterable[Columns]) -> Columns:
    """The cells of all parts, one part after the other."""
    every = list(parts) or [EMPTY]
    arrays = zip(*(part.arrays for part in every), strict=True)
    return Columns.of(np.concatenate(columns) for columns in arrays)


def packed(column: NDArray[Any]) -> str:
    """A column as text: base64 of its values. Four-byte values are stored as differences, all first bytes first.

    Numbers and times grow from cell to cell, so most bytes of their differences are 0 and compress to almost nothing.
    """
    if column.itemsize > 1:
        column = np.diff(column, prepend=column.dtype.type(0)).astype("<i4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(np.ascontiguousarray(column).tobytes()).decode()


def _waits(item: Mapping[str, Any], started: str, now: str) -> bool:
    return str(item.get("not_before", "")) > now or str(item.get("deferred_at", "")) > started


def _ms(moment: datetime, since: datetime) -> int:
    return max(0, min(_MOST_MS, round((moment - since).total_seconds() * 1000)))
