"""The allowed transitions of a run's status, as conditions and changes of a DynamoDB item. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from boto3.dynamodb.conditions import Attr, ConditionBase

from prismline_contracts.commands import RunStatus, StatusUpdate, StepFunctionsError
from prismline_contracts.items import MAX_RUN_ERROR_CHARS
from prismline_runtime import Change

#: The statuses from which each status may be reached. A repeated update is always allowed.
ALLOWED_FROM: Mapping[RunStatus, tuple[RunStatus, ...]] = {
    RunStatus.PENDING: (RunStatus.PENDING,),
    RunStatus.RUNNING: (RunStatus.PENDING, RunStatus.RUNNING),
    RunStatus.COMPLETED: (RunStatus.RUNNING, RunStatus.COMPLETED),
    RunStatus.FAILED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.FAILED),
    RunStatus.CANCELLED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLED),
}
#: Terminal statuses. A run leaves one in two cases: a failed run whose chunks are recovered becomes completed, and a
#: cancelled run that a person continued becomes completed or failed.
TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
#: What the task token of an update may wait for.
DRAINED = "drained"
#: The error message of a failed run whose update gave no reason.
NO_REASON = "The run failed; no reason was given."

#: Optional fields of an update that are written unchanged.
_OPTIONAL_FIELDS = ("execution_arn", "started_at", "completed_at", "ecs_task_arn", "trace_id")
#: Fields that keep the value of the first update that ended the run.
_FIRST_STAYS = frozenset({"completed_at", "error_message"})


def stored_status(status: RunStatus) -> str:
    """The status in the form in which the table stores it."""
    return status.value.lower()


def not_understood(update: StatusUpdate) -> str | None:
    """Why only a newer release of this service understands `update`. None if this one does."""
    if update.status not in set(RunStatus):
        return f"The status {update.status} is not known here."
    return None if update.wait_for in (None, DRAINED) else f"The value {update.wait_for} of wait_for is not known here."


def build_transition_condition(target: RunStatus, execution_arn: str | None = None) -> ConditionBase:
    """The condition under which a run may change to `target`.

    With `execution_arn`, the condition also requires that no other execution has claimed the run. The expression has no
    unused values, because DynamoDB refuses those.
    """
    sources = [stored_status(source) for source in ALLOWED_FROM[target]]
    condition = Attr("run_id").exists() & Attr("status").is_in(sources)
    if execution_arn is None:
        return condition
    return condition & (Attr("execution_arn").not_exists() | Attr("execution_arn").eq(execution_arn))


def build_change(update: StatusUpdate, now: str) -> Change:
    """The conditional change of the run's item that applies `update`.

    The reason and the time of an end keep their first values, so that a later update does not overwrite them.
    """
    status = RunStatus(update.status)
    given = {name: value for name in _OPTIONAL_FIELDS if (value := getattr(update, name)) is not None}
    if status is RunStatus.FAILED:
        given["error_message"] = error_message(update.error)
    first = _FIRST_STAYS if status in TERMINAL else frozenset()
    return Change(
        {
            "status": stored_status(status),
            "updated_at": now,
            **{name: value for name, value in given.items() if name not in first},
        },
        defaults={name: value for name, value in given.items() if name in first},
        condition=build_transition_condition(status, update.execution_arn),
    )


def error_message(error: StepFunctionsError | str | None) -> str:
    """The text of `error` for the run's item, cut to 2,000 characters. A state machine's error is `Error: Cause`."""
    if isinstance(error, StepFunctionsError):
        error = ": ".join(part for part in (error.Error, error.Cause) if part)
    return (error or NO_REASON)[:MAX_RUN_ERROR_CHARS]
