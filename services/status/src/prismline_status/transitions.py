"""Which status may follow which, as conditions and changes of a DynamoDB item. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping

from boto3.dynamodb.conditions import Attr, ConditionBase

from prismline_contracts import MAX_RUN_ERROR_CHARS, RunStatus, StatusUpdate, StepFunctionsError
from prismline_runtime import Change

#: The statuses from which each status may be reached. A repeat of an update is always allowed.
ALLOWED_FROM: Mapping[RunStatus, tuple[RunStatus, ...]] = {
    RunStatus.PENDING: (RunStatus.PENDING,),
    RunStatus.RUNNING: (RunStatus.PENDING, RunStatus.RUNNING),
    RunStatus.COMPLETED: (RunStatus.RUNNING, RunStatus.COMPLETED),
    RunStatus.FAILED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.FAILED),
    RunStatus.CANCELLED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLED),
}
#: Statuses that a run never leaves; but that a failed run whose chunks are recovered completes.
TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
#: What is said of a run that failed when whoever failed it did not say why.
NO_REASON = "The run failed; no reason was given."

#: Fields of an update that are written as they are when they were given.
_OPTIONAL_FIELDS = ("execution_arn", "started_at", "completed_at", "ecs_task_arn", "trace_id")
#: Fields that the first update that ends a run decides.
_FIRST_STAYS = frozenset({"completed_at", "error_message"})


def stored_status(status: RunStatus) -> str:
    """The status as the table holds it."""
    return status.value.lower()


def build_transition_condition(target: RunStatus, execution_arn: str | None = None) -> ConditionBase:
    """The condition under which a run may go to `target`. It holds no value that it does not refer to: DynamoDB
    refuses those.

    With `execution_arn`, only if no other execution has claimed the run.
    """
    sources = [stored_status(source) for source in ALLOWED_FROM[target]]
    condition = Attr("run_id").exists() & Attr("status").is_in(sources)
    if execution_arn is None:
        return condition
    return condition & (Attr("execution_arn").not_exists() | Attr("execution_arn").eq(execution_arn))


def build_change(update: StatusUpdate, now: str) -> Change:
    """What `update` writes, if the run may go to its status.

    The reason and the moment of an end stay as they were first told, so that a repeat that says less, or something
    else, does not hide them.
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
    """What a run's item says of `error`: its text, or `Error: Cause` of a state machine's, cut to 2,000 characters."""
    if isinstance(error, StepFunctionsError):
        error = ": ".join(part for part in (error.Error, error.Cause) if part)
    return (error or NO_REASON)[:MAX_RUN_ERROR_CHARS]
