"""Handles events about a run: submitted, cancelled, cleaned up, execution ended.

All other events about a run only cause a check of the run, by `check_run`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from prismline_contracts.base import RunId, timestamp
from prismline_contracts.commands import RunStatus, StatusUpdate
from prismline_contracts.envelope import MessageData
from prismline_contracts.events import RunCancelRequested, RunCleanupRequested, RunSubmitted
from prismline_runtime import Delivery, Message, PermanentError, TransientError, describe_invalid
from prismline_status.dependencies import Dependencies
from prismline_status.endings import CANCELLED, may_cancel_again
from prismline_status.run_check import check_run
from prismline_status.transitions import stored_status
from prismline_status.update import change_status
from prismline_status.workflow_state import RunState

#: The error of a run whose execution ended before the run did, by the execution's status.
EXECUTION_ENDS = {
    "FAILED": "The state machine execution failed before the run had ended",
    "TIMED_OUT": "The state machine execution timed out before the run had ended",
    "ABORTED": "The state machine execution was stopped before the run had ended",
}


class _Ended(BaseModel):
    run_id: RunId = Field(validation_alias="name")
    arn: str = Field(validation_alias="executionArn", min_length=1, max_length=512)
    status: Literal["FAILED", "TIMED_OUT", "ABORTED"]
    error: str | None = None
    cause: str | None = None


class ExecutionChange(BaseModel):
    """The fields that are used of Step Functions' event about an execution that ended."""

    detail: _Ended


def on_run_submitted(submitted: RunSubmitted, message: Message, deps: Dependencies) -> None:
    """Create the run's item and start its execution. The run was created when it was announced, not when it is read."""
    now = timestamp()
    created = deps.table.create(
        RunState(
            run_id=submitted.run_id,
            status="pending",
            created_at=min(message.envelope.time, now),
            updated_at=now,
            job_id=submitted.job_id,
            survey=submitted.survey,
            workload=submitted.workload,
            trace_id=message.envelope.trace_id,
            traceparent=message.envelope.traceparent,
            tolerated_failure_percent=str(submitted.tolerated_failure_percent),
            tolerated_failures=submitted.tolerated_failures,
        )
    )
    if created or _is_pending(submitted.run_id, deps):
        deps.executions.start(submitted, message.envelope.traceparent)


def _is_pending(run_id: str, deps: Dependencies) -> bool:
    run = deps.table.get(run_id)
    return run is not None and run.status == stored_status(RunStatus.PENDING)


def on_run_changed(data: MessageData, _message: Message, deps: Dependencies) -> None:
    """Check whether the run has ended, after it was split, drained or recovered, or at the sweeper's request.

    Only the run's id is taken from the message. The ledger has the current facts.
    """
    check_run(data.run_id, deps)


def on_cancel_requested(request: RunCancelRequested, _message: Message, deps: Dependencies) -> None:
    """Cancel the run, unless it has ended. Its remaining chunks are skipped and its execution is stopped.

    A cancelled run that a person continued is stopped again.
    """
    run = _end_run(StatusUpdate(job_id=request.run_id, status="CANCELLED", completed_at=timestamp()), deps)
    if run is None:
        raise TransientError(f"Run {request.run_id} cannot be cancelled: it is not known, or not known yet.")
    if run.status != CANCELLED:
        deps.logger.info("cancel_came_too_late", extra={"run_id": run.run_id, "status": run.status})
    elif request.uncancelled_at is not None:
        _cancel_again(request, deps)
    check_run(run.run_id, deps)


def _cancel_again(request: RunCancelRequested, deps: Dependencies) -> None:
    """Stop a cancelled run that a person continued, unless the request is older than that.

    The status is written again first, so that a concurrent handler that is about to complete or fail the run finds the
    item changed. A run that has drained since it was read is not stopped: it may have ended meanwhile, and a recovery
    may have reopened its chunks.
    """
    seen, run = request.uncancelled_at, deps.ledger.get_run(request.run_id)
    if run is None or not may_cancel_again(seen, run):
        return
    if change_status(StatusUpdate(job_id=request.run_id, status="CANCELLED"), deps) is not None:
        deps.ledger.stop_run(request.run_id, "cancelled", uncancelled_at=seen, drains=run.drains)


def on_cleanup_requested(request: RunCleanupRequested, _message: Message, deps: Dependencies) -> None:
    """Stop a run that is about to fail, so that its remaining chunks are skipped.

    A late request, for a run that has ended, does nothing, because a recovery may have reopened the chunks.
    """
    run = deps.table.get(request.run_id)
    if run is not None and not run.terminal:
        deps.ledger.stop_run(request.run_id, "failed")
    check_run(request.run_id, deps)


def on_execution_ended(event: dict[str, Any], _delivery: Delivery, deps: Dependencies) -> None:
    """Fail the run of an execution that failed, timed out or was stopped, unless the run has ended or drained.

    The status of a drained run follows from the ledger.
    """
    try:
        ended = ExecutionChange.model_validate(event).detail
    except ValidationError as error:
        raise PermanentError(f"The execution's status-change event is invalid: {describe_invalid(error)}.") from error
    run = deps.ledger.get_run(ended.run_id)
    if run is None or run.drained_at is None:
        reason = ": ".join(part for part in (EXECUTION_ENDS[ended.status], ended.error, ended.cause) if part)
        failed = StatusUpdate(
            job_id=ended.run_id,
            status="FAILED",
            execution_arn=ended.arn,
            completed_at=timestamp(),
            error=f"{reason.removesuffix('.')}.",
        )
        state = _end_run(failed, deps)
        if state is None or not state.terminal:
            deps.logger.info("execution_without_run", extra={"execution_arn": ended.arn})
            return
    check_run(ended.run_id, deps)


def _end_run(update: StatusUpdate, deps: Dependencies) -> RunState | None:
    """Apply `update`, which ends the run, if it is allowed. Return the run, or None if there is no such run."""
    run = deps.table.get(update.run_id)
    if run is None or run.terminal:
        return run
    applied = change_status(update, deps)
    return deps.table.get(update.run_id) if applied is None else applied.after
