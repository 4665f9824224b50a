"""The bodies of requests and responses. The OpenAPI document is made from these models.

Requests refuse unknown fields, because people write them by hand. Responses leave out unknown values.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from prismline_contracts.base import ChunkId, Key, RunId, Submitted, Survey, Timestamp
from prismline_contracts.captions import GivenCaptionParams, GivenFrameWindow
from prismline_contracts.deadletters import MAX_RECOVERED_RECORDS, MAX_RETRIED_CHUNKS
from prismline_contracts.jobs import signing_key
from prismline_contracts.manifest import GivenFitParams
from prismline_contracts.tasks import MAX_INLINE_URLS, GivenUrlParams, TaskSource

#: Most tasks of one batch of an open job.
MAX_BATCH_TASKS = 1000
#: An upload's id.
UploadId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
#: A dead letter's key in the archive.
DeadLetterKey = Annotated[str, StringConstraints(pattern=r"^dead-letter-archive/(failed-)?sqs/", max_length=1024)]

#: A status in answers: in lower case, in which people and programs of the API know it. The ledger has upper case.
ShownStatus = Annotated[str, AfterValidator(str.lower)]

T = TypeVar("T")


class Request(Submitted):
    """Base of the bodies of requests."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Response(BaseModel):
    """Base of the bodies of responses."""

    model_config = ConfigDict(frozen=True)


# ---- requests


class WebhookTarget(Request):
    """The target to which the end of every run of the job is posted (Standard Webhooks)."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$", max_length=2048)]
    secret: Annotated[
        str | None,
        Field(
            description="Secret that signs the posts: `whsec_` and base64 of 24 to 96 bytes. Absent: the service makes"
            " and returns one.",
            examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        ),
    ] = None

    @field_validator("secret")
    @classmethod
    def _can_sign(cls, secret: str | None) -> str | None:
        if secret is not None:
            signing_key(secret)
        return secret


class JobOptions(Request):
    """Fields of every job."""

    name: Annotated[Survey, Field(description="The job's name. Runs and results are listed by it.")]
    max_concurrency: Annotated[
        int | None, Field(ge=1, le=100_000, description="Most tasks or chunks that are processed at a time.")
    ] = None
    tolerated_failure_percent: Annotated[
        float,
        Field(ge=0, le=100, description="The run completes if at most this percentage of its chunks or tasks fails."),
    ] = 0.0
    priority: Annotated[int | None, Field(ge=1, le=9, description="1 (lowest) to 9. Absent: 5.")] = None
    deadline_at: Annotated[
        Timestamp | None, Field(description="The run is stopped at this time if it has not ended.")
    ] = None
    webhook: WebhookTarget | None = None
    run_async: Annotated[bool, Field(alias="async", description="Answer 202 at once, even for a short list.")] = False


class UrlsJob(JobOptions):
    """URLs to fetch: an inline list, an uploaded list, or an open job that takes batches."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"workload": "urls", "name": "catalogue", "urls": ["https://example.org/a", "https://example.org/b"]},
                {"workload": "urls", "name": "catalogue", "upload": "0f3b5c0e9d3b6d1c5f8f6a512f5e4c1d"},
                {"workload": "urls", "name": "catalogue", "open": True, "max_concurrency": 64},
            ]
        }
    )

    workload: Literal["urls"]
    urls: Annotated[
        list[TaskSource] | None,
        Field(min_length=1, max_length=MAX_INLINE_URLS, description="The URLs, in the request."),
    ] = None
    upload: Annotated[UploadId | None, Field(description="The id of an uploaded list.")] = None
    open: Annotated[bool, Field(description="The job takes batches until it is closed.")] = False
    params: GivenUrlParams = GivenUrlParams()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        given = [name for name in ("urls", "upload") if getattr(self, name) is not None] + ["open"] * self.open
        if len(given) != 1:
            raise ValueError(f"give exactly one of urls, upload and open, not {' and '.join(given) or 'none'}")
        return self


class SpectraJob(JobOptions):
    """A spectral cube to decompose."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"workload": "spectra", "name": "grs", "cube_key": "cubes/grs/field.fits"}]}
    )

    workload: Literal["spectra"]
    cube_key: Annotated[Key | None, Field(description="The key of a cube in the bucket.")] = None
    upload: Annotated[UploadId | None, Field(description="The id of an uploaded cube.")] = None
    chunk_size: Annotated[int | None, Field(ge=1, le=1_000_000, description="Spectra in a chunk.")] = None
    params: GivenFitParams = GivenFitParams()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.cube_key is None) == (self.upload is None):
            raise ValueError("give either cube_key or upload")
        return self


class CaptionsJob(JobOptions):
    """Windows of frames of a recording to caption. The job's name is the id of the session."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "workload": "captions",
                    "name": "session-7",
                    "user_id": "u1",
                    "windows": [{"window_index": 0, "frame_count": 1, "frames": ["frames/session-7/0.png"]}],
                }
            ]
        }
    )

    workload: Literal["captions"]
    user_id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    windows: Annotated[list[GivenFrameWindow], Field(min_length=1, max_length=100_000)]
    params: GivenCaptionParams = GivenCaptionParams()


JobRequest = Annotated[UrlsJob | SpectraJob | CaptionsJob, Field(discriminator="workload")]


class UploadRequest(Request):
    """A file to upload: its length and its format. Both are part of the signature."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"format": "jsonl", "size_bytes": 104857600}]})

    format: Annotated[
        Literal["jsonl", "text", "csv", "fits"],
        Field(
            description="`jsonl`, `text` or `csv` for a list of URLs; `fits` for a cube: FITS, plain or compressed by"
            " gzip or fpack, or Zarr in a ZIP file."
        ),
    ]
    gzip: Annotated[bool, Field(description="Whether the file is compressed by gzip.")] = False
    size_bytes: Annotated[int, Field(ge=1, description="The exact length of the file.")]


class BatchRequest(Request):
    """Tasks for an open job."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"urls": ["https://example.org/c"]}]})

    urls: Annotated[list[TaskSource], Field(min_length=1, max_length=MAX_BATCH_TASKS)]


class RerunRequest(Request):
    """Which tasks or chunks of a job to run again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"only": "failed"}]})

    only: Literal["all", "failed"] = "all"
    run_id: Annotated[
        RunId | None,
        Field(description="The run whose tasks are run again. Absent: the latest for `failed`, the first for `all`."),
    ] = None


class RerunPreview(Response):
    """What a rerun would do."""

    run_id: Annotated[str, Field(description="The run whose tasks or chunks are run again.")]
    new_run: Annotated[bool, Field(description="Whether they get a new run. If not, they are tried again in this run.")]
    unit: Annotated[str, Field(description="`task` or `chunk`.")]
    count: Annotated[int | None, Field(description="How many are run again. Absent: the run was not opened yet.")] = (
        None
    )


class RecoverRequest(Request):
    """Which dead letters to send back."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": "7b0b3f0e-2f5e-5d0c-8c39-9a1f3c1f7a11", "retry": True}]}
    )

    run_id: Annotated[RunId, Field(description="Only dead letters of this run.")]
    dry_run: Annotated[bool, Field(description="Only count, and change nothing.")] = False
    retry: Annotated[
        bool, Field(description="Try all failed chunks or tasks again, with or without a record in the archive.")
    ] = False
    cancelled_at: Annotated[
        Timestamp | None,
        Field(
            description="With `retry`: continue the cancelled run that shows this `cancelled_at`. What has failed is"
            " not tried again."
        ),
    ] = None
    keys: Annotated[
        list[DeadLetterKey] | None,
        Field(
            min_length=1,
            max_length=MAX_RECOVERED_RECORDS,
            description="Only these dead letters, by the `key` in the list. Not with `retry`.",
        ),
    ] = None
    chunk_ids: Annotated[
        list[ChunkId] | None,
        Field(min_length=1, max_length=MAX_RETRIED_CHUNKS, description="With `retry`, only these chunks."),
    ] = None

    @model_validator(mode="after")
    def _chooses_once(self) -> Self:
        if self.retry and self.keys is not None:
            raise ValueError("with retry, give chunk_ids instead of keys")
        if not self.retry and self.chunk_ids is not None:
            raise ValueError("give chunk_ids only with retry")
        if self.cancelled_at is not None and (not self.retry or self.chunk_ids is not None):
            raise ValueError("give cancelled_at only with retry, and without chunk_ids")
        return self


# ---- responses


class Counts(Response):
    """The counts of a run. `total` is absent until it is final."""

    total: int | None = None
    completed: int
    failed: int


class Costs(Response):
    """The costs of the tasks or chunks that have ended, with all their attempts. They only grow."""

    worked_seconds: Annotated[float, Field(description="Total duration of the attempts.")]
    attempts: Annotated[int, Field(description="Attempts. Each is a request to the site, or a pass over a chunk.")]
    bytes: Annotated[int, Field(description="Total length of the outputs.")]


class RunProgress(Response):
    """The counts and the costs of a run."""

    counts: Counts | None = None
    costs: Costs | None = None


COSTS = Field(description="Absent until something has ended, and for runs of older releases.")


class RepeatedErrorView(Response):
    """An unexpected error that a message of the run has raised three times in a row or more."""

    service: Annotated[str, Field(description="Who raised it.", examples=["splitter"])]
    message_type: Annotated[str, Field(examples=["prismline.run.split.v1"])]
    part: Annotated[
        str | None, Field(description="The chunk, the export, or the first of the tasks that the message is about.")
    ] = None
    error: Annotated[str, Field(description="Type and text of the latest error.")]
    count: Annotated[int, Field(description="How often in a row the message raised an unexpected error.")]
    first_at: str
    last_at: str
    others: Annotated[int, Field(description="Other messages of the run that are in the same position.")]
    sentence: Annotated[str, Field(description="All of this for a person.")]


class ActionView(Response):
    """Something that may be done to a run."""

    name: Annotated[
        str, Field(description="`cancel`, `continue`, `retry`, `rerun_failed` or `export`.", examples=["cancel"])
    ]
    allowed: Annotated[bool, Field(description="Whether it is possible now.")]
    reason: Annotated[str | None, Field(description="Why not, and what to do instead.")] = None


class RunView(Response):
    """One execution of a job."""

    run_id: str
    job_id: str
    name: str
    workload: str
    status: Annotated[
        str, Field(description="`pending`, `running`, `completed`, `failed` or `cancelled`.", examples=["running"])
    ]
    created_at: str
    #: The run consists of tasks or of chunks, which are listed under the path `tasks` or `chunks`.
    unit: Annotated[str, Field(description="`task` or `chunk`.")]
    counts: Annotated[Counts | None, Field(description="Absent until the run was opened.")] = None
    costs: Annotated[Costs | None, COSTS] = None
    n_rejected: Annotated[int | None, Field(description="Lines of the list that are not URLs.")] = None
    rejects_url: Annotated[str | None, Field(description="A link to the rejected lines.")] = None
    started_at: str | None = None
    completed_at: str | None = None
    error: Annotated[str | None, Field(description="Why the run failed.")] = None
    waiting_for: Annotated[
        str | None, Field(description="What the run waits for now, such as a free slot of `max_concurrency`.")
    ] = None
    repeated_error: Annotated[
        RepeatedErrorView | None,
        Field(description="Why the run makes no progress, although it has not failed: a message is being retried."),
    ] = None
    going_on: Annotated[
        str | None,
        Field(description="Why work continues although the run has failed or was cancelled. Absent: nothing does."),
    ] = None
    cancelled_at: Annotated[
        str | None, Field(description="When the run was stopped. Absent: it was not, or it continues.")
    ] = None
    actions: Annotated[list[ActionView], Field(description="What may be done to the run now.")] = []
    priority: int | None = None
    max_concurrency: int | None = None
    deadline_at: str | None = None


class RunSummary(Response):
    """A run in a list."""

    run_id: str
    job_id: str
    name: str
    workload: str
    created_at: str
    status: Annotated[
        str, Field(description="`pending`, `running`, `completed`, `failed` or `cancelled`.", examples=["running"])
    ]
    unit: Literal["task", "chunk"]
    counts: Annotated[Counts | None, Field(description="Absent until the run was opened.")] = None
    n_items: Annotated[int | None, Field(description="Items in all chunks, such as spectra.")] = None
    costs: Annotated[Costs | None, COSTS] = None
    dead_letters: Annotated[
        int | None,
        Field(
            description="Its dead letters in the archive. Absent: not counted yet, or too many records since its start."
        ),
    ] = None
    started_at: str | None = None
    completed_at: str | None = None
    error: Annotated[str | None, Field(description="Why the run failed.")] = None


class JobSummary(Response):
    """A job in a list."""

    job_id: str
    name: str
    workload: str
    state: Annotated[str, Field(description="`open`, `closed` or `deleting`.", examples=["closed"])]
    created_at: str
    run_ids: Annotated[list[str], Field(description="The job's runs, the first one first.")]


class JobView(JobSummary):
    """A job and its latest run."""

    closed_at: str | None = None
    deleted_at: str | None = None
    n_tasks: Annotated[int | None, Field(description="Tasks that an open job has received.")] = None
    tolerated_failure_percent: float
    params: dict[str, Any]
    webhook_url: str | None = None
    webhook_secret: Annotated[
        str | None, Field(description="The secret that signs the posts. Only in the answer to the submission.")
    ] = None
    run: RunView
    status_url: Annotated[str, Field(description="Path of the latest run.", examples=["/v1/runs/7b0b3f0e"])]


class TaskResultView(Response):
    """The result of a fetch."""

    http_status: int
    content_type: str | None = None
    length: int
    sha256: str
    final_url: str
    headers: dict[str, str]


class TaskView(Response):
    """One task."""

    task_id: Annotated[str, Field(description="The task's address: the run's id, a dot, the task's own id.")]
    index: Annotated[int, Field(description="Its position in the list, from 0.")]
    url: str
    status: Annotated[
        ShownStatus, Field(description="`pending`, `in_progress`, `completed` or `failed`.", examples=["completed"])
    ]
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: int | None = None
    attempts: int
    not_before: Annotated[str | None, Field(description="No attempt begins before this time.")] = None
    error: Annotated[str | None, Field(description="Why the task failed.")] = None
    last_error: Annotated[str | None, Field(description="Why the latest attempt did not end the task.")] = None
    result: TaskResultView | None = None


class ChunkView(Response):
    """One chunk."""

    chunk_id: str
    status: Annotated[
        ShownStatus, Field(description="`pending`, `in_progress`, `completed` or `failed`.", examples=["completed"])
    ]
    n_items: int
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: int | None = None
    attempts: int
    n_done: Annotated[
        int, Field(description="Items that the latest attempt has done. A long attempt reports every five seconds.")
    ] = 0
    deferrals: int
    error: str | None = None
    last_error: str | None = None
    output_key: str | None = None


class Page(Response, Generic[T]):
    """A part of a list."""

    items: list[T]
    next_cursor: Annotated[
        str | None, Field(description="Give it as `cursor` to get the next part. Absent: this is the last part.")
    ] = None


class RunPage(Page[T], Generic[T]):
    """A part of the tasks or chunks of a run."""

    final: Annotated[
        bool,
        Field(
            description="Whether the run had all its tasks or chunks when the first part was read. If false, the list"
            " may lack some that were added later. None is shown twice."
        ),
    ]


class ResultLink(Response):
    """A link to the body of a task's result."""

    url: Annotated[str, Field(description="A presigned link. It needs no API key.")]
    expires_at: str
    http_status: int
    content_type: str | None = None
    length: int
    sha256: str


class Upload(Response):
    """How to upload a file: one request with exactly these headers and `size_bytes` bytes."""

    upload_id: str
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str]
    expires_at: str


class Accepted(Response):
    """A request that is carried out in the background."""

    requested: str
    status_url: str


class Batch(Response):
    """Tasks that an open job has accepted."""

    job_id: str
    run_id: str
    first_index: Annotated[int, Field(description="The index of the batch's first task.")]
    count: int
    n_tasks: Annotated[int, Field(description="Tasks that the job has now, this batch included.")]


class ExportView(Response):
    """An export of a run's results."""

    export_id: str
    run_id: str
    status: Annotated[
        ShownStatus, Field(description="`pending`, `running`, `completed` or `failed`.", examples=["running"])
    ]
    requested_at: str
    completed_at: str | None = None
    entries: int
    entries_total: int | None = None
    bytes: int | None = None
    error: str | None = None
    url: Annotated[str | None, Field(description="A presigned link to the finished export.")] = None
    expires_at: str | None = None


class DeadLetterView(Response):
    """A dead letter in the archive."""

    key: str
    day: Annotated[str, Field(description="The day of the archive, in UTC.", examples=["2026-03-01"])]
    message_id: str
    run_id: Annotated[str | None, Field(description="Absent: the message has no run, or cannot be read.")] = None
    name: Annotated[str | None, Field(description="The name of its job.")] = None
    chunk_id: str | None = None
    source_queue: str | None = None
    error: str | None = None
    receive_count: int | None = None
    archived_at: str | None = None
    recovery: Annotated[str | None, Field(description="The latest recovery that handled it.")] = None
    recovery_failed: Annotated[bool, Field(description="Whether a recovery could not send it, or it failed again.")]


class DeadLetterRecordView(DeadLetterView):
    """A dead letter and its record."""

    record: Annotated[dict[str, Any], Field(description="The record in the archive, with the message as `body`.")]


class RecoveryView(Response):
    """A recovery of dead letters, with its progress."""

    operation_id: str
    run_id: str
    status: Annotated[ShownStatus, Field(description="`pending`, `running` or `completed`.", examples=["running"])]
    dry_run: bool
    n_records: int
    n_sent: int
    n_settled: int
    n_failed: int
    n_left: int
    n_recovered: int


class Health(Response):
    """The service runs."""

    status: Literal["ok"] = "ok"
