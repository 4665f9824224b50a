"""Commands: messages that one service sends to a queue that another service owns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar, TypeVar

from pydantic import Field, JsonValue

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, Open, RunId, Survey, Timestamp
from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.envelope import MessageData
from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.manifest import RefitParams
from prismline_contracts.pools import pool_of, pool_queue
from prismline_contracts.references import CubeReference
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, TaskId, shard_of


class Queue(StrEnum):
    """Short names of all queues: those for commands, and those that subscribe to events."""

    SPLIT = "split"
    CHUNKS = "chunks"
    TASKS = "tasks"
    REFITS = "refits"
    STATUS = "status"
    RUNS = "runs"
    SWEEPS = "sweeps"
    RECOVERIES = "recoveries"
    ALERTS = "alerts"
    EXPORTS = "exports"
    WEBHOOKS = "webhooks"


def queue_name(environment: str, queue: str) -> str:
    """The full name of a queue, e.g. `prismline-dev-chunks`."""
    return f"prismline-{environment}-{queue}"


#: Tag of a run's own queue. Its value is the run's id.
RUN_QUEUE_TAG = "prismline:run_id"
#: Longest name of an SQS queue, in characters.
MAX_QUEUE_NAME = 80


def run_queue_prefix(environment: str) -> str:
    """Prefix of the names of all queues that belong to one run."""
    return f"prismline-{environment}-tasks-"


def run_queue_name(environment: str, run_id: str) -> str:
    """The full name of a run's own queue of tasks. A run id that is too long for a queue name is hashed."""
    name = run_queue_prefix(environment) + run_id
    if len(name) <= MAX_QUEUE_NAME:
        return name
    return run_queue_prefix(environment) + hashlib.sha256(run_id.encode()).hexdigest()[:32]


def task_queue_of(run: RunItem, environment: str) -> str:
    """The short name of the queue that the run's tasks are sent to: its pool's, its own, or the shared one."""
    pool = pool_of(run.run_id)
    if pool is not None:
        return pool_queue(pool)
    return Queue.TASKS if run.task_queue is None else run.task_queue.removeprefix(queue_name(environment, ""))


def dead_letter_queue_name(name: str) -> str:
    """The full name of the dead-letter queue of the queue whose full name is `name`."""
    return f"{name}-dlq"


#: Stands for the dead-letter queues of all queues where a process names the queues that it polls.
EVERY_DEAD_LETTER_QUEUE = dead_letter_queue_name("*")


def polled_queues(names: Iterable[str]) -> list[str]:
    """The short names of the queues that a process polls which names `names`."""
    every = [dead_letter_queue_name(queue) for queue in Queue]
    return [queue for name in names for queue in (every if name == EVERY_DEAD_LETTER_QUEUE else [name])]


class RunSplit(MessageData):
    """Split the source of a run into chunks. To the splitter."""

    TYPE: ClassVar[str] = "prismline.run.split.v1"

    job_id: Name
    bucket: Name
    manifest_key: Key


class ChunkProcess(MessageData):
    """Process one chunk. To the worker."""

    TYPE: ClassVar[str] = "prismline.chunk.process.v1"

    job_id: Name
    survey: Survey
    workload: Name
    chunk_id: ChunkId
    n_items: Annotated[int, Field(ge=1)]
    bucket: Name
    #: The chunk's input. With `reference`, the key of the object that it refers to.
    chunk_key: Key
    #: Where the chunk's spectra are. Absent: in the object under `chunk_key`, which the splitter wrote. Present only in
    #: `chunk.process.v2`, and in messages of contracts 1.1.0.
    reference: CubeReference | None = None
    #: Parameters of the workload. Only the workload reads them.
    params: dict[str, JsonValue]
    #: How often the chunk has been dispatched, this time included. A redelivery by the queue is not a dispatch.
    attempt: Annotated[int, Field(ge=1)] = 1
    #: How often the chunk had been deferred before this dispatch.
    deferrals: Count = 0
    #: Id of the recovery that sent this message.
    recovery: Name | None = None
    #: Most chunks of the run that are processed at a time. Absent: no limit.
    max_concurrency: Annotated[int, Field(ge=1)] | None = None

    @staticmethod
    def of(chunk: ChunkItem, run: RunItem, bucket: str, *, attempt: int = 1) -> ChunkProcess:
        """The command for a chunk and its run, as the ledger has them."""
        command = ChunkProcess(
            run_id=run.run_id,
            job_id=run.job_id,
            survey=run.survey,
            workload=run.workload,
            chunk_id=chunk.chunk_id,
            n_items=chunk.n_items,
            bucket=bucket,
            chunk_key=chunk.chunk_key,
            params=run.message_params,
            attempt=attempt,
            deferrals=chunk.deferrals,
            max_concurrency=run.max_concurrency,
        )
        reference = chunk.cube_reference
        return command if reference is None else ReferencedChunkProcess(**{**dict(command), "reference": reference})


class ReferencedChunkProcess(ChunkProcess):
    """Process one chunk whose spectra are in the cube. To the worker.

    A message of its own, because a worker that ignored `reference` would take the cube for the chunk's file and fail
    the chunk.
    """

    TYPE: ClassVar[str] = "prismline.chunk.process.v2"

    #: Where the chunk's spectra are.
    reference: CubeReference


class JobIngest(MessageData):
    """Start a run whose manifest lies under `jobs/`. To the splitter, which handles it as a new manifest."""

    TYPE: ClassVar[str] = "prismline.job.ingest.v1"

    job_id: Name
    bucket: Name
    manifest_key: Key
    #: Whether the api sent this before it wrote the job's items, in case the request that submits the job is cut off.
    #: If the splitter finds no items, there is no such job, and it removes the manifest.
    in_advance: bool = False


class TasksProcess(MessageData):
    """Process some tasks of one shard. To the worker, through the shared queue of tasks or the run's own.

    The ledger has the tasks themselves. A worker skips tasks that have ended, and sends those that it could not end in
    a new message.
    """

    TYPE: ClassVar[str] = "prismline.tasks.process.v1"

    job_id: Name
    workload: Name
    survey: Survey
    bucket: Name
    shard: Count = 0
    shard_count: Annotated[int, Field(ge=1)] = 1
    task_ids: Annotated[list[TaskId], Field(min_length=1, max_length=MAX_TASKS_PER_MESSAGE)]
    #: Parameters of the workload. Only the workload reads them.
    params: dict[str, JsonValue]
    #: How often these tasks have been dispatched, this time included. A redelivery by the queue is not a dispatch.
    attempt: Annotated[int, Field(ge=1)] = 1
    #: How often the message was put off before this dispatch because no lease was free or a dependency was down.
    deferrals: Count = 0
    #: Id of the recovery that sent this message.
    recovery: Name | None = None
    #: Most tasks of the run that are processed at a time. Absent: no limit.
    max_concurrency: Annotated[int, Field(ge=1)] | None = None

    @staticmethod
    def of(
        run: RunItem, task_ids: list[str], bucket: str, *, recovery: str | None = None, attempt: int = 1
    ) -> TasksProcess:
        """The command for tasks of one shard of a run."""
        model = TasksProcess if run.code is None else FunctionTasksProcess
        return model(
            run_id=run.run_id,
            job_id=run.job_id,
            workload=run.workload,
            survey=run.survey,
            bucket=bucket,
            shard=shard_of(task_ids[0], run.shard_count),
            shard_count=run.shard_count,
            task_ids=task_ids,
            params=run.message_params,
            attempt=attempt,
            recovery=recovery,
            max_concurrency=run.max_concurrency,
        )


class FunctionTasksProcess(TasksProcess):
    """Process some tasks of a run whose workload is an author's function. To the worker.

    A message of its own, because a worker that knows no functions would fail the tasks. The item of the run says which
    code it is.
    """

    TYPE: ClassVar[str] = "prismline.tasks.process.v2"


class SpectraRefit(MessageData):
    """Fit the timed-out rows of a completed chunk again, without a time budget. To the worker's slow lane."""

    TYPE: ClassVar[str] = "prismline.spectra.refit.v1"

    survey: Survey
    chunk_id: ChunkId
    bucket: Name
    chunk_key: Key
    #: As in `ChunkProcess`: only in `spectra.refit.v2`, and in messages of contracts 1.1.0.
    reference: CubeReference | None = None
    output_key: Key
    params: RefitParams
    #: Indices of the rows to fit. Empty: all rows that are timed out in the output.
    rows: list[Count] = Field(default_factory=list)

    @staticmethod
    def of(command: ChunkProcess, params: RefitParams, output_key: str) -> SpectraRefit:
        """The command for all timed-out rows in the output of the chunk of `command`."""
        refit = SpectraRefit(
            run_id=command.run_id,
            survey=command.survey,
            chunk_id=command.chunk_id,
            bucket=command.bucket,
            chunk_key=command.chunk_key,
            output_key=output_key,
            params=params,
        )
        reference = command.reference
        return refit if reference is None else ReferencedSpectraRefit(**{**dict(refit), "reference": reference})


class ReferencedSpectraRefit(SpectraRefit):
    """Fit the timed-out rows of a completed chunk whose spectra are in the cube. To the worker's slow lane."""

    TYPE: ClassVar[str] = "prismline.spectra.refit.v2"

    #: Where the chunk's spectra are.
    reference: CubeReference


C = TypeVar("C", ChunkProcess, SpectraRefit)


def with_reference(command: C, chunk: ChunkItem) -> C:
    """The command, with the reference of the chunk's item if it has none: an older service may have resent it so."""
    if command.reference is not None or chunk.reference is None:
        return command
    return command.model_copy(update={"reference": chunk.cube_reference})


class RunStatus(StrEnum):
    """The status of a run as commands carry it. The workflow-state table stores it in lower case."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class StepFunctionsError(Contract):
    """An error in the form in which a `Catch` of a state machine passes it on."""

    Error: str | None = None
    Cause: str | None = None


class StatusUpdate(Contract):
    """Change the status of a run. To the status service, through its queue or as a direct call of a state machine."""

    TYPE: ClassVar[str] = "prismline.status.update.v1"

    job_id: RunId
    status: Annotated[str, Open(*RunStatus)]
    trace_id: Name | None = None
    execution_arn: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    ecs_task_arn: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    error: StepFunctionsError | str | None = None
    #: `drained`: answer the task token, with the run's counts, when the run has drained.
    wait_for: Annotated[str, Open("drained")] | None = None

    @property
    def run_id(self) -> str:
        """The run's id. The specification calls the key of the workflow-state table `job_id`."""
        return self.job_id


#: The models of all commands.
COMMANDS: tuple[
    type[RunSplit | JobIngest | ChunkProcess | TasksProcess | SpectraRefit | StatusUpdate | DeadlettersRecover], ...
] = (
    RunSplit,
    JobIngest,
    ChunkProcess,
    ReferencedChunkProcess,
    TasksProcess,
    FunctionTasksProcess,
    SpectraRefit,
    ReferencedSpectraRefit,
    StatusUpdate,
    DeadlettersRecover,
)
