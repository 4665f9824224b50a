"""Server-sent events: the changes of a run, as they happen.

A stream has the events `run` (the run, when it has changed), `cells` (the cells that have changed), `reset` (the missed
changes are no longer known: get the cells again) and `trouble` (a dependency does not answer). Its ids are versions of
the cells, so a browser that was cut off continues where it was. Another instance answers with `reset`.

Each stream asks the shared picture of the run once a second. A slow client gets fewer events with more changes in each.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from prismline_api import problems
from prismline_api.dependencies import Dependencies
from prismline_api.parameters import Deps, KeyRoute, Reader
from prismline_api.reading import AnyRun, find_run, run_view
from prismline_runtime import TransientError
from prismline_runtime.shutdown import stopping

router = APIRouter(prefix="/v1", route_class=KeyRoute, responses=problems.RESPONSES, include_in_schema=False)

#: Seconds between two looks at the run, and between two comments that keep a silent connection open.
LOOK_SECONDS, HEARTBEAT_SECONDS = 1.0, 15.0
#: How long one stream lasts, in seconds. Then the browser connects again, and its key is checked again.
STREAM_SECONDS = 300.0
#: How long a browser waits before it connects again, in ms.
RETRY_MS = 2000


@router.get("/events")
def get_events(
    run: Annotated[str, Query(max_length=80, description="The run's id.")],
    caller: Reader,
    deps: Deps,
    since: Annotated[str, Query(max_length=80, description="The version of the cells that the client has.")] = "",
    last_event_id: Annotated[str | None, Header(max_length=80)] = None,
) -> Response:
    """Follow a run by server-sent events. 204: this service cannot keep a stream open, so poll instead."""
    found = find_run(caller, run, deps)
    if not deps.settings.events:
        return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        follow(found, last_event_id or since, deps), media_type="text/event-stream", headers=headers
    )


async def follow(run: AnyRun, version: str | None, deps: Dependencies) -> AsyncIterator[str]:
    """The events of a run since a version of its cells. Without one they begin with `reset`."""
    ends_at = time.monotonic() + STREAM_SECONDS
    shown, spoke_at, troubled = "", time.monotonic(), False
    yield f"retry: {RETRY_MS}\n\n"
    while not stopping.is_set() and time.monotonic() < ends_at:
        events = []
        try:
            view = await run_in_threadpool(
                lambda: deps.recent.share(
                    ("run", run.run_id), lambda: run_view(run, deps).model_dump(exclude_none=True)
                )
            )
            now, cells = await run_in_threadpool(deps.cells.run(run.run_id).since, version)
        except TransientError as error:
            if not troubled:
                events.append(_event("trouble", {"detail": f"A dependency does not answer: {error}"}))
            troubled = True
        else:
            if (text := json.dumps(view)) != shown or troubled:
                events.append(_event("run", view))
            if cells is None:
                events.append(_event("reset", {"version": now}, now))
            elif len(cells):
                columns = zip(("cell", "state", "attempts", "started", "duration"), cells.arrays, strict=True)
                events.append(_event("cells", {name: column.tolist() for name, column in columns}, now))
            shown, version, troubled = text, now, False
        if not events and time.monotonic() - spoke_at >= HEARTBEAT_SECONDS:
            events.append(": still here\n\n")
        for event in events:
            yield event
            spoke_at = time.monotonic()
        await asyncio.sleep(LOOK_SECONDS)


def _event(kind: str, data: Any, version: str | None = None) -> str:
    name = f"id: {version}\n" if version else ""
    return f"event: {kind}\n{name}data: {json.dumps(data, separators=(',', ':'))}\n\n"
