"""What a sweep does about a run and its chunks, decided from their items alone. Pure: no client in here.

docs/protocol.md has the rules: "A chunk" for leases and giving up, "Lost messages" for how long silence may last, "Who
says an ending until it is heard" for what is said again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

from prismline_contracts import ChunkItem, ChunkProcess, ChunkStatus, FitParams, RunItem, RunSplit, SpectraRefit
from prismline_ledger import COUNTERS, Patience, exhausted, leased, seconds_since


@dataclass(frozen=True)
class SweepLimits:
    """How long something may be silent before its message counts as lost, in seconds."""

    #: While no message is left that could be the one. Longer than the minute within which SQS' counts become true.
    idle_seconds: float = 300.0
    #: While the queue is empty and its dead-letter queue is not. A letter that waits there for a resource is heard of
    #: every 15 minutes.
    deferred_seconds: float = 3600.0
    #: While the queue holds messages; doubled with every resend.
    backlog_seconds: float = 86_400.0
    #: The end of that doubling: less than the queues' retention.
    longest_seconds: float = 604_800.0
    #: How long a run may take to be split: two deliveries of its command.
    split_seconds: float = 2400.0
    #: How often the status service looks at a run that goes on.
    check_seconds: float = 900.0
    #: Leases of particular workloads, instead of `Patience.lease_seconds`.
    workload_lease_seconds: Mapping[str, float] = field(default_factory=dict)


class Held(Enum):
    """Where messages of one kind are at the moment, one's own perhaps among them."""

    NOWHERE = auto()
    #: The queue is empty, its dead-letter queue is not.
    DEAD_LETTERS = auto()
    QUEUE = auto()


@dataclass(frozen=True)
class Resend:
    """Its message is sent again."""

    reason: str


@dataclass(frozen=True)
class ResendRefit:
    """Its message to the slow lane is sent again."""

    reason: str


@dataclass(frozen=True)
class GiveUp:
    """It fails."""

    error: str


@dataclass(frozen=True)
class SayFailed:
    """It failed in a sweep that may have died before saying so."""

    error: str


class RunNews(Enum):
    """What is said about a run whose end has not been heard."""

    DRAINED = auto()
    CHECK = auto()


def sweep_chunk(
    chunk: ChunkItem,
    run: RunItem,
    now: datetime,
    patience: Patience,
    limits: SweepLimits,
    *,
    chunks: Callable[[], Held],
    refits: Callable[[], Held],
) -> Resend | ResendRefit | GiveUp | SayFailed | None:
    """What a chunk needs; None: nothing.

    chunks, refits: where the messages of the queues `chunks` and `refits` are; asked only where it makes a difference.
    """
    if chunk.unsaid:
        return SayFailed(chunk.error or "")
    if run.cancelled_at is not None:
        return None
    match chunk.state:
        case ChunkStatus.IN_PROGRESS:
            return _sweep_attempt(chunk, run, now, patience, limits)
        case ChunkStatus.PENDING if run.latched_at is not None:  # before that, its message may not have been sent
            heard = (run.latched_at, chunk.sent_at, chunk.started_at, chunk.attempt_ended_at, chunk.deferred_at)
            silent = min(seconds_since(moment, now) for moment in heard if moment)
            backlog = limits.backlog_seconds * 2.0 ** min(chunk.resends, 60)
            return Resend(_lost(silent)) if _is_lost(silent, backlog, limits, chunks) else None
        case ChunkStatus.COMPLETED if chunk.n_timed_out > 0:
            return _sweep_refit(chunk, now, limits, refits)
    return None


def _sweep_attempt(
    chunk: ChunkItem, run: RunItem, now: datetime, patience: Patience, limits: SweepLimits
) -> Resend | GiveUp | None:
    lease = limits.workload_lease_seconds.get(run.workload, patience.lease_seconds)
    patience = replace(patience, lease_seconds=lease)
    if leased(chunk, now, patience):
        return None
    error = exhausted(chunk, now, patience)
    return GiveUp(error) if error else Resend(f"Its worker did not end it within {_duration(lease)}.")


def _sweep_refit(chunk: ChunkItem, now: datetime, limits: SweepLimits, held: Callable[[], Held]) -> ResendRefit | None:
    """Resends are not counted: what passed until the last of them is the next wait, and so it doubles."""
    completed = chunk.completed_at or chunk.created_at
    sent = chunk.refit_sent_at or completed
    silent = min(seconds_since(moment, now) for moment in (completed, sent))
    backlog = max(limits.backlog_seconds, seconds_since(completed, datetime.fromisoformat(sent)))
    return ResendRefit(_lost(silent)) if _is_lost(silent, backlog, limits, held) else None


def _is_lost(silent: float, backlog: float, limits: SweepLimits, held: Callable[[], Held]) -> bool:
    if silent <= limits.idle_seconds:
        return False
    limit = {
        Held.NOWHERE: limits.idle_seconds,
        Held.DEAD_LETTERS: limits.deferred_seconds,
        Held.QUEUE: min(backlog, limits.longest_seconds),
    }
    return silent > limit[held()]


def _lost(silent: float) -> str:
    return f"Its message was lost: nothing was heard of it for {_duration(silent)}."


def sweep_split(run: RunItem, now: datetime, limits: SweepLimits) -> Resend | None:
    """What a run needs that may not have been split; None: nothing."""
    if run.latched_at is not None or run.cancelled_at is not None or run.manifest_key is None:
        return None
    silent = seconds_since(run.split_sent_at or run.created_at, now)
    if silent <= limits.split_seconds:
        return None
    return Resend(f"The run was not split within {_duration(silent)}.")


def news_of(run: RunItem, now: datetime, limits: SweepLimits) -> RunNews | None:
    """What is said about `run`; None: nothing, because its end was heard, or it goes on and was looked at lately."""
    if run.ended_at is not None:
        return None
    if run.drained_at is not None:
        return RunNews.DRAINED
    silent = seconds_since(run.checked_at or run.created_at, now)
    return RunNews.CHECK if run.cancelled_at is not None or silent > limits.check_seconds else None


class Census:
    """What the items of a run's chunks add up to."""

    def __init__(self) -> None:
        self.n_chunks = 0
        self._sums: Counter[str] = Counter()
        self._digest = hashlib.blake2b()

    def add(self, chunk: ChunkItem) -> None:
        """Count one more item, in the order of their keys."""
        self.n_chunks += 1
        self._sums["jobs_completed"] += chunk.state is ChunkStatus.COMPLETED
        self._sums["jobs_failed"] += chunk.state is ChunkStatus.FAILED
        self._sums["n_timed_out"] += chunk.n_timed_out
        self._sums["n_refit_failed"] += chunk.n_refit_failed
        ended = chunk.completed_at if chunk.state.terminal else None
        counted = (chunk.SK, chunk.state.terminal, ended, chunk.recovery, chunk.n_timed_out, chunk.n_refit_failed)
        self._digest.update(repr(counted).encode())

    def counters(self) -> dict[str, int]:
        """What the run's counters should be."""
        return {name: self._sums[name] for name in COUNTERS}

    def confirms(self, earlier: Census) -> bool:
        """Whether no item that counts has changed between the two: then both hold for every moment in between.

        One listing is no picture of a moment. A chunk that is reopened behind it and another that fails before it leave
        the counters as they were, and are both counted.
        """
        return self._digest.digest() == earlier._digest.digest()


def drift(run: RunItem, counted: Census) -> dict[str, int]:
    """The counters of `run` that are not what was counted, with what they should be."""
    return {name: value for name, value in counted.counters().items() if getattr(run, name) != value}


def total_is_wrong(run: RunItem, counted: Census) -> bool:
    """Whether the run says that it has another number of chunks than there are items."""
    return run.jobs_total is not None and run.jobs_total != counted.n_chunks


def settled(before: RunItem, after: RunItem) -> bool:
    """Whether the numbers of a run were the same at two moments, so that it is worth comparing them with its items."""
    return all(getattr(before, name) == getattr(after, name) for name in (*COUNTERS, "jobs_total"))


# ---- messages that are sent again


def process_command(chunk: ChunkItem, run: RunItem, bucket: str) -> ChunkProcess:
    """The command that the splitter sent for a chunk, once more."""
    return ChunkProcess(
        run_id=run.run_id,
        job_id=run.job_id,
        survey=run.survey,
        workload=run.workload,
        chunk_id=chunk.chunk_id,
        n_items=chunk.n_items,
        bucket=bucket,
        chunk_key=chunk.chunk_key,
        params=json.loads(run.params or "{}"),
        attempt=chunk.resends + 2,  # the splitter sent the first
        deferrals=chunk.deferrals,
    )


def refit_command(chunk: ChunkItem, run: RunItem, bucket: str) -> SpectraRefit:
    """The command that the worker sent for the rows of a chunk that ran out of time, once more."""
    return SpectraRefit(
        run_id=run.run_id,
        survey=run.survey,
        chunk_id=chunk.chunk_id,
        bucket=bucket,
        chunk_key=chunk.chunk_key,
        output_key=chunk.output_key or "",
        params=FitParams.model_validate(json.loads(run.params or "{}")),
    )


def split_command(run: RunItem, bucket: str) -> RunSplit:
    """The command to split the run, once more."""
    return RunSplit(run_id=run.run_id, job_id=run.job_id, bucket=bucket, manifest_key=run.manifest_key or "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
