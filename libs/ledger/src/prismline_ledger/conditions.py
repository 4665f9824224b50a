"""Decides what a run does or waits for now: the sentences that people see beside its status. Pure functions.

The api sends them as data; the console and the command show them unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.pools import pool_of, pool_queue
from prismline_contracts.tasks import TaskItem, UrlParams
from prismline_ledger.judgement import Patience, attempts_used, waiting_for
from prismline_ledger.permitted import ENDED, going_on
from prismline_ledger.repeated_errors import RepeatedError
from prismline_ledger.transitions import Counts
from prismline_runtime import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS


class ConditionName(StrEnum):
    """What a run does or waits for."""

    #: Submitted; the status service does not know it yet.
    ACCEPTED = "accepted"
    #: Its source is being divided into chunks.
    SPLITTING = "splitting"
    #: Its list of tasks is being read.
    INGESTING = "ingesting"
    #: Its job is open and takes more tasks.
    OPEN = "open"
    #: Its messages are behind those of other runs.
    QUEUED = "queued"
    #: Nothing reads the queue of its messages.
    NO_CONSUMER = "no_consumer"
    #: A worker waits for a slot, or for a resource.
    WAITING = "waiting"
    #: Some of its chunks or tasks are tried again after an error.
    RETRIED = "retried"
    #: A message of it raises an unexpected error again and again.
    REPEATED_ERROR = "repeated_error"
    #: It was stopped, and what had begun is ending.
    CANCELLING = "cancelling"
    #: It failed or was cancelled, and work continues.
    CONTINUED = "continued"
    #: Its slow lane fits spectra again.
    REFITTING = "refitting"
    #: Its items have ended, and the function's `finalize` is called.
    FINALIZING = "finalizing"
    #: It keeps an earlier code of its function alive.
    KEEPS_CODE = "keeps_code"


@dataclass(frozen=True)
class Condition:
    """One thing that a run does or waits for, as a sentence."""

    name: ConditionName
    sentence: str


@dataclass(frozen=True)
class QueueLook:
    """A queue that holds messages of the run. The numbers are approximate."""

    name: str
    #: Messages that wait, and messages that a consumer has.
    waiting: int
    in_flight: int
    #: Running processes that read it. None: not known.
    consumers: int | None = None


@dataclass(frozen=True)
class Retry:
    """An attempt that ended with an error, after which the chunk or task is tried again."""

    #: The chunk's id, or what the task works on.
    of: str
    #: Attempts that count, and how many the chunk or task gets at least. None: its function decides.
    attempts: int
    at_least: int | None
    #: When the next attempt begins at the latest, if a process is free.
    next_at: str
    error: str

    def sentence(self, now: datetime) -> str:
        """The retry for a person."""
        due = datetime.fromisoformat(self.next_at) <= now
        when = "the next try is due" if due else f"next try at {self.next_at}"
        made = f"{self.attempts} of {self.at_least}" if self.at_least is not None else str(self.attempts)
        error = self.error if self.error.endswith((".", "!", "?", "…")) else f"{self.error}."
        return f"Being retried after an error ({made}, {when}): {error}"


@dataclass(frozen=True)
class Retries:
    """The chunks or tasks of a run that are being retried: how many were found, and the latest of them."""

    count: int
    latest: Retry
    #: Whether there may be more: not all chunks or tasks were looked at.
    more: bool = False


@dataclass(frozen=True)
class Observed:
    """What is known of a run beside its item and its counts."""

    run_id: str
    created_at: str
    #: The status that the status service announces. None: it does not know the run yet.
    status: str | None
    repeated: RepeatedError | None = None
    queue: QueueLook | None = None
    retries: Retries | None = None
    #: When its cancellation was last requested, if that is known.
    cancel_requested_at: str | None = None
    #: Whether its job is open. Such a run is announced when the job is closed.
    job_is_open: bool = False
    #: The code that the run's function was registered with last. None: not known.
    latest_code: str | None = None


@dataclass(frozen=True)
class Pace:
    """How fast chunks or tasks have ended since the run started, and the seconds that the rest takes at this rate."""

    per_second: float
    remaining_seconds: float | None


def pace(counts: Counts | None, started_at: str | None, now: datetime) -> Pace | None:
    """The pace of a run that started at this time. None: nothing has ended yet. No remaining time: no final total."""
    if counts is None or started_at is None or counts.ended == 0:
        return None
    seconds = max((now - datetime.fromisoformat(started_at)).total_seconds(), 1e-3)
    rate = counts.ended / seconds
    return Pace(rate, None if counts.total is None else (counts.total - counts.ended) / rate)


def queue_of(run: RunItem | None, status: str | None) -> str:
    """The queue of the next message of an open run: a short name, or the full name of the run's own queue."""
    if status is None:
        return Queue.RUNS
    if run is None or run.latched_at is None:
        return Queue.SPLIT
    if run.unit == "chunk":
        return Queue.CHUNKS
    pool = pool_of(run.run_id)
    return pool_queue(pool) if pool is not None else run.task_queue or Queue.TASKS


def works(run: RunItem | None, status: str | None, counts: Counts | None) -> bool:
    """Whether messages of the run are expected in a queue: it has not ended, or work continues after its end."""
    return status not in ENDED or (status is not None and going_on(run, status, counts) is not None)


def retry_of(item: ChunkItem | TaskItem, run: RunItem) -> Retry | None:
    """How a chunk or task is being retried. None: its latest attempt has not ended with an error, or it has ended."""
    if item.state is not ChunkStatus.PENDING or item.attempts == 0 or item.last_error is None:
        return None
    used = max(1, attempts_used(item))
    if isinstance(item, ChunkItem):
        ended = item.attempt_ended_at or item.started_at or item.created_at
        # The message is hidden for a random part of this time.
        longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(used - 1, 10))
        next_at = timestamp(datetime.fromisoformat(ended) + timedelta(seconds=longest))
        return Retry(item.chunk_id, used, Patience.max_attempts, next_at, item.last_error)
    default = UrlParams().max_attempts if run.workload == "urls" else None
    most = json.loads(run.params or "{}").get("max_attempts", default)
    return Retry(item.source, used, most, item.not_before or item.started_at or item.created_at, item.last_error)


def conditions_of(observed: Observed, run: RunItem | None, counts: Counts | None, now: datetime) -> list[Condition]:
    """Everything that the run does or waits for now, what it does first."""
    return [Condition(name, sentence) for name, sentence in _conditions(observed, run, counts, now)]


def _conditions(
    observed: Observed, run: RunItem | None, counts: Counts | None, now: datetime
) -> Iterator[tuple[ConditionName, str]]:
    status = observed.status
    if observed.job_is_open:
        yield ConditionName.OPEN, "Its job is open: it takes tasks until it is closed."
    elif status is None:
        yield (
            ConditionName.ACCEPTED,
            f"Accepted at {observed.created_at}, not announced yet: the status service has not recorded the run.",
        )
    over = run is not None and (run.drained_at is not None or run.cancelled_at is not None)
    if status not in ENDED and not over:
        yield from _before_latch(observed, run, counts)
    if _is_cancelling(run, status, observed.cancel_requested_at):
        yield (
            ConditionName.CANCELLING,
            "Being cancelled: nothing more is begun. The run is cancelled when what has begun is recorded.",
        )
    if status is not None and (continued := going_on(run, status, counts)) is not None:
        yield ConditionName.CONTINUED, continued
    if observed.repeated is not None:
        yield (
            ConditionName.REPEATED_ERROR,
            f"Being retried after an unexpected error: {observed.repeated.sentence}",
        )
    if run is not None and not over and (retries := observed.retries) is not None:
        yield ConditionName.RETRIED, _retries(retries, run.unit, now)
    if run is not None and (wait := waiting_for(run, now)) is not None:
        yield ConditionName.WAITING, wait
    if works(run, status, counts) and not over and observed.queue is not None:
        yield from _in_queue(observed.queue, run, counts)
    if run is not None and run.n_timed_out and not (status in ENDED and run.cancelled_at is not None):
        yield ConditionName.REFITTING, f"{run.n_timed_out:,} spectra ran out of time and wait to be fitted again."
    if run is not None and (due := due_finalization(run)) is not None:
        why = f" The last attempt failed: {due.error}" if due.error else ""
        yield (
            ConditionName.FINALIZING,
            f"Its items have ended, and `finalize` is called (attempt {max(1, due.attempts)}).{why}",
        )
    if run is not None and needs_code(run) and observed.latest_code not in (None, run.code):
        codes = f"the code {str(run.code)[:12]} of {run.workload}, which has {str(observed.latest_code)[:12]} now"
        move = f"`prismline retry {run.run_id} --code latest`"
        sentence = f"It began with {codes}. Keep the earlier code until the run has ended, or move the run: {move}."
        yield ConditionName.KEEPS_CODE, sentence


def needs_code(run: RunItem) -> bool:
    """Whether workers still need the code of the function with which the run began."""
    ended = run.drained_at is not None and due_finalization(run) is None
    return run.code is not None and run.cancelled_at is None and not ended


def _is_cancelling(run: RunItem | None, status: str | None, requested_at: str | None) -> bool:
    """Whether a cancellation was requested, and its end is not recorded yet."""
    if run is not None and (run.drained_at is not None or run.ended_at is not None):
        return False
    if run is not None and run.cancelled_at is not None:
        return run.stop_reason == "cancelled"
    if run is not None and run.goes_on_after_cancel:
        return requested_at is not None and requested_at > (run.uncancelled_at or "")
    return (status == "cancelled" and run is not None) or (status not in ENDED and requested_at is not None)


def _before_latch(
    observed: Observed, run: RunItem | None, counts: Counts | None
) -> Iterator[tuple[ConditionName, str]]:
    """What happens until all chunks or tasks of a run are written."""
    if run is None:
        if observed.status is not None:
            yield ConditionName.SPLITTING, "Its source is being read. No chunk or task is written yet."
    elif run.latched_at is None and run.unit == "chunk":
        yield ConditionName.SPLITTING, "Its source is being divided into chunks. Their number is not final."
    elif run.latched_at is None and not observed.job_is_open:
        found = json.loads(run.checkpoint or "{}").get("next_index", 0)
        at_least = max(found, 0 if counts is None else counts.ended)
        yield ConditionName.INGESTING, f"Its list is being read: at least {at_least:,} tasks so far."


def _retries(retries: Retries, unit: str, now: datetime) -> str:
    number = f"{'At least ' if retries.more else ''}{retries.count:,} {unit}{'s' * (retries.count != 1)}"
    verb = "is" if retries.count == 1 else "are"
    return f"{number} {verb} not finished after an error. {retries.latest.of}: {retries.latest.sentence(now)}"


def _in_queue(queue: QueueLook, run: RunItem | None, counts: Counts | None) -> Iterator[tuple[ConditionName, str]]:
    """That messages of the run may wait: nothing reads their queue, or those of other runs are in it."""
    if not queue.waiting:
        return
    messages = f"{queue.waiting:,} message{'s' * (queue.waiting != 1)}"
    if queue.consumers == 0:
        verb = "waits" if queue.waiting == 1 else "wait"
        yield (
            ConditionName.NO_CONSUMER,
            f"The queue {queue.name} has no consumer: {messages} {verb} in it. Start the service that reads it.",
        )
        return
    own = 1 if run is None or counts is None or counts.total is None else counts.total - counts.ended
    if (others := queue.waiting - own) > 0 and not (run is not None and run.task_queue):
        verb = "waits" if others == 1 else "wait"
        yield (
            ConditionName.QUEUED,
            f"Waiting behind other runs: at least {others:,} of their messages {verb} in the queue {queue.name}.",
        )
