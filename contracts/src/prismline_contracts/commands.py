"""Commands: what one service asks of another, sent to the queue that the other one owns."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from prismline_contracts.base import ChunkId, Contract, Count, Key, Name, RunId, Survey, Timestamp
from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.envelope import MessageData
from prismline_contracts.manifest import FitParams


class Queue(StrEnum):
    """The queues that carry commands and subscriptions. Their names are part of the contract."""

    SPLIT = "split"
    CHUNKS = "chunks"
    REFITS = "refits"
    STATUS = "status"
    RUNS = "runs"
    SWEEPS = "sweeps"
    RECOVERIES = "recoveries"
    ALERTS = "alerts"


def queue_name(environment: str, queue: str) -> str:
    """The full name of a queue, e.g. `prismline-dev-chunks`."""
    return f"prismline-{environment}-{queue}"


def dead_letter_queue_name(name: str) -> str:
    """The name of the dead-letter queue that belongs to the queue `name`."""
    return f"{name}-dlq"


class RunSplit(MessageData):
    """Split a run's source into chunks. To the splitter."""

    TYPE: ClassVar[str] = "prismline.run.split.v1"

    job_id: Name
    bucket: Name
    manifest_key: Key


class ChunkProcess(MessageData):
    """Work off one chunk. To the worker."""

    TYPE: ClassVar[str] = "prismline.chunk.process.v1"

    job_id: Name
    survey: Survey
    workload: Name
    chunk_id: ChunkId
    n_items: Annotated[int, Field(ge=1)]
    bucket: Name
    chunk_key: Key
    #: The workload's own.
    params: dict[str, JsonValue]
    #: How often the chunk has been dispatched, this time included; a redelivery by the queue is not a dispatch.
    attempt: Annotated[int, Field(ge=1)] = 1
    #: Deferrals that the chunk had before this dispatch.
    deferrals: Count = 0
    #: The recovery that sent this.
    recovery: Name | None = None


class SpectraRefit(MessageData):
    """Fit again, without a time budget, the rows of a finished chunk that ran out of it. To the worker's slow lane."""

    TYPE: ClassVar[str] = "prismline.spectra.refit.v1"

    survey: Survey
    chunk_id: ChunkId
    bucket: Name
    chunk_key: Key
    output_key: Key
    params: FitParams
    #: Indices of the rows to fit; none named: every row that the output says ran out of time.
    rows: list[Count] = Field(default_factory=list)


class RunStatus(StrEnum):
    """The status of a run, as commands carry it; the workflow-state table holds it in lower case."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class StepFunctionsError(Contract):
    """An error as a Catch of a state machine hands it on."""

    Error: str | None = None
    Cause: str | None = None


class StatusUpdate(Contract):
    """Change a run's status. To the status service; also its input when a state machine calls it directly."""

    TYPE: ClassVar[str] = "prismline.status.update.v1"

    job_id: RunId
    status: Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
    trace_id: Name | None = None
    execution_arn: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    ecs_task_arn: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    error: StepFunctionsError | str | None = None
    #: `drained`: the task token is answered once the run has drained, with its counts.
    wait_for: Literal["drained"] | None = None

    @property
    def run_id(self) -> str:
        """The run that `job_id` means: the source document calls the key of the workflow-state table so."""
        return self.job_id


#: Every command's model.
COMMANDS: tuple[type[RunSplit | ChunkProcess | SpectraRefit | StatusUpdate | DeadlettersRecover], ...] = (
    RunSplit,
    ChunkProcess,
    SpectraRefit,
    StatusUpdate,
    DeadlettersRecover,
)
