"""Which changes of a chunk are allowed and what they do to the run's counters. Pure: no client in here.

A terminal transition and the counter it moves are written in one transaction, so that at every moment
`jobs_completed` and `jobs_failed` are the numbers of chunk items in those states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts import MAX_CHUNK_ERROR_BYTES, ChunkItem, ChunkStatus, RunItem

#: States from which a chunk may enter each state. FAILED -> COMPLETED is a late success, of a worker that had been
#: presumed dead; FAILED -> PENDING is a recovery. COMPLETED is never left. IN_PROGRESS -> PENDING: an attempt ended
#: without a result, or its lease ran out.
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

    chunk: ChunkItem


@dataclass(frozen=True)
class Skipped:
    """There is nothing to do: the chunk has ended already."""

    reason: str
    chunk: ChunkItem


@dataclass(frozen=True)
class Finished:
    """What a terminal transition brought about."""

    #: False: the chunk had ended before, or was not as it was read, and nothing was changed.
    changed: bool
    #: The chunk as it is.
    chunk: ChunkItem
    #: The run as it is, read after the transition.
    run: RunItem
    #: A chunk that had been given up was completed after all.
    late: bool = False


def truncate(text: str, most_bytes: int = MAX_CHUNK_ERROR_BYTES) -> str:
    """`text` cut to what a chunk item holds (default: of an error), never in the middle of a character."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode(errors="ignore") + "…"
