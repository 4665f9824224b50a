"""Decides what a sweep does with a run and its chunks, from their items. Pure: no client.

docs/explanation/delivery.md has the rules.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from functools import partial

from prismline_contracts.base import timestamp
from prismline_contracts.commands import (
    ChunkProcess,
    JobIngest,
    Queue,
    RunSplit,
    SpectraRefit,
    StatusUpdate,
    StepFunctionsError,
)
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import ChunkItem, ChunkStatus, NewerStatus, RunItem
from prismline_contracts.manifest import RefitParams
from prismline_contracts.tasks import ShardItem
from prismline_ledger import COUNTERS, TOO_MANY_FAILURES, Counts, Patience, early_stop, exhausted, leased, seconds_since


@dataclass(frozen=True)
class SweepLimits:
    """Times, in seconds, without a sign of life after which a message counts as lost."""

    #: If the queue and its dead-letter queue are empty. More than a minute, because SQS counts may be that far behind.
    idle_seconds: float = 300.0
    #: If only the queue is empty. A deferred message in the dead-letter queue gives a sign of life every 15 minutes.
    deferred_seconds: float = 3600.0
    #: If the queue has a backlog. It doubles with every resend.
    backlog_seconds: float = 86_400.0
    #: The limit of that doubling. It is shorter than the queues' retention.
    longest_seconds: float = 604_800.0
    #: For the split of a run. It is enough for two deliveries of `run.split`.
    split_seconds: float = 2400.0
    #: Interval at which the sweeper asks the status service to check a run that has not ended.
    check_seconds: float = 900.0
    #: Leases of single workloads. They replace `Patience.lease_seconds`.
    workload_lease_seconds: Mapping[str, float] = field(default_factory=dict)


class MessageLocation(Enum):
    """Where the messages of a queue are now. The chunk's own message may be one of them."""

    NOWHERE = auto()
    #: The queue is empty, its dead-letter queue is not.
    DEAD_LETTERS = auto()
    QUEUE = auto()


@dataclass(frozen=True)
class Resend:
    """Send the message of the chunk or run again."""

    reason: str


@dataclass(frozen=True)
class ResendRefit:
    """Send the chunk's `spectra.refit` again."""

    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Give the chunk up: it fails with this error."""

    error: str


@dataclass(frozen=True)
class AnnounceEnd:
    """Publish the chunk's end: the sweep or the worker that ended it may have died before it did so."""


class RunAnnouncement(Enum):
    """The event that a sweep publishes about a run whose end is not recorded."""

    DRAINED = auto()
    CHECK = auto()


def sweep_chunk(
    chunk: ChunkItem,
    run: RunItem,
    now: datetime,
    patience: Patience,
    limits: SweepLimits,
    locate: Callable[[Queue], MessageLocation],
) -> Resend | ResendRefit | GiveUp | AnnounceEnd | None:
    """Decide what a sweep does with a chunk. None: nothing.

    locate: returns where the messages of a queue are. It is called only if needed.
    """
    if chunk.announcement_pending:
        return AnnounceEnd()
    if run.cancelled_at is not None:
        return None
    match chunk.state:
        case ChunkStatus.IN_PROGRESS:
            return _sweep_attempt(chunk, run, now, patience, limits)
        case ChunkStatus.PENDING if run.latched_at is not None:  # before the latch, its message may not be sent yet
            signs = (run.latched_at, chunk.sent_at, chunk.started_at, chunk.attempt_ended_at, chunk.deferred_at)
            if (skipped := _skipped(run, max(moment for moment in signs if moment), now, limits)) is not None:
                return Resend(SKIPPED) if skipped else None
            silent = min(seconds_since(moment, now) for moment in signs if moment)
            backlog = limits.backlog_seconds * 2.0 ** min(chunk.resends, 60)
            return Resend(_lost(silent)) if _is_lost(silent, backlog, limits, partial(locate, Queue.CHUNKS)) else None
        case ChunkStatus.COMPLETED if chunk.n_timed_out > 0:
            return _sweep_refit(chunk, now, limits, partial(locate, Queue.REFITS))
    return None


#: Why the work of a resumed run is sent again.
SKIPPED = "Its message may have been skipped while the run was stopped."


def _skipped(run: RunItem, last_sign: str | None, now: datetime, limits: SweepLimits) -> bool | None:
    """Whether the work is due to be sent again because the run was resumed since there was a sign of it.

    Workers acknowledge the messages of a stopped run without work. So what other messages the queue holds says nothing.
    A message that was hidden then may still come, so there is the same wait as with empty queues. None: no such resume.
    """
    if run.resumed_at is None or (last_sign is not None and last_sign >= run.resumed_at):
        return None
    return seconds_since(run.resumed_at, now) > limits.idle_seconds


def _sweep_attempt(
    chunk: ChunkItem, run: RunItem, now: datetime, patience: Patience, limits: SweepLimits
) -> Resend | GiveUp | None:
    lease = limits.workload_lease_seconds.get(run.workload, patience.lease_seconds)
    patience = replace(patience, lease_seconds=lease)
    if leased(chunk, now, patience):
        return None
    error = exhausted(chunk, now, patience)
    return GiveUp(error) if error else Resend(f"Its worker did not end it within {_duration(lease)}.")


def _sweep_refit(
    chunk: ChunkItem, now: datetime, limits: SweepLimits, locate: Callable[[], MessageLocation]
) -> ResendRefit | None:
    """Decide about timed-out rows. In a backlog the wait is the time from completion to the last resend: it doubles."""
    completed = chunk.completed_at or chunk.created_at
    sent = chunk.refit_sent_at or completed
    silent = min(seconds_since(moment, now) for moment in (completed, sent))
    backlog = max(limits.backlog_seconds, seconds_since(completed, datetime.fromisoformat(sent)))
    return ResendRefit(_lost(silent)) if _is_lost(silent, backlog, limits, locate) else None


def _is_lost(silent: float, backlog: float, limits: SweepLimits, locate: Callable[[], MessageLocation]) -> bool:
    if silent <= limits.idle_seconds:
        return False
    limit = {
        MessageLocation.NOWHERE: limits.idle_seconds,
        MessageLocation.DEAD_LETTERS: limits.deferred_seconds,
        MessageLocation.QUEUE: min(backlog, limits.longest_seconds),
    }
    return silent > limit[locate()]


def _lost(silent: float) -> str:
    return f"Its message was lost: there was no sign of it for {_duration(silent)}."


def sweep_split(run: RunItem, now: datetime, limits: SweepLimits) -> Resend | None:
    """Decide whether `run.split` is sent again. None: it is not.

    While `sweep_submission` repeats the announcement of a run, `run.split` goes with it once the run is old enough: the
    execution that an announcement started may be gone.
    """
    if run.latched_at is not None or run.cancelled_at is not None or run.manifest_key is None:
        return None
    announced = sweep_submission(run, now, limits) is not None
    silent = seconds_since(run.created_at if announced else run.split_sent_at or run.created_at, now)
    if silent <= limits.split_seconds:
        return None
    return Resend(f"The run was not split within {_duration(silent)}.")


def sweep_submission(run: RunItem, now: datetime, limits: SweepLimits) -> Resend | None:
    """Decide whether `job.ingest` is sent again for a run that the api opened by itself. None: it is not.

    The api may have died before it added all tasks, or before it announced the run. No state machine waits for the
    split of such a run, so nobody else would notice. Each `job.ingest` adds the tasks that are missing and announces
    the run again. The sweeper repeats it until the run's end is recorded.

    A resumed run has a status already, so it is not announced again: `sweep_split` has it split.
    """
    if run.unit != "task" or run.manifest_key is None or run.split_token is not None or run.resumed_at is not None:
        return None
    if run.ended_at is not None or run.cancelled_at is not None:
        return None
    silent = seconds_since(run.split_sent_at or run.created_at, now)
    limit = limits.check_seconds if run.split_sent_at is not None else limits.idle_seconds
    return Resend(f"The run was not announced within {_duration(silent)}.") if silent > limit else None


@dataclass(frozen=True)
class Progress:
    """What a sweep does with a run of tasks that has not drained."""

    #: Record that this many tasks have ended, because the run made progress or its tasks are sent again.
    record: int | None = None
    #: Send all tasks that have not ended again, for this reason.
    resend: str | None = None


def sweep_tasks(
    run: RunItem, ended: int, now: datetime, limits: SweepLimits, *, tasks: Callable[[], MessageLocation]
) -> Progress:
    """Decide about the tasks of a run.

    Their messages count as lost if no task has ended for a time that depends on where the messages of the queue are.
    The time begins with the sweep that saw the last progress, so at least two sweeps have read the queue. It doubles
    with every resend that brought no progress.

    ended: number of tasks that have ended.
    tasks: returns where the messages of the run's queue are. It is called only if needed.
    """
    if run.cancelled_at is not None or run.drained_at is not None:
        return Progress()
    if (skipped := _skipped(run, run.progress_at, now, limits)) is not None:
        return Progress(record=ended, resend=SKIPPED) if skipped else Progress()
    if run.progress_at is None or run.progress_ended != ended:
        return Progress(record=ended)
    silent = seconds_since(run.progress_at, now)
    grown = 2.0 ** min(run.task_resends, 60)
    limit = min(limits.idle_seconds * grown, limits.longest_seconds)
    if silent <= limit or not _is_lost(silent, limits.backlog_seconds * grown, limits, tasks):
        return Progress()
    return Progress(record=ended, resend=_lost(silent))


def sweep_finalization(
    run: RunItem, now: datetime, limits: SweepLimits, *, tasks: Callable[[], MessageLocation]
) -> Resend | None:
    """Decide whether a message of a run that is to be finalized is sent again. None: it is not.

    The message that ended its last items finalizes it. It may be gone: a worker died before it was delivered again, or
    the run was drained by another service. tasks: as for `sweep_tasks`.
    """
    due = due_finalization(run)
    if due is None:
        return None
    signs = (run.drained_at, run.resumed_at, due.at)
    silent = min(seconds_since(moment, now) for moment in signs if moment is not None)
    return Resend(_lost(silent)) if _is_lost(silent, limits.backlog_seconds, limits, tasks) else None


#: Error name of a run that is stopped at its deadline.
DEADLINE_EXCEEDED = "DeadlineExceeded"


def sweep_deadline(run: RunItem, now: datetime) -> StatusUpdate | None:
    """The update that fails a run whose deadline has passed. None if it has none, has time left, or is over."""
    over = run.drained_at is not None or run.cancelled_at is not None or run.ended_at is not None
    if run.deadline_at is None or over or seconds_since(run.deadline_at, now) < 0:
        return None
    cause = f"The run had not ended at its deadline, {run.deadline_at}. Its remaining work is skipped."
    error = StepFunctionsError(Error=DEADLINE_EXCEEDED, Cause=cause)
    return StatusUpdate(job_id=run.run_id, status="FAILED", completed_at=timestamp(now), error=error)


def sweep_failures(run: RunItem, counts: Counts, now: datetime) -> StatusUpdate | None:
    """The update that fails a run of which more chunks or tasks have failed than it tolerates. None if it goes on."""
    cause = early_stop(run, counts)
    if cause is None:
        return None
    error = StepFunctionsError(Error=TOO_MANY_FAILURES, Cause=cause)
    return StatusUpdate(job_id=run.run_id, status="FAILED", completed_at=timestamp(now), error=error)


def due_announcement(run: RunItem, now: datetime, limits: SweepLimits) -> RunAnnouncement | None:
    """The event that a sweep publishes about `run`. None if its end is recorded, or if it was checked lately."""
    if run.ended_at is not None:
        return None
    if run.drained_at is not None:
        return RunAnnouncement.DRAINED
    silent = seconds_since(run.checked_at or run.created_at, now)
    return RunAnnouncement.CHECK if run.cancelled_at is not None or silent > limits.check_seconds else None


class ChunkTotals:
    """The sums over a run's chunk items."""

    def __init__(self) -> None:
        self.n_chunks = 0
        self._sums: Counter[str] = Counter()
        self._states: Counter[tuple[int | None, ChunkStatus | NewerStatus]] = Counter()
        self._digest = hashlib.blake2b()

    def add(self, chunk: ChunkItem) -> None:
        """Add one chunk. Chunks must come in the order of their keys."""
        self.n_chunks += 1
        self._sums["chunks_completed"] += chunk.state is ChunkStatus.COMPLETED
        self._sums["chunks_failed"] += chunk.state is ChunkStatus.FAILED
        self._sums["n_timed_out"] += chunk.n_timed_out
        self._sums["n_refit_failed"] += chunk.n_refit_failed
        self._states[chunk.shard, chunk.state] += 1
        ended = chunk.completed_at if chunk.state.terminal else None
        counted = (chunk.SK, chunk.state.terminal, ended, chunk.recovery, chunk.n_timed_out, chunk.n_refit_failed)
        self._digest.update(repr(counted).encode())

    def counters(self) -> dict[str, int]:
        """The sums, by the names of the run's counters."""
        return {name: self._sums[name] for name in COUNTERS}

    def shard(self, shard: int) -> tuple[int, int]:
        """How many chunks of a shard are COMPLETED, and how many FAILED."""
        return self._states[shard, ChunkStatus.COMPLETED], self._states[shard, ChunkStatus.FAILED]

    def confirms(self, earlier: ChunkTotals) -> bool:
        """Whether no counted attribute has changed between the two listings, so that both sums are exact.

        A single listing is not a snapshot. For example, one chunk may be reopened after the listing has passed it while
        another fails before the listing reaches it. The counters stay the same, but the listing counts both chunks.
        """
        return self._digest.digest() == earlier._digest.digest()


def drift(run: RunItem, counted: ChunkTotals) -> dict[str, int]:
    """The counters of `run` that differ from the count, with their right values.

    A run with several shards has the numbers of ended chunks in its item only once it has drained.
    """
    right = counted.counters()
    if run.shard_count > 1 and run.drained_at is None:
        right |= {"chunks_completed": 0, "chunks_failed": 0}
    return {name: value for name, value in right.items() if getattr(run, name) != value}


def shard_drift(shards: Sequence[ShardItem], counted: ChunkTotals) -> list[tuple[ShardItem, int, int]]:
    """The shards whose counters differ from the count, with the right numbers of completed and of failed chunks."""
    return [
        (shard, *counted.shard(shard.shard))
        for shard in shards
        if (shard.completed, shard.failed) != counted.shard(shard.shard)
    ]


def total_is_wrong(run: RunItem, counted: ChunkTotals) -> bool:
    """Whether the run's total differs from the number of its chunk items."""
    return run.chunks_total is not None and run.chunks_total != counted.n_chunks


def counters_unchanged(before: RunItem, after: RunItem) -> bool:
    """Whether the counters of a run are equal before and after a listing, so that they can be compared with it."""
    return all(getattr(before, name) == getattr(after, name) for name in (*COUNTERS, "chunks_total"))


# ---- resent messages


def refit_command(chunk: ChunkItem, run: RunItem, bucket_name: str) -> SpectraRefit:
    """The `spectra.refit` command of a chunk, as the worker sent it."""
    command = ChunkProcess.of(chunk, run, bucket_name)
    return SpectraRefit.of(command, RefitParams.model_validate(command.params), chunk.output_key or "")


def split_command(run: RunItem, bucket_name: str) -> RunSplit:
    """The `run.split` command of a run."""
    return RunSplit(run_id=run.run_id, job_id=run.job_id, bucket=bucket_name, manifest_key=run.manifest_key or "")


def ingest_command(run: RunItem, bucket_name: str) -> JobIngest:
    """The `job.ingest` command of a run."""
    return JobIngest(run_id=run.run_id, job_id=run.job_id, bucket=bucket_name, manifest_key=run.manifest_key or "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
