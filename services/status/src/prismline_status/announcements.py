"""Publishes the status of a run, after the status is written.

The run's item records which status was published last. If the service dies between the write and the publication, the
next message about the run publishes the status from the item, with the same event id.
"""

from __future__ import annotations

from prismline_contracts.envelope import MessageData
from prismline_contracts.events import RunCancelled, RunCompleted, RunFailed, RunStarted
from prismline_status.dependencies import UpdateDependencies
from prismline_status.transitions import NO_REASON
from prismline_status.workflow_state import RunState


def announcement(run: RunState) -> MessageData | None:
    """The event for the run's status. None for a pending run, and for a status that only a newer release knows."""
    ended_at = run.completed_at or run.updated_at
    match run.status:
        case "running":
            return RunStarted(run_id=run.run_id, started_at=run.started_at or run.updated_at)
        case "completed":
            return RunCompleted(run_id=run.run_id, completed_at=ended_at)
        case "failed":
            return RunFailed(run_id=run.run_id, completed_at=ended_at, error=run.error_message or NO_REASON)
        case "cancelled":
            return RunCancelled(run_id=run.run_id, completed_at=ended_at)
        case _:
            return None


def announce(run: RunState, deps: UpdateDependencies) -> None:
    """Publish the run's status, unless it was published before."""
    event = announcement(run)
    if event is None or run.announced == run.status:
        return
    deps.transport.publish_event(event, traceparent=run.traceparent)
    deps.table.mark_announced(run)
