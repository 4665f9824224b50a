"""Decides from the ledger whether a run is over and which status it gets. Pure: no client."""

from __future__ import annotations

from typing import Any, Literal

from prismline_contracts.commands import RunStatus, StatusUpdate, StepFunctionsError
from prismline_contracts.events import RunDrained
from prismline_contracts.items import RunItem
from prismline_ledger import TOO_MANY_FAILURES, failures_text, too_many
from prismline_status.transitions import stored_status
from prismline_status.workflow_state import RunState

FAILED, CANCELLED = stored_status(RunStatus.FAILED), stored_status(RunStatus.CANCELLED)
#: The error of a run that was stopped because it was about to fail, and whose execution ended before it failed the run.
ABANDONED = StepFunctionsError(
    Error="ExecutionEnded",
    Cause="The state machine execution ended while the run was being failed; its history says why.",
)
#: The error of a cancelled run that a person continued, and that cannot be split.
NOT_SPLIT = StepFunctionsError(
    Error="SplitFailed",
    Cause="The run was continued after its cancellation, but could not be split. Submit its source again.",
)


def counts(drained: RunDrained) -> dict[str, Any]:
    """The answer to a task that waits for the drain. `summary` reads like `3 of 40 chunks failed (7.5 %)`."""
    return {
        "jobs_total": drained.chunks_total,
        "jobs_completed": drained.chunks_completed,
        "jobs_failed": drained.chunks_failed,
        "failed_percent": drained.failed_percent,
        "summary": failures_text(drained.chunks_failed, drained.chunks_total, drained.unit),
    }


def too_many_failures(state: RunState, run: RunItem) -> StepFunctionsError | None:
    """The error of a drained run of which more chunks or tasks failed than it tolerates."""
    cause = too_many(state.tolerance, run.chunks_failed, run.chunks_total, run.unit)
    return None if cause is None else StepFunctionsError(Error=TOO_MANY_FAILURES, Cause=cause)


def ending(state: RunState, run: RunItem, now: str) -> list[StatusUpdate]:
    """The status updates that end a drained or stopped run, as its state machine would have sent them."""
    if run.drained_at is None:
        return [StatusUpdate(job_id=state.run_id, status="FAILED", completed_at=now, error=ABANDONED)]
    error = too_many_failures(state, run)
    if error is not None:
        return [StatusUpdate(job_id=state.run_id, status="FAILED", completed_at=now, error=error)]
    completed = StatusUpdate(job_id=state.run_id, status="COMPLETED", completed_at=now)
    if state.status == stored_status(RunStatus.PENDING):
        return [StatusUpdate(job_id=state.run_id, status="RUNNING", started_at=now), completed]
    return [completed]


def over(run: RunItem | None) -> bool:
    """Whether the run is over according to the ledger: it has drained or was stopped."""
    return run is not None and (run.drained_at is not None or run.cancelled_at is not None)


def stop_reason(state: RunState, run: RunItem | None) -> Literal["cancelled", "failed"] | None:
    """The reason to stop the remaining chunks of an ended run. None if the run must not be stopped.

    A failed run is stopped before its status is announced and never afterwards, because a recovery may then have
    reopened its chunks. The ledger does not stop a failed run that has ever drained or was resumed, nor a cancelled run
    that a person continued.
    """
    if over(run):
        return None
    if state.status == CANCELLED:
        return "cancelled"
    return "failed" if state.status == FAILED and state.announced != FAILED else None


def recovered(state: RunState, run: RunItem | None) -> bool:
    """Whether a failed run has recovered: its share of failed chunks is tolerated now."""
    if state.status != FAILED or run is None or run.drained_at is None:
        return False
    return too_many_failures(state, run) is None


def ending_after_cancel(state: RunState, run: RunItem | None, now: str) -> StatusUpdate | None:
    """The update that ends a cancelled run that a person continued. None if its status stays.

    The run ends by the same rule as any other run. If it is cancelled again, it stays cancelled.
    """
    if state.status != CANCELLED or run is None or run.uncancelled_at is None or not over(run):
        return None
    if run.stop_reason == CANCELLED:
        return None
    if run.drained_at is None:
        return StatusUpdate(job_id=state.run_id, status="FAILED", completed_at=now, error=NOT_SPLIT)
    return ending(state, run, now)[-1]


def may_cancel_again(seen: str | None, run: RunItem | None) -> bool:
    """Whether a cancellation stops a run that a person continued after an earlier cancellation.

    seen: the `uncancelled_at` that the cancelling person saw. A late request from before does not have the current one.
    """
    return run is not None and not over(run) and seen is not None and seen == run.uncancelled_at


def announcement_recorded(state: RunState, run: RunItem | None) -> bool:
    """Whether the ledger has recorded that the run's terminal status was announced."""
    return run is not None and run.ended_status == state.status == state.announced
