"""What happened to a run, and why it failed: its events with their authors, its recoveries, exports, posts, causes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from prismline_api.actions import export_view
from prismline_api.dead_letters import recovery_view
from prismline_api.dependencies import Dependencies
from prismline_api.models import ActivityView, CausesView, CauseView, RunEventView, WebhookDeliveryView
from prismline_api.reading import AnyRun, find_run, manifest_copy
from prismline_contracts.items import ChunkStatus, RunItem, WorkflowStateItem
from prismline_contracts.jobs import JobRunItem, WebhookItem
from prismline_http.auth import Caller
from prismline_ledger import ENDED, Failure, causes_of

#: Failures that are looked at for their causes.
MOST_FAILURES = 2000
#: Recoveries that are shown.
MOST_RECOVERIES = 5
#: Fields of a manifest that name what the run reads.
SOURCE_FIELDS = ("cube_key", "cube_bucket", "windows", "urls", "list", "batches", "rerun", "source", "noise")
#: Longest list of a source that is shown in full.
MOST_SHOWN = 5

_ASKED = {
    "cancel": "its cancellation was requested",
    "recover": "a recovery was requested",
    "export": "an export was requested",
}


def show_activity(caller: Caller, run_id: str, deps: Dependencies) -> ActivityView:
    """What happened to the caller's run. Raises ProblemError (404)."""
    run = find_run(caller, run_id, deps)
    item = deps.ledger.get_run(run_id)
    found = deps.states.get({"run_id": run_id})
    state = None if found is None else WorkflowStateItem.model_validate(found)
    exports, webhooks = deps.store.of_run(run_id)
    requests = run.requests if isinstance(run, JobRunItem) else []
    operations = [each.operation_id for each in requests if each.name == "recover" and each.operation_id]
    return ActivityView(
        events=sorted(_events(run, item, state), key=lambda event: event.at),
        recoveries=[recovery_view(each, deps.operations.get(each), run_id) for each in operations[-MOST_RECOVERIES:]],
        exports=[export_view(each, run_id, deps) for each in exports],
        webhooks=[_post(each) for each in webhooks],
        source=_source(manifest_copy(run_id, deps)),
        params=json.loads(item.params) if item is not None and item.params else None,
    )


def _post(item: WebhookItem) -> WebhookDeliveryView:
    """A post as clients see it. Why an earlier attempt failed is no error of a post that was delivered."""
    shown = WebhookDeliveryView.model_validate(item, from_attributes=True)
    return shown.model_copy(update={"last_error": None}) if item.status == "DELIVERED" else shown


def _events(run: AnyRun, item: RunItem | None, state: WorkflowStateItem | None) -> Iterator[RunEventView]:
    def event(at: str | None, name: str, sentence: str, by: str | None = None) -> Iterator[RunEventView]:
        if at is not None:
            yield RunEventView(at=at, name=name, sentence=sentence, by=by)

    if isinstance(run, JobRunItem):
        yield from event(run.created_at, "submitted", "submitted", run.submitted_by)
        for request in run.requests:
            asked = _ASKED.get(request.name, request.name)
            yield from event(request.at, f"{request.name}_requested", asked, request.by)
    else:
        yield from event(run.created_at, "submitted", "submitted with a manifest in the bucket, which names nobody")
    if state is not None:
        yield from event(state.started_at, "started", "its state machine reports that it runs")
        if state.status in ENDED:
            yield from event(state.completed_at, "ended", f"{state.status}")
    if item is None:
        return
    units = f"{item.unit}s"
    total = f"{item.chunks_total:,} {units}" if item.chunks_total is not None else units
    yield from event(item.created_at, "opened", "its source was opened")
    yield from event(item.latched_at, "split", f"split: {total} are written")
    yield from event(item.cancelled_at, "stopped", f"stopped ({item.stop_reason or 'cancelled'}): the rest is skipped")
    yield from event(item.resumed_at, "resumed", "resumed by a recovery")
    yield from event(item.uncancelled_at, "resumed", "continued by a person after it was cancelled")
    yield from event(item.drained_at, "drained", f"all {units} have ended")


def _source(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """What the run reads. Of a long list, its beginning and its length."""
    found = {name: manifest[name] for name in SOURCE_FIELDS if manifest.get(name) is not None}
    for name, value in found.items():
        if isinstance(value, list) and len(value) > MOST_SHOWN:
            found[name] = [*value[:MOST_SHOWN], f"and {len(value) - MOST_SHOWN:,} more"]
    return found or None


def show_causes(caller: Caller, run_id: str, deps: Dependencies) -> CausesView:
    """Why chunks or tasks of the caller's run failed. Raises ProblemError (404)."""
    find_run(caller, run_id, deps)
    run = deps.ledger.get_run(run_id)
    if run is None:
        return CausesView(items=[], count=0, complete=True)
    failures = list(islice(_failures(run, deps), MOST_FAILURES + 1))
    complete = len(failures) <= MOST_FAILURES
    looked_at = failures[:MOST_FAILURES]
    cells = dict(looked_at)
    return CausesView(
        items=[
            CauseView(
                count=cause.count,
                error=cause.example.error,
                latest_at=cause.example.ended_at,
                example=cause.example.name,
                cell=cells[cause.example],
            )
            for cause in causes_of(failure for failure, _ in looked_at)
        ],
        count=len(looked_at),
        complete=complete,
    )


def _failures(run: RunItem, deps: Dependencies) -> Iterator[tuple[Failure, int]]:
    """What failed in the run, and the number of its cell."""
    failed = ChunkStatus.FAILED
    if run.unit == "chunk":
        for chunk in deps.ledger.chunks(run.run_id, status=failed):
            number = int(chunk.chunk_id.rpartition("-")[2])
            yield Failure(chunk.chunk_id, chunk.completed_at or "", chunk.error or "no error"), number
        return
    for task in deps.ledger.tasks(run, status=failed):
        yield Failure(task.source, task.completed_at or "", task.error or "no error"), task.index
