"""Events: a service publishes them on the bus when something has happened, for any subscriber.

They are sorted by subject: the run, the chunk, the export, the job. Events about dead letters are in `deadletters`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, StringConstraints

from prismline_contracts.base import ChunkId, Count, Key, Name, RunId, Survey, Tenant, Timestamp
from prismline_contracts.deadletters import (
    DeadletterArchived,
    DeadlettersRecover,
    DeadlettersRecovered,
    DeadlettersRecoverRequested,
)
from prismline_contracts.envelope import MessageData
from prismline_contracts.items import (
    JOBS_COMPLETED,
    JOBS_FAILED,
    JOBS_TOTAL,
    N_SPECTRA,
    ChunkItem,
    ChunkStatus,
    RunItem,
    Unit,
)
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, TaskId

Percent = Annotated[float, Field(ge=0, le=100)]


class RunSubmitted(MessageData):
    """A job was submitted and this is its run. The manifest has not been validated yet."""

    TYPE: ClassVar[str] = "prismline.run.submitted.v1"

    job_id: Name
    bucket: Name
    manifest_key: Key
    survey: Survey | None = None
    workload: Name = "spectra"
    tolerated_failure_percent: Percent = 0.0
    #: Beside it, a percentage of 0 is no limit.
    tolerated_failures: Count | None = None


class RunSplitCompleted(MessageData):
    """The items of all chunks are written, their messages are sent, and the total is final."""

    TYPE: ClassVar[str] = "prismline.run.split.completed.v1"

    survey: Survey
    chunks_total: Annotated[Count, JOBS_TOTAL]
    n_items: Annotated[Count, N_SPECTRA]
    #: Blank spectra that the splitter counted. In chunks that refer to the source, the workers count them.
    n_blank: Count


class RunStarted(MessageData):
    """The split is done and workers process the run's chunks."""

    TYPE: ClassVar[str] = "prismline.run.started.v1"

    started_at: Timestamp


class RunDrained(MessageData):
    """The run is latched and all its chunks have ended."""

    TYPE: ClassVar[str] = "prismline.run.drained.v1"

    chunks_total: Annotated[Count, JOBS_TOTAL]
    chunks_completed: Annotated[Count, JOBS_COMPLETED]
    chunks_failed: Annotated[Count, JOBS_FAILED]
    failed_percent: Percent
    drained_at: Timestamp
    #: How often the run has drained, this time included.
    drains: Annotated[int, Field(ge=1)] = 1
    #: What the three numbers count.
    unit: Unit = "chunk"

    @property
    def key(self) -> tuple[str, ...]:
        """Distinguishes this drain from earlier drains of the run in the envelope's id."""
        return () if self.drains == 1 else (str(self.drains),)

    @classmethod
    def of(cls, run: RunItem) -> Self:
        """The event of a drained run."""
        total = run.chunks_total or 0
        return cls(
            run_id=run.run_id,
            chunks_total=total,
            chunks_completed=run.chunks_completed,
            chunks_failed=run.chunks_failed,
            failed_percent=100 * run.chunks_failed / total if total else 0.0,
            drained_at=run.drained_at or "",
            drains=max(1, run.drains),
            unit=run.unit,
        )


class RunRecovered(MessageData):
    """A FAILED chunk of a drained run was completed late. The counts are the current ones."""

    TYPE: ClassVar[str] = "prismline.run.recovered.v1"

    chunk_id: ChunkId
    chunks_total: Annotated[Count, JOBS_TOTAL]
    chunks_completed: Annotated[Count, JOBS_COMPLETED]
    chunks_failed: Annotated[Count, JOBS_FAILED]
    failed_percent: Percent


class RunTasksRecovered(MessageData):
    """FAILED tasks of a drained run were completed late. The counts are the current ones."""

    TYPE: ClassVar[str] = "prismline.run.tasks.recovered.v1"

    task_ids: Annotated[list[TaskId], Field(min_length=1, max_length=MAX_TASKS_PER_MESSAGE)]
    tasks_total: Count
    tasks_completed: Count
    tasks_failed: Count
    failed_percent: Percent

    @classmethod
    def of(cls, run: RunItem, task_ids: list[str]) -> Self:
        """The event of tasks that were completed late."""
        drained = RunDrained.of(run)
        return cls(
            run_id=run.run_id,
            task_ids=task_ids,
            tasks_total=drained.chunks_total,
            tasks_completed=drained.chunks_completed,
            tasks_failed=drained.chunks_failed,
            failed_percent=drained.failed_percent,
        )


class RunCompleted(MessageData):
    """The run ended as completed."""

    TYPE: ClassVar[str] = "prismline.run.completed.v1"

    completed_at: Timestamp


class RunFailed(MessageData):
    """The run ended as failed. `error` says why in one sentence."""

    TYPE: ClassVar[str] = "prismline.run.failed.v1"

    completed_at: Timestamp
    error: str


class RunCancelled(MessageData):
    """The run ended as cancelled. Chunks that had not started will not start."""

    TYPE: ClassVar[str] = "prismline.run.cancelled.v1"

    completed_at: Timestamp


class RunCancelRequested(MessageData):
    """A user asked to cancel the run."""

    TYPE: ClassVar[str] = "prismline.run.cancel.requested.v1"

    requested_at: Timestamp
    #: `uncancelled_at` of the run as the user saw it. Without it, a run that continued after an earlier cancellation is
    #: not cancelled again.
    uncancelled_at: Timestamp | None = None


class RunCleanupRequested(MessageData):
    """The run is about to fail. Services that hold something for it release it."""

    TYPE: ClassVar[str] = "prismline.run.cleanup.requested.v1"


class RunCheckRequested(MessageData):
    """The sweeper found a run whose end is not recorded. The status service checks it."""

    TYPE: ClassVar[str] = "prismline.run.check.requested.v1"


class ChunkCompleted(MessageData):
    """A chunk is COMPLETED and its whole output is stored."""

    TYPE: ClassVar[str] = "prismline.chunk.completed.v1"

    survey: Survey
    chunk_id: ChunkId
    output_key: Key
    n_items: Count
    n_timed_out: Count = 0
    duration_ms: Count


class ChunkFailed(MessageData):
    """A chunk is FAILED, because of a permanent error or because it was given up."""

    TYPE: ClassVar[str] = "prismline.chunk.failed.v1"

    survey: Survey | None = None
    chunk_id: ChunkId
    error: str


class ExportRequested(MessageData):
    """A user asked for all results of a run in one object."""

    TYPE: ClassVar[str] = "prismline.export.requested.v1"

    export_id: RunId
    tenant: Tenant | None = None
    requested_by: Name | None = None
    #: Why the request was given up, in one sentence: the exporter records that the export failed.
    given_up: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None


class ExportCompleted(MessageData):
    """An export is whole, or `error` says why there will be none."""

    TYPE: ClassVar[str] = "prismline.export.completed.v1"

    export_id: RunId
    key: Key | None = None
    bytes: Count | None = None
    #: Results in the export.
    entries: Count | None = None
    error: str | None = None


class JobDeleteRequested(MessageData):
    """A user asked to delete a job: its runs are cancelled, then its items and objects are removed."""

    TYPE: ClassVar[str] = "prismline.job.delete.requested.v1"

    job_id: Name
    #: All runs of the job. `run_id` is the latest of them.
    run_ids: list[RunId]
    tenant: Tenant


def ending_of(chunk: ChunkItem, survey: str) -> ChunkCompleted | ChunkFailed:
    """The event of a chunk that has ended."""
    if chunk.state is ChunkStatus.FAILED:
        error = chunk.error or "The error is unknown."
        return ChunkFailed(run_id=chunk.run_id, survey=survey, chunk_id=chunk.chunk_id, error=error)
    assert chunk.output_key is not None, "a chunk is COMPLETED together with its output's key"
    return ChunkCompleted(
        run_id=chunk.run_id,
        survey=survey,
        chunk_id=chunk.chunk_id,
        output_key=chunk.output_key,
        n_items=chunk.n_items,
        n_timed_out=chunk.n_timed_out,
        duration_ms=chunk.duration_ms or 0,
    )


#: The models of all events, by subject.
EVENTS: tuple[type[MessageData | DeadlettersRecover | DeadletterArchived | DeadlettersRecovered], ...] = (
    RunSubmitted,
    RunSplitCompleted,
    RunStarted,
    RunDrained,
    RunRecovered,
    RunTasksRecovered,
    RunCompleted,
    RunFailed,
    RunCancelled,
    RunCancelRequested,
    RunCleanupRequested,
    RunCheckRequested,
    ChunkCompleted,
    ChunkFailed,
    ExportRequested,
    ExportCompleted,
    JobDeleteRequested,
    DeadletterArchived,
    DeadlettersRecoverRequested,
    DeadlettersRecovered,
)
