"""Decides when a chunk is given up: its attempts are used up, and enough time has passed. Pure functions.

The dead-letter consumer and the sweeper both use these functions, with a chunk item that they have just read. The
receive count of a message plays no role, because it also counts outages and backlogs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prismline_contracts.commands import Queue
from prismline_contracts.delivery import LIMITS
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import ChunkItem, ChunkStatus, NewerStatus, RunItem
from prismline_contracts.tasks import TaskItem

#: By how much a lease outlasts the timeout of the function that holds it, in seconds: clocks may differ.
LEASE_MARGIN_SECONDS = 300.0

#: How long, in seconds, work counts as waiting after a worker has recorded it. A message that waits for a slot is
#: delivered again within a minute.
WAIT_SECONDS = 180.0


@dataclass(frozen=True)
class Patience:
    """The limits that a chunk must reach before it is given up."""

    #: Attempts. Interrupted attempts do not count.
    max_attempts: int = 5
    #: Seconds since the first attempt began. Long enough to roll back a bad deployment.
    seconds: float = 7200.0
    #: Lease of an attempt, in seconds. After it, the worker is presumed dead, because its function has been stopped by
    #: then. The sweeper then sends the chunk again, long before the visibility timeout of the first message ends.
    lease_seconds: float = LIMITS[Queue.CHUNKS].function_seconds + LEASE_MARGIN_SECONDS


def attempts_used(chunk: ChunkItem | TaskItem) -> int:
    """The number of attempts that count against the chunk: all but the interrupted ones."""
    return chunk.attempts - chunk.interruptions


def failures(item: ChunkItem | TaskItem) -> int:
    """How many attempts have ended with an error of the work, since the first one or since a recovery reopened it.

    An attempt counts only if its worker recorded its error and no dependency was to blame. Neither a redelivery, nor a
    second copy of the message, nor a worker that died adds one.
    """
    began = item.first_started_at
    return sum(began is not None and not error.interrupted and error.at >= began for error in item.errors)


def seconds_since(moment: str, now: datetime) -> float:
    """Seconds from the timestamp `moment` to `now`."""
    return (now - datetime.fromisoformat(moment)).total_seconds()


def waiting_for(run: RunItem, now: datetime) -> str | None:
    """What the run's work waits for. None if the run has ended, or if no worker has lately recorded a wait."""
    due = due_finalization(run) is not None
    over = run.cancelled_at is not None or (not due and (run.drained_at is not None or run.ended_at is not None))
    if over or run.waiting_at is None or seconds_since(run.waiting_at, now) > WAIT_SECONDS:
        return None
    if due and run.waiting_at < (run.drained_at or ""):
        return None
    return run.waiting_for


def leased(chunk: ChunkItem | TaskItem, now: datetime, patience: Patience) -> bool:
    """Whether the lease of the chunk's current attempt still lasts, so that a worker may be processing the chunk."""
    return (
        chunk.state is ChunkStatus.IN_PROGRESS
        and seconds_since(chunk.started_at or chunk.created_at, now) <= patience.lease_seconds
    )


def exhausted(chunk: ChunkItem | TaskItem, now: datetime, patience: Patience) -> str | None:
    """The reason why the chunk is given up, as a sentence. None if it is not given up.

    Callers do not give up a chunk that is `leased`.
    """
    if chunk.state.terminal or chunk.state is NewerStatus.NEWER:
        return None
    used, began = attempts_used(chunk), chunk.first_started_at
    if used < patience.max_attempts or began is None or seconds_since(began, now) < patience.seconds:
        return None
    last = chunk.last_error or "Its workers died without saying why."
    last = last if last.endswith((".", "!", "?", "…")) else f"{last}."
    return f"{last} Given up after {used} attempts."
