"""Applies a status update: validate, write conditionally, count, announce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from pydantic import ValidationError

from prismline_contracts.commands import RunStatus, StatusUpdate
from prismline_contracts.events import RunCheckRequested
from prismline_runtime import PrismlineError, describe_invalid, service_metrics
from prismline_status.announcements import announce
from prismline_status.dependencies import UpdateDependencies
from prismline_status.transitions import not_understood, stored_status
from prismline_status.workflow_state import Applied

#: Namespace of the metrics, after `Prismline/`.
METRICS_SUFFIX = "WorkflowStatus"
#: Reason in the response for an update that was not allowed.
STALE = "stale_or_invalid_transition"
#: Statuses that the metric `JobsTerminated` counts.
TERMINATING = frozenset({RunStatus.COMPLETED, RunStatus.FAILED})


@dataclass(frozen=True)
class LambdaResponse:
    """The response to a state machine that calls the function directly."""

    status_code: int
    body: dict[str, Any]

    def to_step_functions(self) -> dict[str, Any]:
        """The response as the state machine reads it."""
        return {"statusCode": self.status_code, "body": self.body}


def update_status(input: StatusUpdate | Any, deps: UpdateDependencies) -> LambdaResponse:  # noqa: A002
    """Apply a status update for a state machine that calls the function directly.

    An update that is not allowed (stale, or from another execution) gets 200 and `updated: false`, because a retry
    would not help. An invalid input gets 400. This function does not announce terminal statuses. It publishes
    `run.check.requested`, and the queue handler, which can read the ledger, announces them. Raises TransientError if
    AWS does not answer.
    """
    environment = deps.transport.environment
    try:
        update = input if isinstance(input, StatusUpdate) else StatusUpdate.model_validate(input)
        wrong = not_understood(update)
    except ValidationError as error:
        wrong = f"The status update is invalid: {describe_invalid(error)}."
    if wrong is not None:
        count_update("unknown", success=False, environment=environment)
        return LambdaResponse(400, {"success": False, "error": wrong, "environment": environment})
    applied = change_status(update, deps)
    if applied is not None and not applied.after.terminal:
        announce(applied.after, deps)
    elif applied is not None and applied.after.announced != applied.after.status:
        check = RunCheckRequested(run_id=update.run_id)
        deps.transport.publish_event(check, traceparent=applied.after.traceparent)
    return response(update, environment, updated=applied is not None)


def response(update: StatusUpdate, environment: str, *, updated: bool) -> LambdaResponse:
    """The response to a valid update."""
    data: dict[str, Any] = {"job_id": update.job_id, "status": stored_status(RunStatus(update.status))}
    data |= {"updated": True} if updated else {"updated": False, "reason": STALE}
    return LambdaResponse(200, {"success": True, "data": data, "environment": environment})


def change_status(update: StatusUpdate, deps: UpdateDependencies) -> Applied | None:
    """Write and count `update`. None if it is not allowed. The caller has to announce the status."""
    status, environment = RunStatus(update.status), deps.transport.environment
    try:
        applied = deps.table.apply(update)
    except PrismlineError:
        count_update(stored_status(status), success=False, environment=environment)
        raise
    count_update(stored_status(status), success=applied is not None, environment=environment)
    if applied is None:
        deps.logger.warning("status_update_rejected", extra={"run_id": update.run_id, "status": stored_status(status)})
        return None
    deps.logger.info("status_updated", extra={"run_id": update.run_id, "status": applied.after.status})
    if status in TERMINATING and applied.before.status != applied.after.status:
        _count("JobsTerminated", Status=applied.after.status, Environment=environment)
    return applied


def count_update(status: str, *, success: bool, environment: str) -> None:
    """Count a status update. A rejected update counts as not successful."""
    _count("StatusUpdates", Status=status, Success=str(success).lower(), Environment=environment)


def _count(metric: str, **dimensions: str) -> None:
    with service_metrics(METRICS_SUFFIX) as metrics:
        for name, value in dimensions.items():
            metrics.add_dimension(name=name, value=value)
        metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)
