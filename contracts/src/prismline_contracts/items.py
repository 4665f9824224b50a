"""The items of the tables. Any service may read them; only the owner of a table writes them.

The ledger has the attribute names and the key schema of the reference pipeline's run table (`PK`, `SK`, `GSI1`). Where
that table says jobs and spectra, Python says chunks and items: the table's names are aliases of the fields.
"""

from __future__ import annotations

import json
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, Open, RunId, Survey, Tenant, Timestamp
from prismline_contracts.references import CubeReference

#: Sort key of a run item.
RUN_SK = "RUN"
#: `GSI2_PK` of all runs that the sweeper still looks at.
OPEN_RUNS: Literal["OPEN"] = "OPEN"
#: Sort key of the item that records that a run was stopped before the splitter opened it.
STOP_SK = "STOP"
#: Prefix of the sort key of the item of a repeated error. The message type follows, and the chunk, task or export.
ERROR_SK_PREFIX = "ERROR#"
#: A run shows an unexpected error when the same message has raised this many unexpected errors in a row.
REPEATED_FROM = 3
#: Prefix of the sort key of a chunk item. The chunk id follows.
CHUNK_SK_PREFIX = "CHUNK#"
#: Longest `error` and `last_error` of a chunk item, in UTF-8 bytes.
MAX_CHUNK_ERROR_BYTES = 1024
#: How many of its latest errors a chunk or a task keeps, and the longest text of one, in UTF-8 bytes.
MAX_KEPT_ERRORS, MAX_KEPT_ERROR_BYTES = 20, 240
#: Priority of a run that names none. 1 is the lowest, 9 the highest.
DEFAULT_PRIORITY = 5
#: Longest `summary` of a chunk item, in UTF-8 bytes.
MAX_SUMMARY_BYTES = 1024
#: Longest `error_message` of a workflow-state item, in characters.
MAX_RUN_ERROR_CHARS = 2000

#: The names that the reference pipeline gives to the numbers of a run's chunks and items.
JOBS_TOTAL = Field(alias="jobs_total")
JOBS_COMPLETED = Field(alias="jobs_completed")
JOBS_FAILED = Field(alias="jobs_failed")
N_SPECTRA = Field(alias="n_spectra")


class ChunkStatus(StrEnum):
    """The status of a chunk."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether the chunk has ended, completed or failed."""
        return self in (ChunkStatus.COMPLETED, ChunkStatus.FAILED)


class NewerStatus(Enum):
    """Stands for a status that only a newer release knows. Services leave such a chunk or task as it is."""

    NEWER = "NEWER"

    @property
    def terminal(self) -> bool:
        """False: this release does not know whether it has ended, so it must not act as if it had."""
        return False


_KNOWN_STATUSES: dict[str, ChunkStatus] = {status.value: status for status in ChunkStatus}


def read_status(status: str) -> ChunkStatus | NewerStatus:
    """The status in an item of a chunk or task. The one place that decides what an unknown one means."""
    return _KNOWN_STATUSES.get(status, NewerStatus.NEWER)


#: A chunk's or task's status as its item holds it.
StoredStatus = Annotated[str, Open(*ChunkStatus)]
#: What a run consists of. A `chunk` has a message of its own. A `task` shares its message. Both have their own items.
Unit = Annotated[str, Open("chunk", "task")]


class AttemptError(Contract):
    """An attempt that ended without a result."""

    #: Its number, from 1.
    attempt: Count
    #: When it ended, and how long it took, if that is known.
    at: Timestamp
    duration_ms: Count | None = None
    error: str
    #: Whether a dependency did not answer, so that the attempt does not count.
    interrupted: bool = False
    #: The process that made it, if that is known.
    worker: Name | None = None


class RunItem(Contract):
    """The item of a run in the ledger."""

    model_config = ConfigDict(validate_by_name=True)

    PK: RunId
    SK: Literal["RUN"] = "RUN"
    GSI1_PK: Survey
    GSI1_SK: Timestamp
    #: Key of a sparse index. Present until the sweeper closes the run.
    GSI2_PK: Literal["OPEN"] | None = None
    #: When the run was last swept, or created.
    GSI2_SK: Timestamp | None = None
    survey: Survey
    workload: Name
    job_id: Name
    created_at: Timestamp
    #: Who submitted the job over HTTP. Absent: it was submitted by a manifest in the bucket.
    tenant: Tenant | None = None
    #: What the run consists of: the items that are counted below.
    unit: Unit = "chunk"
    #: Shards that the counters are divided into. With more than one, the counters below are set when the run drains;
    #: until then the shard items hold them.
    shard_count: Annotated[int, Field(ge=1)] = 1
    #: How often a late success or a recovery changed something that had ended. Only counted with several shards.
    moves: Count = 0
    #: Chunks, or tasks, to process; absent until the splitter has written all of their items.
    chunks_total: Annotated[Count | None, JOBS_TOTAL] = None
    chunks_completed: Annotated[Count, JOBS_COMPLETED] = 0
    chunks_failed: Annotated[Count, JOBS_FAILED] = 0
    n_items: Annotated[Count | None, N_SPECTRA] = None
    n_chunks: Count | None = None
    #: Items that hold no data. In a cube, these are the spectra without any valid channel. If chunks refer to the
    #: source, only completed chunks are counted.
    n_blank: Count | None = None
    #: Items that wait for the slow lane.
    n_timed_out: Count = 0
    #: Items that the slow lane gave up. Their rows stay timed out.
    n_refit_failed: Count = 0
    #: Costs of the chunks or tasks that have ended: the duration of all attempts, the number of attempts, and the bytes
    #: of the outputs. They only grow. Absent: an older release ended them, or none has ended. With several shards, the
    #: shard items hold them until the run drains.
    worked_ms: Count | None = None
    n_attempts: Count | None = None
    n_bytes: Count | None = None
    #: Digest of the code that the run's tasks are processed with. Absent: its workload is a part of the services.
    code: Name | None = None
    #: Parameters in force, defaults included, as JSON: for people to read.
    params: str | None = None
    #: Parameters that were given, as JSON: for messages. An older worker does not know a new parameter, but it can
    #: process messages that do not carry it.
    params_given: str | None = None
    #: What the first delivery of `run.split` fixed, as JSON: the version of the source, and its division into chunks.
    plan: str | None = None
    traceparent: str | None = None
    trace_id: str | None = None
    latched_at: Timestamp | None = None
    drained_at: Timestamp | None = None
    #: How often the run has drained. A recovery reopens chunks, and then the run drains once more.
    drains: Count = 0
    #: When the run was stopped. Workers skip the rest of its chunks.
    cancelled_at: Timestamp | None = None
    #: Why it was stopped.
    stop_reason: Annotated[str, Open("cancelled", "failed")] | None = None
    #: When the run was last resumed after it failed or was cancelled. The state machine of such a run has ended.
    resumed_at: Timestamp | None = None
    #: When a person last continued the run after it was cancelled. Only such a run may leave the status `cancelled`.
    uncancelled_at: Timestamp | None = None
    #: When the status service had written and announced the terminal status of the latest drain or stop.
    ended_at: Timestamp | None = None
    #: That terminal status.
    ended_status: str | None = None
    #: When the sweeper last asked the status service to check the run.
    checked_at: Timestamp | None = None
    #: The manifest of the run. The sweeper needs it to send `run.split` again.
    manifest_key: Key | None = None
    #: The token of the task that waits for the split.
    split_token: str | None = None
    #: When the sweeper last sent `run.split` again, and how often it has.
    split_sent_at: Timestamp | None = None
    split_resends: Count = 0
    #: How far the ingestion of a list of tasks has come, as JSON.
    checkpoint: str | None = None
    #: Rejected lines of the list: how many, and the key of the object that has the reasons.
    n_rejected: Count = 0
    rejects_key: Key | None = None
    #: How many tasks had ended when a sweep last saw progress, when that was, and how often it has sent the others
    #: again since.
    progress_ended: Count | None = None
    progress_at: Timestamp | None = None
    task_resends: Count = 0
    #: Full name of the run's own queue of tasks. Absent: its tasks are in the shared queue.
    task_queue: Name | None = None
    priority: Annotated[int, Field(ge=1, le=9)] = DEFAULT_PRIORITY
    #: Most chunks or tasks of the run that are processed at a time.
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    #: The run is stopped at this moment if it has not ended.
    deadline_at: Timestamp | None = None
    #: The run is stopped when more chunks or tasks have failed: a percentage, as text, because DynamoDB's client takes
    #: no float, and a number. Absent: no such limit.
    tolerated_failure_percent: str | None = None
    tolerated_failures: Count | None = None
    #: What the run's work waited for when a worker last could not begin it, and when that was.
    waiting_for: str | None = None
    waiting_at: Timestamp | None = None
    #: The `Finalization` of the run, as JSON. Absent: its workload has none.
    finalization: str | None = None

    @property
    def run_id(self) -> str:
        return self.PK

    @property
    def message_params(self) -> dict[str, Any]:
        """The parameters that the run's messages carry."""
        params: dict[str, Any] = json.loads(self.params_given or self.params or "{}")
        return params

    @property
    def terminal_chunks(self) -> int:
        """How many chunks have ended, completed or failed."""
        return self.chunks_completed + self.chunks_failed

    @property
    def all_terminal(self) -> bool:
        """Whether the total is final and all chunks have ended."""
        return self.latched_at is not None and self.terminal_chunks >= (self.chunks_total or 0)

    @property
    def goes_on_after_cancel(self) -> bool:
        """Whether a person continued the run after it was cancelled, and it was not stopped again."""
        return self.uncancelled_at is not None and self.cancelled_at is None


class ChunkItem(Contract):
    """The item of a chunk in the ledger."""

    model_config = ConfigDict(validate_by_name=True)

    PK: RunId
    SK: Annotated[str, StringConstraints(pattern=r"^CHUNK#chunk-[0-9]{7,}$")]
    status: StoredStatus
    #: The chunk's input. With `reference`, the key of the object that it refers to.
    chunk_key: Key
    #: `CubeReference` as JSON, if the chunk's input is a part of the source itself and not a copy.
    reference: str | None = None
    #: The shard whose item counts this chunk. Absent: the run item counts it.
    shard: Count | None = None
    #: The same number as `n_items`, for readers that know the reference pipeline's table.
    reference_n_items: Annotated[Count, N_SPECTRA]
    n_items: Count
    created_at: Timestamp
    #: When the first attempt began, and the latest one.
    first_started_at: Timestamp | None = None
    started_at: Timestamp | None = None
    #: The process that began the latest attempt: its name at the supervisor, its log stream, or its host and number.
    worker: Name | None = None
    #: When an attempt last ended with an error.
    attempt_ended_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    duration_ms: Count | None = None
    output_key: Key | None = None
    #: Length of the output, in bytes.
    n_bytes: Count | None = None
    #: A short summary of the output. Not every workload writes one.
    summary: str | None = None
    #: Why the chunk failed.
    error: str | None = None
    #: Why the latest attempt did not complete the chunk.
    last_error: str | None = None
    #: The latest attempts that ended without a result, the earliest first. At most MAX_KEPT_ERRORS.
    errors: list[AttemptError] = Field(default_factory=list)
    attempts: Count = 0
    #: Items that the latest attempt has processed, as its worker last reported. A short attempt reports nothing, and a
    #: completed chunk does not have the number.
    n_done: Count = 0
    #: Attempts that the run's costs include already, and the duration of the attempts that they do not include yet.
    charged_attempts: Count = 0
    uncharged_ms: Count = 0
    #: Attempts that ended because a dependency (AWS, the caption model) did not answer.
    interruptions: Count = 0
    #: How often the message was deferred because a resource was down.
    deferrals: Count = 0
    #: When the message was last deferred.
    deferred_at: Timestamp | None = None
    #: When the sweeper last sent the message again, and how often it has.
    sent_at: Timestamp | None = None
    resends: Count = 0
    #: Items without any data, as the worker counted them. The splitter counts those of copied inputs.
    n_blank: Count | None = None
    #: Items that wait for the slow lane.
    n_timed_out: Count = 0
    #: Items that the slow lane gave up, and why.
    n_refit_failed: Count = 0
    refit_error: str | None = None
    #: When the sweeper last sent `spectra.refit` again.
    refit_sent_at: Timestamp | None = None
    #: The recovery that last reopened the chunk.
    recovery: Name | None = None
    #: Whether the chunk's end may be unpublished while no message exists whose redelivery would publish it: the sweeper
    #: gave the chunk up, or a worker completed it after it had FAILED.
    announcement_pending: Annotated[bool, Field(alias="unsaid")] = False

    @property
    def run_id(self) -> str:
        return self.PK

    @property
    def chunk_id(self) -> ChunkId:
        return self.SK.removeprefix(CHUNK_SK_PREFIX)

    @property
    def state(self) -> ChunkStatus | NewerStatus:
        return read_status(self.status)

    @property
    def cube_reference(self) -> CubeReference | None:
        """The reference to the chunk's input; None if the input is a copy."""
        return None if self.reference is None else CubeReference.model_validate_json(self.reference)


class RepeatedErrorItem(Contract):
    """The item of a run's message that raised an error which its consumer did not expect."""

    PK: RunId
    SK: Annotated[str, StringConstraints(pattern=r"^ERROR#.+")]
    #: The service that raised the latest error, and the type of the message that it handled.
    service: Name
    message_type: Name
    #: What the message is about, if it is not the whole run: a chunk, an export, or the first of its tasks.
    part: Name | None = None
    #: The type and text of the latest error.
    error: str
    #: How often in a row the message raised an unexpected error. An error of a dependency does not count.
    count: Annotated[int, Field(ge=1)]
    #: When it raised the first of these errors, and the latest one.
    first_at: Timestamp
    last_at: Timestamp
    #: When the message succeeded or was given up. Absent: it is delivered again.
    over_at: Timestamp | None = None


class WorkflowStateItem(Contract):
    """The item of a run in the workflow-state table: the status that users see."""

    run_id: RunId
    status: Annotated[str, Open("pending", "running", "completed", "failed", "cancelled")]
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
