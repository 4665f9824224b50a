"""Find chunks without progress, and the reason. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from prismline_contracts.items import ChunkItem, ChunkStatus

#: Number of attempts without a result after which a chunk is assumed to crash its workers.
CRASHES = 2


def trouble(chunk: ChunkItem, *, now: datetime, after: timedelta) -> str | None:
    """Why the chunk makes no progress. None if it has ended, waits in its queue, or is in progress as expected."""
    if chunk.state.terminal:
        return None
    reasons = []
    if chunk.state is ChunkStatus.IN_PROGRESS and chunk.started_at is not None:
        since = now - datetime.fromisoformat(chunk.started_at)
        if since > after:
            reasons.append(f"in progress for {_minutes(since)}: its worker has died or hangs")
    # an attempt that ends with an error records when; a worker that dies records nothing
    silent = chunk.attempts > 1 and (
        chunk.attempt_ended_at is None or chunk.attempt_ended_at < (chunk.started_at or "")
    )
    if chunk.attempts - chunk.interruptions >= CRASHES and (silent or chunk.resends):
        reasons.append(f"{chunk.attempts} attempts, and the latest ended without a result: it may crash its workers")
    if chunk.resends:
        times = "once" if chunk.resends == 1 else f"{chunk.resends} times"
        reasons.append(f"the sweeper sent it again {times}, last at {chunk.sent_at}")
    if reasons and chunk.last_error:
        reasons.append(f"last error: {chunk.last_error}")
    return "; ".join(reasons) or None


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:.0f} min" if time >= timedelta(minutes=1) else f"{time.total_seconds():.0f} s"
