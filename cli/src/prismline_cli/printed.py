"""What each command of the command line prints with `--json`, and what it prints when it fails.

A command checks what it prints against these models. Readers ignore fields that they do not know: within a major
version fields are added, never removed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, create_model

from prismline_contracts.base import ChunkId, Contract, Count, RunId, Timestamp
from prismline_contracts.deadletters import DeadLetterRecord, RecoveryCounts
from prismline_contracts.items import N_SPECTRA, ChunkItem, Unit
from prismline_contracts.references import CubeReference
from prismline_contracts.tasks import TaskId, TaskItem


def _for_readers(schema: dict[str, Any]) -> None:
    """The writer is strict about its own fields; a reader has to accept others."""
    schema.pop("additionalProperties", None)


class Output(Contract):
    """Base of what commands print."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_for_readers)


class ErrorOutput(Output):
    """What any command prints when it fails."""

    #: A sentence for a person.
    error: str
    #: 1 chunks failed, 2 wrong usage, 3 Prismline cannot be reached, 70 a bug in the command, 130 interrupted.
    exit_code: int
    #: Ids that the user may have meant.
    candidates: list[str] = Field(default_factory=list)
    #: The run that continues, although the command has stopped watching it.
    run_id: RunId | None = None


class SubmittedOutput(Output):
    """What was submitted."""

    run_id: RunId


class RepeatedErrorOutput(Output):
    """An unexpected error that a message of the run has raised three times in a row or more."""

    #: Who raised the latest error, and the type of the message.
    service: str
    message_type: str
    #: The chunk, the export, or the first of the tasks that the message is about.
    part: str | None
    #: The type and text of the latest error.
    error: str
    #: How often in a row the message raised, and when it did so first and last.
    count: Count
    first_at: Timestamp
    last_at: Timestamp
    #: Other messages of the run that are in the same position.
    others: Count
    #: All of this as a sentence.
    sentence: str


class DollarsOutput(Output):
    """A cost on AWS in USD, computed, between two values."""

    least: float
    most: float
    #: Region and date of the list prices.
    prices: str


class SecondsOutput(Output):
    """A duration between two values."""

    least: float
    most: float


class EstimateOutput(Output):
    """What a run would cost, which was not submitted."""

    workload: str
    items: Count
    worked_seconds: SecondsOutput
    usd: DollarsOutput
    #: Where the range comes from, and what it leaves out.
    reasons: list[str]


class FinalizationOutput(Output):
    """The call of a function's `finalize` after all items of a run have ended."""

    status: str
    attempts: Count
    #: What it returned. Null: nothing yet, or a long value, to which `value_url` is a link.
    value: JsonValue
    value_url: str | None
    #: Why the latest attempt failed, and the class of the error.
    error: str | None
    error_type: str | None


class RunOutput(Output):
    """A run. Counts are null while they are unknown."""

    run_id: RunId
    job_id: str | None
    survey: str | None
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    #: Why the run failed or was cancelled. Null for every other status.
    error: str | None
    n_items: Annotated[Count | None, N_SPECTRA]
    n_blank: Count | None
    n_timed_out: Count | None
    n_refit_failed: Count | None
    chunks_total: Count | None
    chunks_completed: Count
    chunks_failed: Count
    #: What the three numbers count: chunks, or the tasks of a list.
    unit: Unit = "chunk"
    #: Rejected lines of the list.
    n_rejected: Count = 0
    #: Null: the function has no `finalize`, or the run was stopped.
    finalization: FinalizationOutput | None = None
    #: What the run's work waits for now, for example a free slot.
    waiting_for: str | None = None
    #: Why the run makes no progress, although it has not failed: a message is being retried.
    repeated_error: RepeatedErrorOutput | None = None
    #: What the work of the run costs on AWS. Null: nothing has ended, or the api is of an earlier release.
    usd: DollarsOutput | None = None
    #: All parameters in force.
    params: dict[str, Any]
    #: Sentences that a person who uses the results has to know.
    warnings: list[str]
    created_at: Timestamp | None
    started_at: Timestamp | None
    completed_at: Timestamp | None
    #: Time since the run was submitted; the duration of a run that has ended.
    seconds: float
    trace_id: str | None


_CHUNK_FIELDS: dict[str, Any] = {
    name: (field.annotation, field) for name, field in ChunkItem.model_fields.items() if name not in ("PK", "SK")
} | {"reference": (CubeReference | None, None)}
#: A chunk: the attributes of its item in the ledger, without those that are null.
ChunkOutput = create_model(
    "ChunkOutput", __base__=Output, run_id=(RunId, ...), chunk_id=(ChunkId, ...), **_CHUNK_FIELDS
)
#: A chunk that seems to be stuck, and why it seems so.
StuckChunkOutput = create_model("StuckChunkOutput", __base__=ChunkOutput, why=(str, ...))

_TASK_FIELDS: dict[str, Any] = {
    name: (field.annotation, field) for name, field in TaskItem.model_fields.items() if name not in ("PK", "SK")
}
#: A task: the attributes of its item in the ledger, without those that are null.
TaskOutput = create_model("TaskOutput", __base__=Output, run_id=(RunId, ...), task_id=(TaskId, ...), **_TASK_FIELDS)


class MappedOutput(RunOutput):
    """A run of a function that has ended, and the files with its rows."""

    files: list[str]


class FailuresOutput(Output):
    """Why a run failed, and its failed chunks, or the first of its failed tasks."""

    run_id: RunId
    error: str | None
    chunks: list[ChunkOutput]
    tasks: list[TaskOutput] = Field(default_factory=list)


class PrunedRunOutput(Output):
    """A run that was deleted, or that a dry run would delete: the number and the size of its objects."""

    run_id: RunId
    objects: Count
    bytes: Count


class PruneOutput(Output):
    """What was freed. In a dry run, what would be freed."""

    dry_run: bool
    bytes: Count
    runs: list[PrunedRunOutput]


class OpenOutput(Output):
    """Where the console is."""

    url: str
    #: Whether a browser was started.
    opened: bool


class CancelOutput(Output):
    """A run whose cancellation was requested."""

    run_id: RunId
    requested: Literal["cancel"]


class FilesOutput(Output):
    """Files that were written for a run."""

    run_id: RunId
    files: list[str]
    #: Warnings for readers of the results, one sentence each.
    warnings: Annotated[list[str], Field(default_factory=list)]


class RunCountsOutput(Output):
    """The numbers of a run's pixels by their result, and the number of its components."""

    fitted: Count
    empty: Count
    blank: Count
    timed_out: Count
    not_processed: Count
    components: Count


class SpreadOutput(Output):
    """The 16th, 50th and 84th percentile of `n` values; null if there are none."""

    n: Count
    p16: float | None
    median: float | None
    p84: float | None


class ComparedPixelsOutput(Output):
    """Pixels that both runs processed: all, those with equal components, those whose models differ beyond the noise."""

    compared: Count
    identical: Count
    distinct: Count


class PixelDifferenceOutput(Output):
    """A pixel that both runs processed. Pairs are (first run, second run)."""

    x: Count
    y: Count
    longitude: float | None
    latitude: float | None
    #: Root of the integral over the channels of the squared difference of the models, in units of the noise.
    difference: float | None
    components: list[Count]
    integrated: list[float]
    strongest: list[float | None]


class CompareOutput(Output):
    """Two runs of one cube. Pairs are (first run, second run)."""

    runs: list[RunId]
    #: The parameters that differ.
    params: dict[str, list[Any]]
    counts: list[RunCountsOutput]
    #: By quantity, with its unit.
    distributions: dict[str, list[SpreadOutput]]
    pixels: ComparedPixelsOutput
    most_different: list[PixelDifferenceOutput]
    picture: str


class DeadLetterOutput(Output):
    """A record of the archive, without its body."""

    eventdate: str | None
    key: str
    recovering: bool
    recovery_failed: bool
    body_bytes: Count
    #: The record's error, or that of its chunk.
    error: str | None
    execution: str | None
    time: str | None
    collection: str | None
    granules: list[str | None] | None
    stateMachine: str | None
    status: str | None
    md5OfBody: str | None
    eventSource: str | None
    awsRegion: str | None
    messageId: str | None
    run_id: str | None
    chunk_id: str | None
    source_queue: str | None
    receive_count: int | None
    archived_at: str | None
    recovery: str | None


class WholeDeadLetterOutput(DeadLetterRecord):
    """A record of the archive with its key."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_for_readers)

    key: str


class DeadLetterCountOutput(Output):
    """How many records have this day, queue and error."""

    eventdate: str | None
    source_queue: str | None
    error: str | None
    records: Count
    messages: Count
    runs: Count
    chunks: Count


class OperationRequestedOutput(Output):
    """A recovery that was requested."""

    operation_id: RunId


class OperationOutput(RecoveryCounts):
    """A recovery."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_for_readers)

    operation_id: RunId
    status: Literal["RUNNING", "COMPLETED"]
    prefix: str
    only_run: RunId | None
    dry_run: bool
    #: Whether the recovery retries the failed chunks in the ledger, and which of them. Null: all.
    retry: bool
    chunk_ids: list[ChunkId] | None
    #: When the run was cancelled, if the recovery continues a cancelled run.
    cancelled_at: Timestamp | None
    started_at: Timestamp
    finished_at: Timestamp | None


class MuteOutput(Output):
    """Whether alerts are muted, and until when in unix seconds."""

    muted: bool
    muted_until: int | None


class ApiDocument(RootModel[dict[str, Any]]):
    """A document of the HTTP API, whose OpenAPI document describes its fields."""


class ApiDocuments(RootModel[list[dict[str, Any]]]):
    """Items of a list of the HTTP API, whose OpenAPI document describes their fields."""


class ApiKeyOutput(Output):
    """A new API key. It is shown once."""

    key: str
    key_id: str
    tenant: str
    scopes: list[str]


class SegmentOutput(Output):
    """A window of a session."""

    window_index: Count
    status: Literal["pending", "complete", "failed"]
    caption: str | None
    reason: str | None
    attempts: Count
    deferrals: Count
    run_id: RunId


class ProcessOutput(Output):
    """A process of the system on this machine."""

    name: str
    service: str
    pid: int | None
    alive: bool
    url: str | None
    restarts: Count


class QueueOutput(Output):
    """A queue: messages waiting, being worked on, and in its dead-letter queue."""

    name: str
    visible: Count
    in_flight: Count
    dead_letters: Count


class StatusOutput(Output):
    """The system on this machine."""

    environment: str
    endpoint: str
    embedded: bool
    phase: Literal["starting", "ready", "failed"]
    processes: list[ProcessOutput]
    queues: list[QueueOutput]


class UpOutput(StatusOutput):
    """The system that was started."""

    #: Runs that had not ended when the system last stopped, and continue now.
    resumed: list[RunId]


class DownOutput(Output):
    """Whether the system was running, and was stopped."""

    stopped: bool


class LogLineOutput(Output):
    """A line that a process wrote, printed as one JSON document. Absent fields were not in the line."""

    process: str
    time: str | None = None
    level: str | None = None
    message: str
    run_id: str | None = None
    chunk_id: str | None = None
    #: All other fields of the line.
    fields: dict[str, Any] = Field(default_factory=dict)


class DemoOutput(Output):
    """Whether a demonstration succeeded, and its run."""

    ok: bool
    run_id: RunId | None


class GpuOutput(Output):
    """The GPU."""

    up: bool
    instance_id: str | None
    state: str | None
    endpoint: str | None
    healthy: bool


class InstancesOutput(Output):
    """Instances that were started or terminated."""

    instance_ids: list[str]


class ResourceChangeOutput(Output):
    """What a change set does to a resource, in CloudFormation's words."""

    action: str
    resource: str
    type: str
    #: Whether CloudFormation replaces the resource: `True`, `False` or `Conditional`.
    replacement: str


class StackChangesOutput(Output):
    """What a change set does to a stack."""

    stack: str
    new: bool
    changes: list[ResourceChangeOutput]


class ReleaseOutput(Output):
    """A service's release that is deployed."""

    service: str
    version: str
    #: URI of the image, with its digest.
    image: str
    deployed_at: Timestamp


class DeployOutput(Output):
    """What was planned, and the releases that were deployed. A mere plan deploys none."""

    environment: str
    stacks: list[StackChangesOutput]
    deployed: list[ReleaseOutput]


class PublishOutput(Output):
    """The image of a service that was built and pushed."""

    service: str
    version: str
    #: Its URI, with its digest.
    image: str


#: What each command prints, by the command as a user types it, with the option that has it print something else.
OUTPUTS: dict[str, type[BaseModel]] = {
    "submit": RootModel[SubmittedOutput | RunOutput],
    "submit --estimate": EstimateOutput,
    "map": RootModel[MappedOutput | SubmittedOutput],
    "map --estimate": EstimateOutput,
    "runs": RootModel[list[RunOutput]],
    "run": RunOutput,
    "watch": RunOutput,
    "cancel": CancelOutput,
    "open": OpenOutput,
    "prune": PruneOutput,
    "chunks": RootModel[list[ChunkOutput]],
    "tasks": RootModel[list[TaskOutput]],
    "stuck": RootModel[list[StuckChunkOutput]],
    "failures": FailuresOutput,
    "results": FilesOutput,
    "plot": FilesOutput,
    "compare": CompareOutput,
    "deadletters ls": RootModel[list[DeadLetterOutput]],
    "deadletters show": RootModel[list[WholeDeadLetterOutput]],
    "deadletters stats": RootModel[list[DeadLetterCountOutput]],
    "deadletters recover": RootModel[OperationOutput | OperationRequestedOutput],
    "deadletters operation": OperationOutput,
    "retry": RootModel[OperationOutput | OperationRequestedOutput],
    "alerts mute": MuteOutput,
    "alerts unmute": MuteOutput,
    "alerts status": MuteOutput,
    "alerts register-commands": RootModel[list[dict[str, Any]]],
    "caption": SubmittedOutput,
    "segments": RootModel[list[SegmentOutput]],
    "jobs submit": ApiDocument,
    "jobs show": ApiDocument,
    "jobs add": ApiDocument,
    "jobs close": ApiDocument,
    "jobs rerun": ApiDocument,
    "jobs delete": ApiDocument,
    "jobs run": ApiDocument,
    "jobs task": ApiDocument,
    "jobs result": ApiDocument,
    "jobs cancel": ApiDocument,
    "jobs export": ApiDocument,
    "jobs activity": ApiDocument,
    "jobs exported": ApiDocument,
    "jobs recover": ApiDocument,
    "jobs recovery": ApiDocument,
    "jobs ls": ApiDocuments,
    "jobs runs": ApiDocuments,
    "jobs tasks": ApiDocuments,
    "jobs chunks": ApiDocuments,
    "jobs deadletters": ApiDocuments,
    "jobs keys create": ApiKeyOutput,
    "up": UpOutput,
    "status": StatusOutput,
    "down": DownOutput,
    "deploy": DeployOutput,
    "publish": PublishOutput,
    "rollback": DeployOutput,
    "logs": LogLineOutput,
    "demo": DemoOutput,
    "demo-faults": DemoOutput,
    "demo-captions": DemoOutput,
    "demo-urls": DemoOutput,
    "gpu up": InstancesOutput,
    "gpu down": InstancesOutput,
    "gpu status": GpuOutput,
}


def output_schema_name(command: str) -> str:
    """Name of the schema of what `command` prints, e.g. `deadletters_ls.v1` for `deadletters ls`."""
    return re.sub(r"[^a-z]+", "_", command) + ".v1"


#: The models of everything that commands print, by schema name.
OUTPUT_MODELS: dict[str, type[BaseModel]] = {"error.v1": ErrorOutput} | {
    output_schema_name(command): model for command, model in OUTPUTS.items()
}


def checked_output(command: str, document: Any) -> None:
    """Raise `pydantic.ValidationError` if `document` is not what `command` prints. Unknown commands are not checked."""
    if command in OUTPUTS:
        OUTPUTS[command].model_validate(document)
