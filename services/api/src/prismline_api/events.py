"""Server-sent events: the changes of a run, as they happen.

A stream has the events `run` (the run, when it has changed), `cells` (the cells that have changed), `reset` (the missed
changes are no longer known: get the cells again) and `trouble` (a dependency does not answer). Its ids are versions of
the cells, so a browser that was cut off continues where it was. Another instance answers with `reset`.

All streams of a run share a look at it once a second. A slow client gets fewer events with more changes in each.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from prismline_api.cells.following import Look
from prismline_api.dependencies import Dependencies
from prismline_api.parameters import Deps
from prismline_api.reading import AnyRun, find_run, run_view
from prismline_http import problems
from prismline_http.access import KeyRoute, Reader
from prismline_runtime import TransientError
from prismline_runtime.shutdown import stopping

if TYPE_CHECKING:
    from prismline_api.cells.columns import Columns

router = APIRouter(prefix="/v1", route_class=KeyRoute, responses=problems.RESPONSES, include_in_schema=False)

#: Seconds between two events `alive`, by which a client sees that a silent server has not hung.
HEARTBEAT_SECONDS = 5.0
#: How long one stream lasts, in seconds. Then the browser connects again, and its key is checked again.
STREAM_SECONDS = 300.0
#: How long a browser waits before it connects again, in ms.
RETRY_MS = 2000


class _Stream(StreamingResponse):
    """The answer with the events of a run. It counts among the streams of the tenant until it ends, however it ends."""

    def __init__(self, tenant: str, run: AnyRun, version: str, deps: Dependencies) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(follow(run, version, deps), media_type="text/event-stream", headers=headers)
        self._tenant = tenant
        self._feeds = deps.feeds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feeds.leave(self._tenant)


@router.get("/events")
async def get_events(
    run: Annotated[str, Query(max_length=80, description="The run's id.")],
    caller: Reader,
    deps: Deps,
    since: Annotated[str, Query(max_length=80, description="The version of the cells that the client has.")] = "",
    last_event_id: Annotated[str | None, Header(max_length=80)] = None,
) -> Response:
    """Follow a run by server-sent events. 204: this service cannot keep a stream open, so poll instead."""
    found = await run_in_threadpool(find_run, caller, run, deps)
    if not deps.settings.events:
        return Response(status_code=204)
    deps.feeds.admit(caller.tenant)
    return _Stream(caller.tenant, found, last_event_id or since, deps)


async def follow(run: AnyRun, version: str, deps: Dependencies) -> AsyncIterator[str]:
    """The events of a run since a version of its cells. Without one they begin with `reset`."""
    ends_at = time.monotonic() + STREAM_SECONDS
    shown, spoke_at, troubled = "", time.monotonic(), False
    yield f"retry: {RETRY_MS}\n\n"
    with deps.feeds.following(run.run_id, partial(_look, run, deps)) as feed:
        while not stopping.is_set() and time.monotonic() < ends_at:
            look = await feed.look(version)
            if look.trouble:
                events = [] if troubled else [look.trouble]
            else:
                now, changes = look.changes[version]
                events = [look.run] if look.run != shown or troubled else []
                events += [changes] if changes else []
                shown, version = look.run, now
            troubled = bool(look.trouble)
            if not events and time.monotonic() - spoke_at >= HEARTBEAT_SECONDS:
                events.append(_event("alive", {}))
            for event in events:
                yield event
                spoke_at = time.monotonic()


def _look(run: AnyRun, deps: Dependencies, versions: Collection[str]) -> Look:
    """Look at a run for streams that have sent the cells of these versions."""
    try:
        view = run_view(run, deps).model_dump(exclude_none=True)
        now, changes = deps.cells.run(run.run_id).since_each(versions)
    except TransientError as error:
        return Look(trouble=_event("trouble", {"detail": f"A dependency does not answer: {error}"}))
    return Look(
        run=_event("run", view), changes={version: (now, _changes(now, cells)) for version, cells in changes.items()}
    )


def _changes(now: str, cells: Columns | None) -> str:
    """The event that leads to the version `now`. Empty: nothing has changed."""
    if cells is None:
        return _event("reset", {"version": now}, now)
    if not len(cells):
        return ""
    return _event("cells", {name: column.tolist() for name, column in cells.by_name.items()}, now)


def _event(kind: str, data: Any, version: str | None = None) -> str:
    name = f"id: {version}\n" if version else ""
    return f"event: {kind}\n{name}data: {json.dumps(data, separators=(',', ':'))}\n\n"
