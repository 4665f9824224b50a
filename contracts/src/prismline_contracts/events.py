"""Events: what has happened, published on the bus for whoever cares."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field

from prismline_contracts.base import ChunkId, Count, Key, Name, Survey, Timestamp
from prismline_contracts.deadletters import (
    DeadletterArchived,
    DeadlettersRecover,
    DeadlettersRecovered,
    DeadlettersRecoverRequested,
    RunRecovered,
)
from prismline_contracts.envelope import MessageData
from prismline_contracts.items import RunItem

Percent = Annotated[float, Field(ge=0, le=100)]


class RunSubmitted(MessageData):
    """Somebody submitted a job and this is its run. The manifest has not been validated yet."""

    TYPE: ClassVar[str] = "prismline.run.submitted.v1"

    job_id: Name
    bucket: Name
    manifest_key: Key
    survey: Survey | None = None
    workload: Name = "spectra"
    tolerated_failure_percent: Percent = 0.0


class RunSplitCompleted(MessageData):
    """The run's chunks exist, their messages are sent, and their total is final."""

    TYPE: ClassVar[str] = "prismline.run.split.completed.v1"

    survey: Survey
    jobs_total: Count
    n_spectra: Count
    n_blank: Count


class ChunkCompleted(MessageData):
    """A chunk's output is there, whole."""

    TYPE: ClassVar[str] = "prismline.chunk.completed.v1"

    survey: Survey
    chunk_id: ChunkId
    output_key: Key
    n_items: Count
    n_timed_out: Count = 0
    duration_ms: Count


class ChunkFailed(MessageData):
    """A chunk will not be done: a permanent error, or its attempts are used up."""

    TYPE: ClassVar[str] = "prismline.chunk.failed.v1"

    survey: Survey | None = None
    chunk_id: ChunkId
    error: str


class RunDrained(MessageData):
    """The run is latched and each of its chunks is terminal."""

    TYPE: ClassVar[str] = "prismline.run.drained.v1"

    jobs_total: Count
    jobs_completed: Count
    jobs_failed: Count
    failed_percent: Percent
    drained_at: Timestamp
    #: How often the run has drained, this time included.
    drains: Annotated[int, Field(ge=1)] = 1

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this drain of the run from its others, for the envelope's id."""
        return () if self.drains == 1 else (str(self.drains),)

    @classmethod
    def of(cls, run: RunItem) -> Self:
        """What is said of a run item that is drained."""
        total = run.jobs_total or 0
        return cls(
            run_id=run.run_id,
            jobs_total=total,
            jobs_completed=run.jobs_completed,
            jobs_failed=run.jobs_failed,
            failed_percent=100 * run.jobs_failed / total if total else 0.0,
            drained_at=run.drained_at or "",
            drains=max(1, run.drains),
        )


class RunStarted(MessageData):
    """The run's chunks are being worked off."""

    TYPE: ClassVar[str] = "prismline.run.started.v1"

    started_at: Timestamp


class RunCompleted(MessageData):
    """The run ended well."""

    TYPE: ClassVar[str] = "prismline.run.completed.v1"

    completed_at: Timestamp


class RunFailed(MessageData):
    """The run ended, and not well; `error` says why in one sentence."""

    TYPE: ClassVar[str] = "prismline.run.failed.v1"

    completed_at: Timestamp
    error: str


class RunCancelled(MessageData):
    """The run was cancelled; chunks that had not started will not."""

    TYPE: ClassVar[str] = "prismline.run.cancelled.v1"

    completed_at: Timestamp


class RunCancelRequested(MessageData):
    """Somebody wants the run to stop."""

    TYPE: ClassVar[str] = "prismline.run.cancel.requested.v1"

    requested_at: Timestamp


class RunCheckRequested(MessageData):
    """The sweeper sees a run whose end has not been recorded: the status service looks at it."""

    TYPE: ClassVar[str] = "prismline.run.check.requested.v1"


class RunCleanupRequested(MessageData):
    """The run is about to be failed: whoever holds something for it lets go."""

    TYPE: ClassVar[str] = "prismline.run.cleanup.requested.v1"


#: Every event's model.
EVENTS: tuple[type[MessageData | DeadlettersRecover | DeadletterArchived | DeadlettersRecovered], ...] = (
    RunSubmitted,
    RunSplitCompleted,
    ChunkCompleted,
    ChunkFailed,
    RunDrained,
    RunStarted,
    RunCompleted,
    RunFailed,
    RunCancelled,
    RunCancelRequested,
    RunCleanupRequested,
    RunCheckRequested,
    RunRecovered,
    DeadlettersRecoverRequested,
    DeadletterArchived,
    DeadlettersRecovered,
)
