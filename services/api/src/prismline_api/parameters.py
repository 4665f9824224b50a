"""Parameters of operations: the dependencies, ids, and the part of a list."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BeforeValidator

from prismline_api.dependencies import Dependencies

#: Items of a page: the default and the maximum.
PAGE_ITEMS, MOST_PAGE_ITEMS = 100, 1000

JobId = Annotated[str, Path(max_length=80, description="The job's id.")]
#: Pattern of a run's id.
RUN_ID = r"^[A-Za-z0-9_-]{1,80}$"
RunId = Annotated[str, Path(max_length=80, description="The run's id.")]
ExportId = Annotated[str, Path(max_length=80, description="The export's id.")]
OperationId = Annotated[str, Path(max_length=80, description="The recovery's id.")]
#: A day of the archive of dead letters, in UTC.
DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
ArchiveDay = Annotated[str, Path(pattern=DAY, description="The dead letter's day in the archive, in UTC.")]
MessageId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,100}$", description="The id of the message.")]
TaskAddress = Annotated[str, Path(max_length=200, description="The task's address: `<run_id>.<id>`.")]
Limit = Annotated[int, Query(ge=1, le=MOST_PAGE_ITEMS, description="Most items of this part of the list.")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the previous part.")]


def _in_lower_case(given: Any) -> Any:
    return given.lower() if isinstance(given, str) else given


#: Statuses are in lower case. Upper case is accepted, because earlier releases showed it for chunks and tasks.
Status = Annotated[
    Annotated[Literal["pending", "in_progress", "completed", "failed"], BeforeValidator(_in_lower_case)] | None,
    Query(description="Only items with this status."),
]
RunStatus = Annotated[
    Annotated[Literal["pending", "running", "completed", "failed", "cancelled"], BeforeValidator(_in_lower_case)]
    | None,
    Query(description="Only runs with this status."),
]
WithRecords = Annotated[bool, Query(description="Show all that is stored about each of them, in `record`.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,64}$",
        description="Identifies the request. A repeat with the same key and body has no further effect.",
    ),
]
TraceParent = Annotated[str | None, Header(description="W3C trace context of the submitter.")]


async def _dependencies(request: Request) -> Dependencies:
    deps: Dependencies = request.app.state.deps
    return deps


Deps = Annotated[Dependencies, Depends(_dependencies)]
