"""Tasks: units of work with a ledger item of their own, and the `urls` workload, whose runs consist of them.

Four words: a *task* has its own status, attempts, error and result; a *batch* is the tasks of one message; a *shard* is
a part of a run's tasks with its own partition and its own counters; a *partition* is the value of `PK` of their items.
A run with one shard keeps its tasks in its own partition and its counters in the run item.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from prismline_contracts.base import Contract, Count, Key, Name, RunId, Submitted, Timestamp
from prismline_contracts.items import AttemptError, ChunkStatus, NewerStatus, StoredStatus, read_status
from prismline_contracts.manifest import Manifest, Params
from prismline_contracts.prefixes import RESULTS_PREFIX

#: Most tasks of one message.
MAX_TASKS_PER_MESSAGE = 100
#: Most URLs in a manifest. A longer list is staged in S3.
MAX_INLINE_URLS = 1000
#: Most shards of a run. A page of tasks and the drain of a run read every shard.
MAX_SHARDS = 256
#: Longest source of a task, in characters.
MAX_SOURCE_CHARS = 8192
#: Longest value of a function that is kept in the item of its task, in bytes. A longer one has an object of its own.
MAX_KEPT_VALUE_BYTES = 2048
#: Headers of a response that are kept with the result of a task, unless the job asks for others.
KEPT_HEADERS = ["content-type", "etag", "last-modified"]
#: Prefix of the sort key of a task item. The task id follows.
TASK_SK_PREFIX = "TASK#"
#: Sort key of the counters of a shard.
SHARD_SK = "SHARD"

#: `sha256(run_id:index)` in hexadecimal digits.
TaskId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: What a task works on: for `urls`, the URL as it was submitted; for a function, the item as canonical JSON.
TaskSource = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SOURCE_CHARS)]
#: The run's id, or `<run_id>#<shard>`.
Partition = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}(#[0-9]{1,5})?$")]

#: A task has the same states as a chunk, with the same transitions between them.
TaskStatus = ChunkStatus


def task_id(run_id: str, index: int) -> str:
    """The id of the task with this index, from 0. It depends on nothing else, so a repeat creates no second task."""
    return hashlib.sha256(f"{run_id}:{index}".encode()).hexdigest()


def shard_of(task_id: str, shard_count: int) -> int:
    """The shard of a task, from 0."""
    return int(task_id[:8], 16) % shard_count


def partition(run_id: str, shard: int, shard_count: int) -> str:
    """`PK` of the task items of a shard. A run with one shard has one partition: its own."""
    return run_id if shard_count == 1 else f"{run_id}#{shard}"


def task_address(run_id: str, task_id: str) -> str:
    """The name of a task outside the ledger. The run's item and this name are enough to find the task's item."""
    return f"{run_id}.{task_id}"


def result_key(run_id: str, task_id: str) -> str:
    """S3 key of the body or the value that a task stored."""
    return f"{RESULTS_PREFIX}{run_id}/{task_id}"


def value_key(run_id: str, task_id: str, attempt: int) -> str:
    """S3 key of the value that an attempt of a function stored. A later attempt may run other code."""
    return f"{result_key(run_id, task_id)}.{attempt}.json"


class TaskResult(Contract):
    """What a completed task of the `urls` workload got: the final response, whose body is stored in S3."""

    key: Key
    http_status: Annotated[int, Field(ge=100, le=599)]
    content_type: str | None = None
    #: Length of the body, in bytes.
    length: Count
    #: SHA-256 of the body, in hexadecimal digits.
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    #: The URL after all redirects.
    final_url: str
    #: The headers that the job asked to keep, with names in lower case.
    headers: dict[str, str] = Field(default_factory=dict)


class TaskValue(Contract):
    """What an author's function returned for an item: JSON, in the item itself or in an object of its own."""

    #: The value as JSON text, if it is short.
    text: Annotated[str, StringConstraints(max_length=MAX_KEPT_VALUE_BYTES)] | None = None
    #: Key of the object that holds it otherwise.
    key: Key | None = None
    #: Length of the JSON text, in bytes.
    length: Count


class TaskItem(Contract):
    """The item of a task in the ledger."""

    PK: Partition
    SK: Annotated[str, StringConstraints(pattern=r"^TASK#[0-9a-f]{64}$")]
    #: Position in the list that was submitted, from 0. Rejected lines have no index.
    index: Count
    source: TaskSource
    status: StoredStatus
    created_at: Timestamp
    #: When the first attempt began, and the latest one.
    first_started_at: Timestamp | None = None
    started_at: Timestamp | None = None
    #: The process that began the latest attempt, as in an item of a chunk.
    worker: Name | None = None
    completed_at: Timestamp | None = None
    duration_ms: Count | None = None
    attempts: Count = 0
    #: Attempts that ended because a dependency did not answer. They do not count against the task.
    interruptions: Count = 0
    #: No attempt begins before this moment: the task waits after an error or a `Retry-After`.
    not_before: Timestamp | None = None
    #: Why the latest attempt did not end the task.
    last_error: str | None = None
    #: Why the task failed.
    error: str | None = None
    #: The latest attempts that ended without a result, the earliest first. At most MAX_KEPT_ERRORS.
    errors: list[AttemptError] = Field(default_factory=list)
    #: Attempts that the run's costs include already, and the duration of the attempts that they do not include yet.
    charged_attempts: Count = 0
    uncharged_ms: Count = 0
    #: What a completed task of `urls` got, or what the function of another workload returned.
    result: TaskResult | None = None
    value: TaskValue | None = None
    #: The class of the error, if a function raised it.
    error_type: str | None = None
    #: Digest of the code that ended the task. Absent: its workload is a part of the services.
    code: Name | None = None
    #: The recovery that last reopened the task.
    recovery: Name | None = None

    @property
    def run_id(self) -> str:
        return self.PK.partition("#")[0]

    @property
    def task_id(self) -> str:
        return self.SK.removeprefix(TASK_SK_PREFIX)

    @property
    def address(self) -> str:
        """The name of the task outside the ledger."""
        return task_address(self.run_id, self.task_id)

    @property
    def state(self) -> TaskStatus | NewerStatus:
        return read_status(self.status)


class ShardItem(Contract):
    """The counters of one shard. Tasks, or chunks, of the shard change them in the transaction of their ending."""

    PK: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}#[0-9]{1,5}$")]
    SK: Literal["SHARD"] = "SHARD"
    #: Tasks or chunks of the shard. Absent until the total of the run is known.
    total: Count | None = None
    completed: Count = 0
    failed: Count = 0
    #: The costs of the shard's tasks or chunks that have ended. `RunItem` explains the three numbers.
    worked_ms: Count | None = None
    n_attempts: Count | None = None
    n_bytes: Count | None = None

    @property
    def shard(self) -> int:
        return int(self.PK.partition("#")[2])

    @property
    def complete(self) -> bool:
        """Whether the total is known and everything in the shard has ended."""
        return self.total is not None and self.completed + self.failed >= self.total


# ---- the `urls` workload


class UrlParams(Params):
    """Parameters of a `urls` run: the limits of one request, and what is kept of the response."""

    timeout_s: Annotated[float, Field(gt=0, le=600, description="Seconds for a whole attempt.")] = 30.0
    connect_timeout_s: Annotated[float, Field(gt=0, le=60, description="Seconds until connected.")] = 10.0
    max_redirects: Annotated[int, Field(ge=0, le=20, description="Most redirects of one attempt.")] = 5
    max_body_bytes: Annotated[int, Field(ge=1, le=5 * 1024**3, description="Longest body, in bytes.")] = 16 * 1024**2
    max_attempts: Annotated[int, Field(ge=1, le=20, description="Most attempts that count against a task.")] = 5
    keep_headers: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]],
        Field(max_length=32, description="Response headers to keep with the result."),
    ] = KEPT_HEADERS


class GivenUrlParams(Submitted, UrlParams, extra="forbid"):
    """Parameters of a `urls` run as a person writes them."""


class TaskList(Contract):
    """A list of tasks in S3: one line for each."""

    key: Key
    #: ETag of the list that was submitted. A list that was replaced since is refused.
    etag: Name | None = None
    #: `jsonl`: an object with `url`, or a string; `text`: a URL; `csv`: the column `url` of a table with a header.
    format: Literal["jsonl", "text", "csv"] = "jsonl"
    #: Whether the object is compressed by gzip.
    gzip: bool = False


class TaskBatches(Submitted, Contract):
    """The batches of a job that was open: lists under one prefix, each named after the index of its first task."""

    prefix: Key
    #: Tasks in all batches.
    count: Count


class RerunOf(Contract):
    """The tasks of an earlier run of the job."""

    run_id: RunId
    #: `failed`: the tasks that failed; `rest`: all that are not completed, also those that a stopped run skipped.
    only: Literal["all", "failed", "rest"] = "all"


InlineUrls = Annotated[list[TaskSource], Field(min_length=1, max_length=MAX_INLINE_URLS)]


class UrlsManifest(Manifest):
    """The manifest of the `urls` workload: URLs to fetch. Exactly one source is given."""

    workload: Literal["urls"]
    urls: InlineUrls | None = None
    list: TaskList | None = None
    batches: TaskBatches | None = None
    rerun: RerunOf | None = None
    params: GivenUrlParams = GivenUrlParams()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        given = [name for name in ("urls", "list", "batches", "rerun") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of urls, list, batches and rerun, not {' and '.join(given) or 'none'}")
        return self
