"""What the ledger says about a run's end, and what follows for its status. Pure: no client in here."""

from __future__ import annotations

from typing import Any, Literal

from prismline_contracts import RunDrained, RunItem, RunStatus, StatusUpdate, StepFunctionsError
from prismline_status.executions import percent_text
from prismline_status.transitions import stored_status
from prismline_status.workflow_state import RunState

FAILED, CANCELLED = stored_status(RunStatus.FAILED), stored_status(RunStatus.CANCELLED)
#: What is said of a run whose chunks were stopped because it was about to fail, and that nobody failed then.
ABANDONED = StepFunctionsError(
    Error="ExecutionEnded",
    Cause="The state machine execution ended while the run was being failed; its history says why.",
)


def counts(drained: RunDrained) -> dict[str, Any]:
    """The answer to a task that waits for the drain. `summary` begins a sentence: `3 of 40 chunks failed (7.5 %)`."""
    return {
        "jobs_total": drained.jobs_total,
        "jobs_completed": drained.jobs_completed,
        "jobs_failed": drained.jobs_failed,
        "failed_percent": drained.failed_percent,
        "summary": f"{drained.jobs_failed} of {drained.jobs_total} chunks failed"
        f" ({percent_text(drained.failed_percent)})",
    }


def ending(state: RunState, run: RunItem, now: str) -> list[StatusUpdate]:
    """What the state machine would have sent for a run that has drained, or was stopped: the updates that end it."""
    if run.drained_at is None:
        return [StatusUpdate(job_id=state.run_id, status="FAILED", completed_at=now, error=ABANDONED)]
    drained = RunDrained.of(run)
    if drained.failed_percent > state.tolerated:
        cause = f"{counts(drained)['summary']}, {percent_text(state.tolerated)} are tolerated."
        error = StepFunctionsError(Error="TooManyFailures", Cause=cause)
        return [StatusUpdate(job_id=state.run_id, status="FAILED", completed_at=now, error=error)]
    completed = StatusUpdate(job_id=state.run_id, status="COMPLETED", completed_at=now)
    if state.status == stored_status(RunStatus.PENDING):
        return [StatusUpdate(job_id=state.run_id, status="RUNNING", started_at=now), completed]
    return [completed]


def over(run: RunItem | None) -> bool:
    """Whether the ledger says that a run will not go on: it has drained, or what is left of it is skipped."""
    return run is not None and (run.drained_at is not None or run.cancelled_at is not None)


def stop_reason(state: RunState, run: RunItem | None) -> Literal["cancelled", "failed"] | None:
    """Why the rest of an ended run has to be skipped; None: it has not.

    A failed run is stopped before it is announced, and not again: what goes on in it afterwards is a recovery's.
    """
    if over(run):
        return None
    if state.status == CANCELLED:
        return "cancelled"
    return "failed" if state.status == FAILED and state.announced != FAILED and never_drained(run) else None


def never_drained(run: RunItem | None) -> bool:
    """Whether what is left of a run is its own; in a run that had drained, it is what a recovery reopened."""
    return run is None or run.drains == 0


def recovered(state: RunState, run: RunItem | None) -> bool:
    """Whether a run is failed although the ledger says that no more of its chunks failed than it tolerates."""
    if state.status != FAILED or run is None or run.drained_at is None:
        return False
    return RunDrained.of(run).failed_percent <= state.tolerated


def heard(state: RunState, run: RunItem | None) -> bool:
    """Whether the ledger has recorded that the run's status, which is terminal, was announced."""
    return run is not None and run.ended_status == state.status == state.announced
