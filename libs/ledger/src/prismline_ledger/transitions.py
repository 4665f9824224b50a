"""Which changes of a chunk are allowed and what they do to the run's counters. Pure: no client in here.

A terminal transition and the counter it moves are written in one transaction, so that at every moment
`jobs_completed` and `jobs_failed` are the numbers of chunk items in those states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts import MAX_CHUNK_ERROR_BYTES, ChunkItem, ChunkStatus, RunItem

#: States from which a chunk may enter each state. FAILED -> COMPLETED is a late success: a duplicate delivery or a
#: recovery that worked after the chunk had been given up. COMPLETED is never left. IN_PROGRESS -> PENDING is a lease
#: that ran out.
ALLOWED_FROM: Mapping[ChunkStatus, frozenset[ChunkStatus]] = {
    ChunkStatus.PENDING: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
    ChunkStatus.IN_PROGRESS: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
    ChunkStatus.COMPLETED: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS, ChunkStatus.FAILED}),
    ChunkStatus.FAILED: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
}

_COUNTER = {ChunkStatus.COMPLETED: "jobs_completed", ChunkStatus.FAILED: "jobs_failed"}


def counter_changes(before: ChunkStatus, after: ChunkStatus) -> dict[str, int]:
    """What a chunk's transition adds to the run's counters."""
    changes: dict[str, int] = {}
    if before in _COUNTER:
        changes[_COUNTER[before]] = -1
    if after in _COUNTER:
        changes[_COUNTER[after]] = changes.get(_COUNTER[after], 0) + 1
    return {counter: change for counter, change in changes.items() if change}


@dataclass(frozen=True)
class Started:
    """The chunk is the caller's to process."""

    run: RunItem
    chunk: ChunkItem


@dataclass(frozen=True)
class Skipped:
    """There is nothing to do: the chunk is terminal already, or its run was cancelled."""

    reason: str
    run: RunItem
    chunk: ChunkItem | None = None


@dataclass(frozen=True)
class Finished:
    """What a terminal transition brought about."""

    #: False: the chunk had ended before, and nothing was changed.
    changed: bool
    #: The run, if this chunk's end drained it; also on a repeat, because the first may have died before saying so.
    drained: RunItem | None


def truncate(text: str, most_bytes: int = MAX_CHUNK_ERROR_BYTES) -> str:
    """`text` cut to what a chunk item holds (default: of an error), never in the middle of a character."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode(errors="ignore") + "…"
