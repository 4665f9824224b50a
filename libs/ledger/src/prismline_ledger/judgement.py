"""When a chunk is given up: after its attempts are used up, and not before it had time. Pure.

The dead-letter consumer and the sweeper both ask here, with an item that was read a moment ago. Receipts of a message
are never counted: they mix attempts with outages and backlogs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prismline_contracts import ChunkItem, ChunkStatus


@dataclass(frozen=True)
class Patience:
    """How much is tried before a chunk is given up."""

    #: Attempts that really ran. Those that an outage of something else cut short do not count.
    max_attempts: int = 5
    #: Seconds since the first attempt began: long enough for somebody on call to roll a bad deployment back.
    seconds: float = 7200.0
    #: Seconds after which an attempt whose end was not heard of has lost its worker: more than Lambda's longest timeout
    #: (900) and more than the visibility of the queue of chunks (960).
    lease_seconds: float = 1200.0


def attempts_used(chunk: ChunkItem) -> int:
    """Attempts that say something about the chunk."""
    return chunk.attempts - chunk.interruptions


def seconds_since(moment: str, now: datetime) -> float:
    """How long ago `moment`, a timestamp, was."""
    return (now - datetime.fromisoformat(moment)).total_seconds()


def leased(chunk: ChunkItem, now: datetime, patience: Patience) -> bool:
    """Whether a worker may be at work on the chunk at this moment."""
    return (
        chunk.state is ChunkStatus.IN_PROGRESS
        and seconds_since(chunk.started_at or chunk.created_at, now) <= patience.lease_seconds
    )


def exhausted(chunk: ChunkItem, now: datetime, patience: Patience) -> str | None:
    """Why the chunk is given up, in a sentence; None: it is not."""
    if chunk.state.terminal or leased(chunk, now, patience):
        return None
    used, began = attempts_used(chunk), chunk.first_started_at
    if used < patience.max_attempts or began is None or seconds_since(began, now) < patience.seconds:
        return None
    last = chunk.last_error or "Its workers died without saying why."
    return f"{last} Given up after {used} attempts."
