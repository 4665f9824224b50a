"""The items of the tables, as other services may read them. Only the owner of a table writes them.

Attribute names and key schema of the ledger are those of the reference pipeline's run table (`PK`, `SK`, `GSI1`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, RunId, Survey, Timestamp

#: Sort key of a run item.
RUN_SK = "RUN"
#: `GSI2_PK` of the runs that the sweeper still has to look at.
OPEN_RUNS: Literal["OPEN"] = "OPEN"
#: Sort key of the item that says that a run was stopped before the splitter had opened it.
STOP_SK = "STOP"
#: Prefix of the sort key of a chunk item, before the chunk id.
CHUNK_SK_PREFIX = "CHUNK#"
#: Longest `error` and `last_error` of a chunk item, in UTF-8 bytes.
MAX_CHUNK_ERROR_BYTES = 1024
#: Longest `summary` of a chunk item, in UTF-8 bytes.
MAX_SUMMARY_BYTES = 1024
#: Longest `error_message` of a workflow-state item, in characters.
MAX_RUN_ERROR_CHARS = 2000


class ChunkStatus(StrEnum):
    """Where a chunk stands."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether the chunk counts in `jobs_completed` or `jobs_failed`."""
        return self in (ChunkStatus.COMPLETED, ChunkStatus.FAILED)


class RunItem(Contract):
    """A run's item in the ledger."""

    PK: RunId
    SK: Literal["RUN"] = "RUN"
    GSI1_PK: Survey
    GSI1_SK: Timestamp
    #: Present until the sweeper has seen the run's end; the key of a sparse index.
    GSI2_PK: Literal["OPEN"] | None = None
    #: When the run was last swept; before that, when it was created.
    GSI2_SK: Timestamp | None = None
    survey: Survey
    workload: Name
    job_id: Name
    created_at: Timestamp
    shard_count: Annotated[int, Field(ge=1)] = 1
    #: Chunks to process; absent until the splitter has written all of their items.
    jobs_total: Count | None = None
    jobs_completed: Count = 0
    jobs_failed: Count = 0
    n_spectra: Count | None = None
    n_chunks: Count | None = None
    #: Spectra without a single valid channel.
    n_blank: Count | None = None
    #: Spectra that wait for the slow lane.
    n_timed_out: Count = 0
    #: Spectra that the slow lane gave up: their rows stay timed out.
    n_refit_failed: Count = 0
    #: JSON of the parameters that were given.
    params: str | None = None
    #: JSON of what the first delivery pinned: the version of the source, and how it is cut.
    plan: str | None = None
    traceparent: str | None = None
    trace_id: str | None = None
    latched_at: Timestamp | None = None
    drained_at: Timestamp | None = None
    #: How often the run has drained: a recovery reopens chunks, and the run drains once more.
    drains: Count = 0
    #: Since then what is left of the run is skipped, because somebody cancelled it or because it failed.
    cancelled_at: Timestamp | None = None
    stop_reason: Literal["cancelled", "failed"] | None = None
    #: When a recovery last had a run go on that had failed. Its state machine has ended and fails it no more.
    resumed_at: Timestamp | None = None
    #: When the status service had written and announced the terminal status of this drain or stop, and which.
    ended_at: Timestamp | None = None
    ended_status: str | None = None
    #: When the sweeper last asked the status service to look at the run.
    checked_at: Timestamp | None = None
    #: The manifest that the run was split from, and the token of the task that waits for the split, to ask again.
    manifest_key: Key | None = None
    split_token: str | None = None
    #: When the sweeper last asked for the split again, and how often it has.
    split_sent_at: Timestamp | None = None
    split_resends: Count = 0

    @property
    def run_id(self) -> str:
        return self.PK

    @property
    def terminal_chunks(self) -> int:
        """Chunks that have ended, either way."""
        return self.jobs_completed + self.jobs_failed

    @property
    def all_terminal(self) -> bool:
        """Whether the total is final and every chunk has ended."""
        return self.latched_at is not None and self.terminal_chunks >= (self.jobs_total or 0)


class ChunkItem(Contract):
    """A chunk's item in the ledger."""

    PK: RunId
    SK: Annotated[str, StringConstraints(pattern=r"^CHUNK#chunk-[0-9]{7,}$")]
    status: Literal["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED"]
    chunk_key: Key
    n_spectra: Count
    n_items: Count
    created_at: Timestamp
    #: When the first attempt began, and the latest one.
    first_started_at: Timestamp | None = None
    started_at: Timestamp | None = None
    #: When the latest attempt that ended with an error did.
    attempt_ended_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    duration_ms: Count | None = None
    output_key: Key | None = None
    #: What the output says, in short, where the workload has something to say.
    summary: str | None = None
    #: Why the chunk failed.
    error: str | None = None
    #: Why its latest attempt did not end it.
    last_error: str | None = None
    attempts: Count = 0
    #: Attempts that ended because something that the work depends on did not answer.
    interruptions: Count = 0
    deferrals: Count = 0
    #: When its message was last put off because a resource was down.
    deferred_at: Timestamp | None = None
    #: When the sweeper last sent its message again, and how often it has.
    sent_at: Timestamp | None = None
    resends: Count = 0
    n_timed_out: Count = 0
    #: Items that the slow lane gave up, and why.
    n_refit_failed: Count = 0
    refit_error: str | None = None
    #: When the sweeper last sent the message to the slow lane again.
    refit_sent_at: Timestamp | None = None
    #: The recovery that last reopened the chunk.
    recovery: Name | None = None
    #: The sweeper gave the chunk up and has not said so yet.
    unsaid: bool = False

    @property
    def run_id(self) -> str:
        return self.PK

    @property
    def chunk_id(self) -> ChunkId:
        return self.SK.removeprefix(CHUNK_SK_PREFIX)

    @property
    def state(self) -> ChunkStatus:
        return ChunkStatus(self.status)


class WorkflowStateItem(Contract):
    """A run's item in the status service's table: the status that the outside world sees."""

    run_id: RunId
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    updated_at: Timestamp
    created_at: Timestamp | None = None
    job_id: Name | None = None
    survey: Survey | None = None
    workload: Name | None = None
    execution_arn: str | None = None
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    ecs_task_arn: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    error_message: Annotated[str, Field(max_length=MAX_RUN_ERROR_CHARS)] | None = None
