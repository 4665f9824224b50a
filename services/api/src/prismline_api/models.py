"""The bodies of requests and responses. The OpenAPI document is made from these models.

Requests refuse unknown fields, because people write them by hand. Responses leave out unknown values.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from prismline_contracts.base import ChunkId, Key, RunId, Submitted, Survey, Timestamp
from prismline_contracts.captions import GivenCaptionParams, GivenFrameWindow
from prismline_contracts.deadletters import MAX_RECOVERED_RECORDS, MAX_RETRIED_CHUNKS, RecordKey
from prismline_contracts.fit_costs import FitKind
from prismline_contracts.item_sources import GivenItemSource
from prismline_contracts.jobs import signing_key
from prismline_contracts.manifest import GivenFitParams
from prismline_contracts.pools import PoolName
from prismline_contracts.tasks import MAX_INLINE_URLS, GivenUrlParams, TaskSource
from prismline_contracts.workloads import (
    SERVICE_WORKLOADS,
    CodeDigest,
    FunctionName,
    LocalEnvironment,
    WorkloadLimits,
)

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
        Field(
            ge=0,
            le=100,
            description="The run completes if at most this percentage of its chunks or tasks fails. If it is not 0, the"
            " run is stopped as soon as more have failed. Beside tolerated_failures, 0 is no limit.",
        ),
    ] = 0.0
    tolerated_failures: Annotated[
        int | None,
        Field(
            ge=0,
            description="The run completes if at most so many of its chunks or tasks fail, and is stopped as soon as"
            " more have.",
        ),
    ] = None
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


class FunctionJob(JobOptions):
    """A registered function over a list of items. `GET /v1/workloads` says what each function takes."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "workload": "measure",
                    "name": "night-12",
                    "source": {"kind": "inline", "items": [{"path": "a.fits"}, {"path": "b.fits"}]},
                    "params": {"threshold": 4.0},
                }
            ]
        }
    )

    workload: Annotated[FunctionName, Field(description="The name of the function.")]
    code: Annotated[
        CodeDigest | None, Field(description="Digest of the code that the run keeps. Absent: the latest.")
    ] = None
    pool: Annotated[
        PoolName | None,
        Field(description="The pool whose workers call the function. Absent: the common workers."),
    ] = None
    source: Annotated[GivenItemSource, Field(description="Where the items come from.")]
    params: Annotated[dict[str, JsonValue], Field(default_factory=dict, description="Parameters of the function.")]


def _kind_of_job(given: Any) -> str | None:
    """The tag of a job: the name of a workload that is a part of the services, or `function`."""
    workload = given.get("workload") if isinstance(given, dict) else getattr(given, "workload", None)
    if not isinstance(workload, str):
        return None
    return workload if workload in SERVICE_WORKLOADS else "function"


AnyJob = UrlsJob | SpectraJob | CaptionsJob | FunctionJob
JobRequest = Annotated[
    Annotated[UrlsJob, Tag("urls")]
    | Annotated[SpectraJob, Tag("spectra")]
    | Annotated[CaptionsJob, Tag("captions")]
    | Annotated[FunctionJob, Tag("function")],
    Discriminator(_kind_of_job),
]


class RegistrationRequest(Request):
    """A function: what `python -m prismline.describe` prints, and on a laptop where the function is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "seeing:measure",
                    "code": "0" * 64,
                    "item": {"type": "object"},
                    "parameters": {"type": "object", "properties": {"threshold": {"type": "number"}}},
                    "limits": {
                        "timeout": 60,
                        "attempts": 3,
                        "batch": 20,
                        "memory": 2048,
                        "processes": 64,
                        "files": 1024,
                    },
                    "local": {"python": "/usr/bin/python3", "paths": ["/home/me/seeing"]},
                }
            ]
        }
    )

    name: Annotated[FunctionName, Field(description="`module:function`, or the name of an entry point.")]
    code: Annotated[CodeDigest, Field(description="Digest of the source files.")]
    item: Annotated[dict[str, JsonValue], Field(description="JSON Schema of an item.")]
    parameters: Annotated[dict[str, JsonValue], Field(description="JSON Schema of the parameters, an object.")]
    limits: Annotated[WorkloadLimits, Field(description="What one item may use.")]
    vectorized: Annotated[bool, Field(description="The function takes a list of items.")] = False
    finalize: Annotated[bool, Field(description="The function has a `finalize`.")] = False
    local: Annotated[
        LocalEnvironment | None,
        Field(
            description="The interpreter, and the folders of the modules. Absent: the function is installed where the"
            " workers run."
        ),
    ] = None

    @field_validator("name")
    @classmethod
    def _is_no_service(cls, name: str) -> str:
        if name in SERVICE_WORKLOADS:
            raise ValueError(f"{name} is a part of the services")
        return name


class EarlierCodeView(Response):
    """Earlier code of a function, and the runs that still need it."""

    code: str
    run_ids: list[str]


class WorkloadView(Response):
    """What a workload takes."""

    name: str
    kind: Annotated[str, Field(description="`service`: a part of Prismline. `function`: its author registered it.")]
    code: Annotated[str | None, Field(description="Digest of the latest code of a function.")] = None
    item: Annotated[dict[str, Any] | None, Field(description="JSON Schema of an item of a function.")] = None
    parameters: Annotated[dict[str, Any], Field(description="JSON Schema of the parameters.")]
    limits: Annotated[dict[str, float] | None, Field(description="What one item of a function may use.")] = None
    registered_at: str | None = None
    local: Annotated[
        LocalEnvironment | None, Field(description="Where the function is on the machine that registered it.")
    ] = None
    earlier: Annotated[
        list[EarlierCodeView] | None,
        Field(description="Earlier code of a function that your runs keep in use. Keep it until they have ended."),
    ] = None


class UploadRequest(Request):
    """A file to upload: its length and its format. Both are part of the signature."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"format": "jsonl", "size_bytes": 104857600}]})

    format: Annotated[
        Literal["jsonl", "text", "csv", "parquet", "fits"],
        Field(
            description="`jsonl`, `text` or `csv` for a list of URLs; `jsonl`, `csv` or `parquet` for the items of a"
            " function; `fits` for a cube: FITS, plain or compressed by"
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

    only: Annotated[
        Literal["all", "failed", "rest"],
        Field(description="`failed`: what failed; `rest`: what is not completed, also what a stopped run skipped."),
    ] = "all"
    run_id: Annotated[
        RunId | None,
        Field(description="The run whose tasks are run again. Absent: the latest for `failed`, the first for `all`."),
    ] = None
    code: Annotated[
        Literal["same", "latest"],
        Field(description="The code of a function: that of the run whose tasks are run again, or the latest."),
    ] = "same"


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

    run_id: Annotated[
        RunId | None, Field(description="Only dead letters of this run. Default: of all runs, with the scope `all`.")
    ] = None
    prefix: Annotated[
        RecordKey | None, Field(description="Only dead letters below this prefix of the archive. Not with `retry`.")
    ] = None
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
    code: Annotated[
        Literal["latest"] | None,
        Field(description="With `retry`: move the run of a function to the code that was registered last."),
    ] = None

    @model_validator(mode="after")
    def _chooses_once(self) -> Self:
        if self.run_id is None and (self.retry or self.keys is not None):
            raise ValueError("with retry or keys, give run_id")
        if self.prefix is not None and (self.retry or self.keys is not None):
            raise ValueError("give prefix without retry and keys")
        if self.retry and self.keys is not None:
            raise ValueError("with retry, give chunk_ids instead of keys")
        if not self.retry and self.chunk_ids is not None:
            raise ValueError("give chunk_ids only with retry")
        if self.cancelled_at is not None and (not self.retry or self.chunk_ids is not None):
            raise ValueError("give cancelled_at only with retry, and without chunk_ids")
        if self.code is not None and (not self.retry or self.cancelled_at is not None):
            raise ValueError("give code only with retry, and without cancelled_at")
        return self


class Asked(BaseModel):
    """What a run would work on whose cost is estimated: the parameters of the request."""

    model_config = ConfigDict(frozen=True)

    workload: Annotated[FunctionName, Field(description="`spectra`, `captions`, `urls` or a function.")]
    items: Annotated[int, Field(ge=1, le=10**12, description="Spectra, windows, URLs, or items of a function.")]
    channels: Annotated[int | None, Field(ge=1, le=10**6, description="Channels of a spectrum.")] = None
    fit: Annotated[FitKind, Field(description="How spectra are fitted.")] = "gaussline"
    chunk_size: Annotated[int | None, Field(ge=1, le=1_000_000, description="Spectra in a chunk.")] = None
    seconds: Annotated[float | None, Field(gt=0, le=86_400, description="Average duration of an item.")] = None
    timeout: Annotated[float | None, Field(gt=0, le=86_400, description="Longest duration of an item.")] = None


# ---- responses


class Counts(Response):
    """The counts of a run. `total` is absent until it is final."""

    total: int | None = None
    completed: int
    failed: int


class Dollars(Response):
    """What something costs on AWS in USD, computed, between two values."""

    least: float
    most: float
    prices: Annotated[str, Field(description="Region and date of the list prices.")]


class Costs(Response):
    """The costs of the tasks or chunks that have ended, with all their attempts. They only grow."""

    worked_seconds: Annotated[float, Field(description="Total duration of the attempts.")]
    attempts: Annotated[int, Field(description="Attempts. Each is a request to the site, or a pass over a chunk.")]
    bytes: Annotated[int, Field(description="Total length of the outputs.")]
    usd: Annotated[
        Dollars | None,
        Field(description="Cost of the attempts as Lambda functions, and of a month of storage. Absent: not computed."),
    ] = None


class Seconds(Response):
    """A duration between two values, in seconds."""

    least: float
    most: float


class EstimateView(Response):
    """What a run would cost on AWS. Computed, not measured."""

    workload: str
    items: Annotated[int, Field(description="Spectra, windows, URLs or items of a function.")]
    worked_seconds: Annotated[Seconds, Field(description="Total duration of the attempts.")]
    usd: Annotated[Dollars, Field(description="Cost of the attempts as Lambda functions.")]
    reasons: Annotated[
        list[str], Field(description="Where the range comes from, and what it leaves out, as sentences.")
    ]


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


class ConditionView(Response):
    """Something that a run does or waits for now."""

    name: Annotated[
        str,
        Field(
            description="`accepted`, `splitting`, `ingesting`, `open`, `queued`, `no_consumer`, `waiting`, `retried`,"
            " `repeated_error`, `cancelling`, `continued`, `refitting`, `finalizing` or `keeps_code`.",
            examples=["ingesting"],
        ),
    ]
    sentence: Annotated[str, Field(description="For a person.")]


class PaceView(Response):
    """How fast the chunks or tasks of a run end, on average since it started."""

    per_second: Annotated[float, Field(description="Chunks or tasks that end in a second.")]
    remaining_seconds: Annotated[
        float | None, Field(description="Time that the rest takes at this rate. Absent: the total is not final.")
    ] = None


class RetryView(Response):
    """How a chunk or task is tried again after an attempt that ended with an error."""

    attempts: Annotated[int, Field(description="Attempts that count.")]
    at_least: Annotated[
        int | None, Field(description="Attempts that it gets at least. Absent: its function decides.")
    ] = None
    next_at: Annotated[str, Field(description="When the next attempt begins at the latest, if a worker is free.")]
    sentence: Annotated[str, Field(description="All of this, with the error, for a person.")]


RETRY = Field(description="Absent: it is not being retried.")
RECORD = Field(description="With `details`: all that is stored about it, as `--json` of the command prints it.")


class CauseView(Response):
    """Failures of a run with the same error. Numbers and ids in the error do not count."""

    count: int
    error: Annotated[str, Field(description="The error of the latest of them.")]
    latest_at: Annotated[str, Field(description="When it failed.")]
    example: Annotated[str, Field(description="The chunk's id, or what the task works on.")]
    cell: Annotated[int, Field(description="The number of its cell.")]


class CausesView(Response):
    """Why chunks or tasks of a run failed, the latest failure first."""

    items: list[CauseView]
    count: Annotated[int, Field(description="Failures that were looked at.")]
    complete: Annotated[bool, Field(description="Whether all failures were looked at. If not, counts are at least.")]


class ActionView(Response):
    """Something that may be done to a run."""

    name: Annotated[
        str, Field(description="`cancel`, `continue`, `retry`, `rerun_failed` or `export`.", examples=["cancel"])
    ]
    allowed: Annotated[bool, Field(description="Whether it is possible now.")]
    reason: Annotated[str | None, Field(description="Why not, and what to do instead.")] = None


class FinalizationView(Response):
    """The call of a function's `finalize` after all items of a run have ended."""

    status: Annotated[
        ShownStatus, Field(description="`pending`, `in_progress`, `completed` or `failed`.", examples=["completed"])
    ]
    attempts: Annotated[int, Field(description="Attempts that have begun.")]
    value: Annotated[JsonValue, Field(description="What it returned, if that is short.")] = None
    value_url: Annotated[str | None, Field(description="A link to a long value.")] = None
    error: Annotated[str | None, Field(description="Why the latest attempt failed.")] = None
    error_type: Annotated[str | None, Field(description="The class of that error.")] = None


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
    ended: Annotated[
        bool,
        Field(
            description="Whether the status is final, no work continues, no spectrum waits for a refit, and nothing is"
            " finalized."
        ),
    ]
    counts: Annotated[Counts | None, Field(description="Absent until the run was opened.")] = None
    costs: Annotated[Costs | None, COSTS] = None
    n_items: Annotated[int | None, Field(description="Items in all chunks, such as spectra.")] = None
    n_blank: Annotated[int | None, Field(description="Spectra without data.")] = None
    n_timed_out: Annotated[int | None, Field(description="Spectra that wait to be fitted again.")] = None
    n_refit_failed: Annotated[int | None, Field(description="Spectra that could not be fitted in time.")] = None
    code: Annotated[str | None, Field(description="Digest of the code of a function that the run has now.")] = None
    params: Annotated[
        dict[str, Any], Field(description="All parameters in force. Empty until the run was opened.")
    ] = {}
    warnings: Annotated[list[str], Field(description="What a user of the results has to know, in sentences.")] = []
    trace_id: str | None = None
    n_rejected: Annotated[int | None, Field(description="Lines of the list that are not URLs.")] = None
    rejects_url: Annotated[str | None, Field(description="A link to the rejected lines.")] = None
    started_at: str | None = None
    completed_at: str | None = None
    error: Annotated[str | None, Field(description="Why the run failed or was cancelled.")] = None
    finalization: Annotated[
        FinalizationView | None, Field(description="Absent: the function has no `finalize`, or the run was stopped.")
    ] = None
    waiting_for: Annotated[
        str | None, Field(description="What the run waits for now, such as a free slot of `max_concurrency`.")
    ] = None
    repeated_error: Annotated[
        RepeatedErrorView | None,
        Field(description="Why the run makes no progress, although it has not failed: a message is being retried."),
    ] = None
    conditions: Annotated[
        list[ConditionView], Field(description="What the run does or waits for now, beside its status.")
    ] = []
    pace: Annotated[PaceView | None, Field(description="Absent: nothing has ended yet, or the run has ended.")] = None
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
    tolerated_failures: int | None = None
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
    url: Annotated[str | None, Field(description="The URL, if the workload is `urls`.")] = None
    item: Annotated[JsonValue, Field(description="The item, if the workload is a function.")] = None
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
    error_type: Annotated[str | None, Field(description="The class of the error, if a function raised it.")] = None
    last_error: Annotated[str | None, Field(description="Why the latest attempt did not end the task.")] = None
    retry: Annotated[RetryView | None, RETRY] = None
    value: Annotated[
        JsonValue, Field(description="What the function returned. A long value is behind the link to the result.")
    ] = None
    code: Annotated[str | None, Field(description="Digest of the code of a function that ended the task.")] = None
    result: TaskResultView | None = None
    record: Annotated[dict[str, JsonValue] | None, RECORD] = None


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
    retry: Annotated[RetryView | None, RETRY] = None
    output_key: str | None = None
    output_url: Annotated[str | None, Field(description="With `links`: a presigned link to its output.")] = None
    why: Annotated[str | None, Field(description="With `stuck_after`: why the chunk makes no progress.")] = None
    record: Annotated[dict[str, JsonValue] | None, RECORD] = None


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
    """A link to the body of a task's result, or to the long value of a function."""

    url: Annotated[str, Field(description="A presigned link. It needs no API key.")]
    expires_at: str
    http_status: int | None = None
    content_type: str | None = None
    length: int
    sha256: str | None = None


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
    recovering: Annotated[bool, Field(description="Whether a recovery has sent it, and its work has not ended.")]
    record: Annotated[
        dict[str, Any] | None,
        Field(description="With `details`: the record in the archive, with `body_bytes` in place of the message."),
    ] = None


class DeadLetterRecordView(DeadLetterView):
    """A dead letter and its record."""

    record: Annotated[dict[str, Any], Field(description="The record in the archive, with the message as `body`.")]


class RecoveryView(Response):
    """A recovery of dead letters, with its progress."""

    operation_id: str
    run_id: Annotated[str | None, Field(description="Null: it is one of all runs.")]
    status: Annotated[ShownStatus, Field(description="`pending`, `running` or `completed`.", examples=["running"])]
    dry_run: bool
    prefix: Annotated[str | None, Field(description="Prefix of the records in the archive.")] = None
    retry: Annotated[bool, Field(description="Whether it tries again what failed, without the archive.")] = False
    chunk_ids: Annotated[list[str] | None, Field(description="Absent: all that failed.")] = None
    cancelled_at: Annotated[str | None, Field(description="The stop that it undoes.")] = None
    started_at: str | None = None
    finished_at: str | None = None
    n_records: int
    n_sent: int
    n_settled: int
    n_failed: int
    n_left: int
    n_recovered: int


class RunEventView(Response):
    """Something that happened to a run."""

    at: str
    name: Annotated[
        str,
        Field(
            description="`submitted`, `opened`, `split`, `started`, `cancel_requested`, `recover_requested`,"
            " `stopped`, `resumed`, `drained` or `ended`."
        ),
    ]
    sentence: Annotated[str, Field(description="For a person.")]
    by: Annotated[str | None, Field(description="Id of the API key of the person who asked for it.")] = None


class WebhookDeliveryView(Response):
    """A post of the end of a run to the target of its job."""

    event_type: str
    status: Annotated[ShownStatus, Field(description="`pending`, `delivered` or `failed`.", examples=["delivered"])]
    attempts: int
    last_attempt_at: str | None = None
    delivered_at: str | None = None
    http_status: Annotated[int | None, Field(description="Status of the target's latest answer.")] = None
    last_error: Annotated[str | None, Field(description="Why the latest attempt failed.")] = None


class ActivityView(Response):
    """What happened to a run: its events, recoveries, exports and posts."""

    events: Annotated[list[RunEventView], Field(description="The earliest first.")]
    recoveries: Annotated[list[RecoveryView], Field(description="The latest of those that were asked for over HTTP.")]
    exports: list[ExportView]
    webhooks: list[WebhookDeliveryView]
    source: Annotated[dict[str, Any] | None, Field(description="What the run reads, by its manifest.")] = None
    params: Annotated[dict[str, Any] | None, Field(description="The parameters in force.")] = None


class Health(Response):
    """The service runs."""

    status: Literal["ok"] = "ok"
