"""The bodies of answers about cells."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prismline_api.models import RETRY, Response, RetryView, ShownStatus
from prismline_contracts.base import MOST_INDEX

_DIFFERENCES = (
    "base64 of the differences from cell to cell, as signed four-byte numbers, little-endian: the first bytes of all"
    " numbers, then all second bytes, and so on."
)
_BYTES = "base64 of one byte for each cell."


WORKER = Field(description="The process that made it. Absent: not known.")


class CellColumns(Response):
    """One value for each cell, in the order of their numbers. An unknown time is -1."""

    cell: Annotated[
        str, Field(description=f"Numbers of the cells, or {MOST_INDEX} for a larger number: {_DIFFERENCES}")
    ]
    state: Annotated[str, Field(description=f"Indices into `states`: {_BYTES}")]
    attempts: Annotated[str, Field(description=f"Attempts that began, at most 255: {_BYTES}")]
    started: Annotated[
        str, Field(description=f"When the latest attempt began, in ms after `opened_at`: {_DIFFERENCES}")
    ]
    duration: Annotated[str, Field(description=f"Duration of the latest attempt, in ms: {_DIFFERENCES}")]
    ended: Annotated[
        str, Field(description=f"When the cell completed or failed, in ms after `opened_at`: {_DIFFERENCES}")
    ]


class CellsView(Response):
    """All chunks or tasks of a run, for a picture of them."""

    run_id: str
    unit: Literal["task", "chunk"]
    version: Annotated[str, Field(description="Changes when the cells change. It is also the ETag.")]
    opened_at: str | None = None
    total: Annotated[int | None, Field(description="Absent until it is final.")] = None
    complete: Annotated[bool, Field(description="Whether all cells were read. If not, repeat the request in a second.")]
    count: Annotated[int, Field(description="Cells in this answer.")]
    states: Annotated[list[str], Field(examples=[["pending", "in_progress", "completed", "failed", "deferred"]])]
    processing_seconds: Annotated[float, Field(description="Total duration of the latest attempts.")]
    bytes: Annotated[int | None, Field(description="Total bytes of the results of tasks.")] = None
    columns: CellColumns


class AttemptErrorView(Response):
    """An attempt that ended without a result."""

    attempt: Annotated[int, Field(description="Its number, from 1.")]
    at: Annotated[str, Field(description="When it ended.")]
    duration_ms: int | None = None
    error: Annotated[str, Field(description="The error, cut to 240 bytes.")]
    interrupted: Annotated[bool, Field(description="Whether a dependency did not answer: then it does not count.")]
    worker: Annotated[str | None, WORKER] = None


class CellView(Response):
    """One chunk or task with everything that the ledger knows about it."""

    cell: Annotated[int, Field(description="Its number: the index of the chunk's first item, or of the task.")]
    unit: Literal["task", "chunk"]
    id: Annotated[str, Field(description="The chunk's id, or the task's address.")]
    status: Annotated[
        ShownStatus, Field(description="`pending`, `in_progress`, `completed` or `failed`.", examples=["completed"])
    ]
    input: Annotated[str, Field(description="Its input: a key in the bucket, or a URL.")]
    reference: Annotated[str | None, Field(description="The chunk's part of the input, as JSON.")] = None
    n_items: int | None = None
    n_done: Annotated[int, Field(description="Items that the latest attempt has done, as far as it has reported.")] = 0
    created_at: str
    first_started_at: Annotated[str | None, Field(description="When the first attempt began.")] = None
    started_at: Annotated[str | None, Field(description="When the latest attempt began.")] = None
    worker: Annotated[str | None, Field(description="The process that made the latest attempt. Absent: not known.")] = (
        None
    )
    attempt_ended_at: Annotated[str | None, Field(description="When an attempt last ended with an error.")] = None
    completed_at: str | None = None
    duration_ms: int | None = None
    attempts: int
    interruptions: Annotated[int, Field(description="Attempts that ended because a dependency did not answer.")]
    deferrals: Annotated[int, Field(description="How often it was deferred because a resource was down.")] = 0
    deferred_at: str | None = None
    not_before: str | None = None
    resends: Annotated[int, Field(description="How often the sweeper sent its message again.")] = 0
    error: Annotated[str | None, Field(description="Why it failed.")] = None
    last_error: Annotated[str | None, Field(description="Why the latest attempt did not complete it.")] = None
    retry: Annotated[RetryView | None, RETRY] = None
    errors: Annotated[
        list[AttemptErrorView], Field(description="The latest 20 attempts without a result, the earliest first.")
    ]
    recovery: Annotated[str | None, Field(description="The recovery that last reopened it.")] = None
    summary: str | None = None
    n_blank: int | None = None
    n_timed_out: int | None = None
    http_status: int | None = None
    content_type: str | None = None
    length: Annotated[int | None, Field(description="Bytes of the result.")] = None
    output: Annotated[str | None, Field(description="Key of the output in the bucket.")] = None
    output_url: Annotated[str | None, Field(description="A link to the output. It is valid for 24 hours.")] = None
    trace_id: Annotated[str | None, Field(description="The trace of the run.")] = None


class LogLineView(Response):
    """A line that a service logged, without what may quote the data of users."""

    at: str
    level: Annotated[str, Field(examples=["warning"])]
    process: Annotated[str, Field(description="The process that wrote it.", examples=["worker-1"])]
    message: Annotated[str, Field(examples=["chunk_failed"])]
    fields: Annotated[dict[str, int | float | str], Field(description="Its numbers, and texts such as `reason`.")]
    traceback: str | None = None


class CellLogsView(Response):
    """The log lines of one chunk or task, or where they are."""

    lines: Annotated[list[LogLineView], Field(description="The latest 200, the earliest first.")]
    complete: Annotated[bool, Field(description="Whether there are no other lines since the system was last started.")]
    url: Annotated[
        str | None,
        Field(description="On AWS: CloudWatch's console, with a query for the lines. It needs a sign-in there."),
    ] = None
    sentence: Annotated[str | None, Field(description="Why lines are missing, for a person.")] = None
