"""The allowed transitions of a chunk, and how they change the run's counters. Pure: no client.

A terminal transition and its counter are written in one transaction. So `chunks_completed` and `chunks_failed` always
equal the numbers of COMPLETED and FAILED chunk items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prismline_contracts.items import (
    MAX_CHUNK_ERROR_BYTES,
    MAX_KEPT_ERROR_BYTES,
    MAX_KEPT_ERRORS,
    AttemptError,
    ChunkItem,
    ChunkStatus,
    NewerStatus,
    RunItem,
)
from prismline_contracts.tasks import TaskItem

#: The statuses from which a chunk may enter each status. FAILED -> COMPLETED is a late success of a worker that was
#: presumed dead. IN_PROGRESS -> PENDING means that an attempt ended without a result, or that its lease ran out.
#: COMPLETED is final. FAILED -> PENDING is not in this table: only `reopen_chunk` does that. A status that only a newer
#: release knows is in no set, so this release changes nothing about such a chunk.
ALLOWED_FROM: Mapping[ChunkStatus, frozenset[ChunkStatus]] = {
    ChunkStatus.PENDING: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
    ChunkStatus.IN_PROGRESS: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
    ChunkStatus.COMPLETED: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS, ChunkStatus.FAILED}),
    ChunkStatus.FAILED: frozenset({ChunkStatus.PENDING, ChunkStatus.IN_PROGRESS}),
}

#: The attribute of the run that counts the chunks of a status.
_COUNTER = {
    ChunkStatus.COMPLETED: RunItem.attribute("chunks_completed"),
    ChunkStatus.FAILED: RunItem.attribute("chunks_failed"),
}


def counter_changes(before: ChunkStatus | NewerStatus, after: ChunkStatus) -> dict[str, int]:
    """The changes of the run's counters that belong to a transition of a chunk, by attribute."""
    changes: dict[str, int] = {}
    if before in _COUNTER:
        changes[_COUNTER[before]] = -1
    if after in _COUNTER:
        changes[_COUNTER[after]] = changes.get(_COUNTER[after], 0) + 1
    return {counter: change for counter, change in changes.items() if change}


#: The shard's attribute that counts what an attribute of the run counts.
_SHARD_COUNTER = {
    _COUNTER[ChunkStatus.COMPLETED]: "completed",
    _COUNTER[ChunkStatus.FAILED]: "failed",
}


def shard_counter_changes(changes: Mapping[str, int]) -> dict[str, int]:
    """`changes` of a run's counters as changes of a shard's counters."""
    return {_SHARD_COUNTER.get(counter, counter): change for counter, change in changes.items()}


def charges(item: ChunkItem | TaskItem, duration_ms: int | None, n_bytes: int | None) -> dict[str, int]:
    """What the end of a chunk or task adds to the costs of its run.

    An item may end more than once, because a recovery reopens it. Each attempt is added once.

    duration_ms: the duration of the attempt that ended the item. None: no attempt ended it (it was given up).
    """
    return {
        "worked_ms": item.uncharged_ms + (duration_ms or 0),
        "n_attempts": max(0, item.attempts - item.charged_attempts),
        "n_bytes": n_bytes or 0,
    }


def with_error(
    item: ChunkItem | TaskItem,
    error: str,
    at: str,
    *,
    duration_ms: int | None,
    interrupted: bool = False,
    attempted: ChunkItem | TaskItem | None = None,
) -> list[dict[str, Any]]:
    """The errors of `item` and that of an attempt. The latest MAX_KEPT_ERRORS are kept.

    attempted: the item as it was when this attempt began. None: it is `item`, and the attempt is the latest one.
    """
    began = attempted or item
    latest = AttemptError(
        attempt=began.attempts,
        at=at,
        duration_ms=duration_ms,
        error=truncate(error, MAX_KEPT_ERROR_BYTES),
        interrupted=interrupted,
        worker=began.worker,
    )
    kept = [*item.errors, latest][-MAX_KEPT_ERRORS:]
    return [each.model_dump(exclude_defaults=True) for each in kept]


#: The attributes that the ending of a chunk or a task depends on: its status, and the sources of the costs.
ENDED_ON = ("status", "attempts", "charged_attempts", "uncharged_ms")


@dataclass(frozen=True)
class Costs:
    """The costs of a run's chunks or tasks that have ended."""

    #: Total duration of their attempts.
    worked_ms: int
    attempts: int
    #: Total length of their outputs.
    n_bytes: int


@dataclass(frozen=True)
class Counts:
    """How many chunks or tasks a run has, and how many of them have ended."""

    #: None until it is final.
    total: int | None
    completed: int
    failed: int
    #: None: nothing has ended yet, or only under an older release.
    costs: Costs | None = field(default=None, compare=False)

    @property
    def ended(self) -> int:
        """Completed or failed."""
        return self.completed + self.failed


@dataclass(frozen=True)
class Outcome:
    """The result of a processed chunk. Its complete output is stored under `output_key`."""

    output_key: str
    #: Length of the output in bytes. None if it is not known.
    n_bytes: int | None = None
    #: Timed-out items, which wait for the slow lane. The workload has already arranged for another try.
    n_timed_out: int = 0
    #: Items without any data. None: the splitter has counted them, or the workload does not count them.
    n_blank: int | None = None
    #: A short summary of the output for the chunk's item.
    summary: str | None = None


@dataclass(frozen=True)
class Started:
    """An attempt has begun. The caller processes the chunk."""

    chunk: ChunkItem


@dataclass(frozen=True)
class Skipped:
    """No attempt has begun, because the chunk has ended already."""

    reason: str
    chunk: ChunkItem


@dataclass(frozen=True)
class Finished:
    """The result of a terminal transition."""

    #: False if nothing was written: the chunk had ended before, or has changed since it was read.
    changed: bool
    #: The current chunk.
    chunk: ChunkItem
    #: The current run, read after the transition.
    run: RunItem
    #: Whether a FAILED chunk was completed late.
    late: bool = False


def truncate(text: str, most_bytes: int = MAX_CHUNK_ERROR_BYTES) -> str:
    """Cut `text` to `most_bytes` of UTF-8 (default: the limit of an error), never inside a character."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode(errors="ignore") + "…"
