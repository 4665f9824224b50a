"""What happens to a run from outside its state machine: submitted, drained, cancelled, cleaned up, execution ended."""

from __future__ import annotations

from typing import Any

from prismline_contracts import (
    RunCancelRequested,
    RunCleanupRequested,
    RunDrained,
    RunRecovered,
    RunSplitCompleted,
    RunStatus,
    RunSubmitted,
    StatusUpdate,
    StepFunctionsError,
    timestamp,
)
from prismline_runtime import Delivery, Message, PermanentError, TransientError
from prismline_status.announcements import announce
from prismline_status.dependencies import Dependencies
from prismline_status.draining import answer_if_drained, counts, refuse_to_wait
from prismline_status.executions import percent_text
from prismline_status.transitions import stored_status
from prismline_status.update import change_status, update_status
from prismline_status.workflow_state import RunState

#: What is said of a run whose execution ended without ending the run, by the execution's status.
EXECUTION_ENDS = {
    "FAILED": "The state machine execution failed before the run had ended",
    "TIMED_OUT": "The state machine execution timed out before the run had ended",
    "ABORTED": "The state machine execution was stopped before the run had ended",
}


def on_run_submitted(submitted: RunSubmitted, message: Message, deps: Dependencies) -> None:
    """Give the run its item and start its execution."""
    now = timestamp()
    created = deps.table.create(
        RunState(
            run_id=submitted.run_id,
            status="pending",
            created_at=now,
            updated_at=now,
            job_id=submitted.job_id,
            survey=submitted.survey,
            workload=submitted.workload,
            trace_id=message.envelope.trace_id,
            traceparent=message.envelope.traceparent,
            tolerated_failure_percent=str(submitted.tolerated_failure_percent),
        )
    )
    if created or _is_pending(submitted.run_id, deps):
        deps.executions.start(submitted, message.envelope.traceparent)


def _is_pending(run_id: str, deps: Dependencies) -> bool:
    run = deps.table.get(run_id)
    return run is not None and run.status == stored_status(RunStatus.PENDING)


def on_run_split_completed(split: RunSplitCompleted, _message: Message, deps: Dependencies) -> None:
    """A run that ended before the ledger knew it is stopped there now."""
    run = deps.table.get(split.run_id)
    if run is not None and run.terminal:
        _stop_chunks(split.run_id, deps)


def on_run_drained(drained: RunDrained, _message: Message, deps: Dependencies) -> None:
    """Answer the task that waits for it. If none does yet, it will look at the ledger itself.

    A run whose execution is gone, which happens to an emulator's, is ended as the execution would have done.
    """
    run = deps.table.get(drained.run_id)
    if run is None or run.terminal:
        return
    if run.waiting_token is not None and answer_if_drained(run.run_id, run.waiting_token, deps):
        return
    if not deps.executions.is_running(run.run_id):
        deps.logger.warning("run_ended_without_execution", extra={"run_id": run.run_id})
        for update in _ending(run, drained):
            update_status(update, deps)


def _ending(run: RunState, drained: RunDrained) -> list[StatusUpdate]:
    """What the state machine sends for a run that has drained."""
    tolerated, now = float(run.tolerated_failure_percent or 0), timestamp()
    if drained.failed_percent > tolerated:
        cause = f"{counts(drained)['summary']}, {percent_text(tolerated)} are tolerated."
        error = StepFunctionsError(Error="TooManyFailures", Cause=cause)
        return [StatusUpdate(job_id=run.run_id, status="FAILED", completed_at=now, error=error)]
    completed = StatusUpdate(job_id=run.run_id, status="COMPLETED", completed_at=now)
    if run.status == stored_status(RunStatus.PENDING):
        return [StatusUpdate(job_id=run.run_id, status="RUNNING", started_at=now), completed]
    return [completed]


def on_run_recovered(recovered: RunRecovered, _message: Message, deps: Dependencies) -> None:
    """Complete a run that had failed for its chunks, now that no more have failed than it tolerates.

    Its state machine has ended and is not needed: the ledger says how many chunks failed, the item how many may.
    """
    run, item = deps.table.get(recovered.run_id), deps.ledger.get_run(recovered.run_id)
    if run is None or item is None or item.drained_at is None:
        return
    tolerated = float(run.tolerated_failure_percent or 0)
    if run.status == stored_status(RunStatus.FAILED) and RunDrained.of(item).failed_percent <= tolerated:
        completed = deps.table.complete_recovered(run.run_id)
        deps.logger.info("run_completed_by_recovery", extra={"run_id": run.run_id})
        run = completed or deps.table.get(run.run_id) or run
    announce(run, deps)


def on_cancel_requested(request: RunCancelRequested, _message: Message, deps: Dependencies) -> None:
    """Cancel the run unless it has ended: its chunks are skipped, its execution stops."""
    cancel = StatusUpdate(job_id=request.run_id, status="CANCELLED", completed_at=timestamp())
    run = _end_run(cancel, deps)
    if run is None:
        raise TransientError(f"Run {request.run_id} cannot be cancelled: it is not known, or not known yet.")
    if run.status != stored_status(RunStatus.CANCELLED):
        deps.logger.info("cancel_came_too_late", extra={"run_id": run.run_id, "status": run.status})
        return
    _stop_chunks(run.run_id, deps)
    announce(run, deps)
    deps.executions.stop(run.run_id, "The run was cancelled.")
    if run.waiting_token is not None:
        refuse_to_wait(run.waiting_token, deps)


def on_cleanup_requested(request: RunCleanupRequested, _message: Message, deps: Dependencies) -> None:
    """The run is about to fail: what is left of its chunks is skipped."""
    _stop_chunks(request.run_id, deps)


def on_execution_ended(event: dict[str, Any], _delivery: Delivery, deps: Dependencies) -> None:
    """Fail the run of an execution that failed, timed out or was stopped, unless the run has ended."""
    try:
        detail = event["detail"]
        run_id, arn, end = detail["name"], detail["executionArn"], EXECUTION_ENDS[detail["status"]]
    except (KeyError, TypeError) as error:
        raise PermanentError(f"The execution's status-change event is not as expected: {error}.") from error
    reason = ": ".join(part for part in (end, detail.get("error"), detail.get("cause")) if part)
    run = _end_run(
        StatusUpdate(
            job_id=run_id,
            status="FAILED",
            execution_arn=arn,
            completed_at=timestamp(),
            error=f"{reason.removesuffix('.')}.",
        ),
        deps,
    )
    if run is None or not run.terminal:
        deps.logger.info("execution_of_no_run_of_ours", extra={"execution_arn": arn})
        return
    _stop_chunks(run_id, deps)
    announce(run, deps)


def _end_run(update: StatusUpdate, deps: Dependencies) -> RunState | None:
    """The run, ended by `update` unless it had ended before or does not allow it. None: there is no such run."""
    run = deps.table.get(update.run_id)
    if run is None or run.terminal:
        return run
    applied = change_status(update, deps)
    return deps.table.get(update.run_id) if applied is None else applied.after


def _stop_chunks(run_id: str, deps: Dependencies) -> None:
    run = deps.ledger.get_run(run_id)
    if run is not None and run.drained_at is None:
        deps.ledger.stop_run(run_id)
