"""Which status may follow which, as conditions and changes of a DynamoDB item. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts import MAX_RUN_ERROR_CHARS, RunStatus, StatusUpdate, StepFunctionsError

#: The statuses from which each status may be reached. A repeat of an update is always allowed.
ALLOWED_FROM: Mapping[RunStatus, tuple[RunStatus, ...]] = {
    RunStatus.PENDING: (RunStatus.PENDING,),
    RunStatus.RUNNING: (RunStatus.PENDING, RunStatus.RUNNING),
    RunStatus.COMPLETED: (RunStatus.RUNNING, RunStatus.COMPLETED),
    RunStatus.FAILED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.FAILED),
    RunStatus.CANCELLED: (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLED),
}
#: What is said of a run that failed when whoever failed it did not say why.
NO_REASON = "The run failed; no reason was given."

#: Fields of an update that are written as they are when they were given.
_OPTIONAL_FIELDS = ("execution_arn", "started_at", "completed_at", "ecs_task_arn", "trace_id")


@dataclass(frozen=True)
class Expression:
    """A DynamoDB expression with the names and values that it refers to, and no others: DynamoDB refuses those."""

    text: str
    names: Mapping[str, str]
    values: Mapping[str, str]


def stored_status(status: RunStatus) -> str:
    """The status as the table holds it."""
    return status.value.lower()


def build_transition_condition(target: RunStatus, execution_arn: str | None = None) -> Expression:
    """The condition under which a run may go to `target`.

    With `execution_arn`, only if no other execution has claimed the run.
    """
    sources = {f":from_{stored_status(source)}": stored_status(source) for source in ALLOWED_FROM[target]}
    text = f"attribute_exists(run_id) AND #status IN ({', '.join(sources)})"
    if execution_arn is None:
        return Expression(text, {"#status": "status"}, sources)
    text += " AND (attribute_not_exists(execution_arn) OR execution_arn = :arn)"
    return Expression(text, {"#status": "status"}, sources | {":arn": execution_arn})


def changed_fields(update: StatusUpdate, now: str) -> dict[str, str]:
    """The attributes that `update` writes."""
    fields = {"status": stored_status(RunStatus(update.status)), "updated_at": now}
    fields |= {name: value for name in _OPTIONAL_FIELDS if (value := getattr(update, name)) is not None}
    if update.status == RunStatus.FAILED:
        fields["error_message"] = error_message(update.error)
    return fields


def build_update(fields: Mapping[str, str]) -> Expression:
    """The update that sets `fields`. `status` is a reserved word of DynamoDB and goes by a name."""
    names = {"#status": "status"} if "status" in fields else {}
    assignments = (f"{'#status' if name == 'status' else name} = :{name}" for name in fields)
    return Expression(f"SET {', '.join(assignments)}", names, {f":{name}": value for name, value in fields.items()})


def error_message(error: StepFunctionsError | str | None) -> str:
    """What a run's item says of `error`: its text, or `Error: Cause` of a state machine's, cut to 2,000 characters."""
    if isinstance(error, StepFunctionsError):
        error = ": ".join(part for part in (error.Error, error.Cause) if part)
    return (error or NO_REASON)[:MAX_RUN_ERROR_CHARS]
