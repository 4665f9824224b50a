"""One status update: validate, write under a condition, count, have it told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from pydantic import ValidationError

from prismline_contracts import RunCheckRequested, RunStatus, StatusUpdate
from prismline_runtime import PrismlineError, describe_invalid, service_metrics
from prismline_status.announcements import announce
from prismline_status.dependencies import UpdateDependencies
from prismline_status.transitions import stored_status
from prismline_status.workflow_state import Applied

#: Namespace of the metrics, after `Prismline/`.
METRICS_SUFFIX = "WorkflowStatus"
#: Why an update was not carried out.
STALE = "stale_or_invalid_transition"
#: Statuses whose first arrival counts as a terminated job.
TERMINATING = frozenset({RunStatus.COMPLETED, RunStatus.FAILED})


@dataclass(frozen=True)
class LambdaResponse:
    """What a state machine gets back from a function."""

    status_code: int
    body: dict[str, Any]

    def to_step_functions(self) -> dict[str, Any]:
        """The response as Step Functions reads it."""
        return {"statusCode": self.status_code, "body": self.body}


def update_status(input: StatusUpdate | Any, deps: UpdateDependencies) -> LambdaResponse:  # noqa: A002
    """Change a run's status for a state machine that calls the function directly, if that is allowed.

    An update that is not allowed (stale, or of another execution) is answered with 200 and `updated: false`, because
    repeating it would never help; an invalid input with 400. A run that has ended is told by the queue's consumer,
    which knows the ledger and is asked to look at the run. Raises TransientError when AWS cannot be reached.
    """
    environment = deps.transport.environment
    try:
        update = input if isinstance(input, StatusUpdate) else StatusUpdate.model_validate(input)
    except ValidationError as error:
        count_update("unknown", success=False, environment=environment)
        body = {"success": False, "error": f"The status update is invalid: {describe_invalid(error)}."}
        return LambdaResponse(400, {**body, "environment": environment})
    applied = change_status(update, deps)
    if applied is not None and not applied.after.terminal:
        announce(applied.after, deps)
    elif applied is not None and applied.after.announced != applied.after.status:
        check = RunCheckRequested(run_id=update.run_id)
        deps.transport.publish(deps.transport.wrap(check, traceparent=applied.after.traceparent))
    return response(update, environment, updated=applied is not None)


def response(update: StatusUpdate, environment: str, *, updated: bool) -> LambdaResponse:
    """The answer to an update that was valid."""
    data: dict[str, Any] = {"job_id": update.job_id, "status": stored_status(RunStatus(update.status))}
    data |= {"updated": True} if updated else {"updated": False, "reason": STALE}
    return LambdaResponse(200, {"success": True, "data": data, "environment": environment})


def change_status(update: StatusUpdate, deps: UpdateDependencies) -> Applied | None:
    """Write and count `update`; the caller tells it. None: it is not allowed."""
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
    """Count an attempt at a status update; one that was rejected is no success."""
    _count("StatusUpdates", Status=status, Success=str(success).lower(), Environment=environment)


def _count(metric: str, **dimensions: str) -> None:
    with service_metrics(METRICS_SUFFIX) as metrics:
        for name, value in dimensions.items():
            metrics.add_dimension(name=name, value=value)
        metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)
