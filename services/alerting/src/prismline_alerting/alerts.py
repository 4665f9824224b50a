"""Alerts: an alarm that changed its state, or a run that failed. Pure: converts messages to `Alert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from prismline_contracts.events import RunFailed
from prismline_runtime import PermanentError, describe_invalid


class State(StrEnum):
    """The states of a CloudWatch alarm. A failed run is in ALARM."""

    ALARM = "ALARM"
    OK = "OK"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True)
class Alert:
    """One change of the state of an alarm or run."""

    #: The alarm or run: `alarms/<name>` or `runs/<run id>`.
    subject: str
    state: State
    #: When it changed.
    at: datetime
    #: The alarm's name or the run's id.
    name: str
    #: The alarm's description.
    what: str = ""
    #: Why it changed: CloudWatch's reason or the run's error.
    reason: str = ""
    #: The full name of the queue that the alarm watches.
    queue: str | None = None
    threshold: float | None = None
    run_id: str | None = None


class _Dimension(BaseModel):
    name: str = Field(validation_alias=AliasChoices("name", "Name"))
    value: str = Field(validation_alias=AliasChoices("value", "Value"))


class _Metric(BaseModel):
    dimensions: list[_Dimension] = Field(default=[], alias="Dimensions")


class _MetricStat(BaseModel):
    metric: _Metric = Field(alias="Metric")


class _Query(BaseModel):
    stat: _MetricStat | None = Field(default=None, alias="MetricStat")


class _Trigger(BaseModel):
    """What an alarm watches: one metric, or an expression over several metrics."""

    dimensions: list[_Dimension] | None = Field(default=None, alias="Dimensions")
    metrics: list[_Query] | None = Field(default=None, alias="Metrics")
    threshold: float | None = Field(default=None, alias="Threshold")

    @property
    def queue(self) -> str | None:
        """The value of the first dimension `QueueName`."""
        dimensions = [*(self.dimensions or ())]
        for query in self.metrics or ():
            dimensions += query.stat.metric.dimensions if query.stat else ()
        return next((dimension.value for dimension in dimensions if dimension.name == "QueueName"), None)


class _Change(BaseModel):
    """CloudWatch's message to an SNS topic when an alarm changes its state."""

    name: str = Field(alias="AlarmName", min_length=1)
    description: str | None = Field(default=None, alias="AlarmDescription")
    state: State = Field(alias="NewStateValue")
    reason: str = Field(default="", alias="NewStateReason")
    at: datetime = Field(alias="StateChangeTime")
    trigger: _Trigger = Field(default=_Trigger(), alias="Trigger")


def alert_of_notification(document: Mapping[str, Any]) -> Alert:
    """The alert in an SNS notification. Raises PermanentError if it is not about an alarm."""
    try:
        change = _Change.model_validate_json(str(document.get("Message")))
    except ValidationError as error:
        raise PermanentError(
            f"The notification of the alarm topic is not a CloudWatch alarm: {describe_invalid(error)}."
        ) from error
    return Alert(
        subject=f"alarms/{change.name}",
        state=change.state,
        at=_utc(change.at),
        name=change.name,
        what=change.description or "",
        reason=change.reason,
        queue=change.trigger.queue,
        threshold=change.trigger.threshold,
    )


def alert_of_metric_alarm(alarm: Mapping[str, Any]) -> Alert:
    """The alert for an alarm in a response of CloudWatch's `DescribeAlarms`."""
    trigger = _Trigger.model_validate(alarm)
    return Alert(
        subject=f"alarms/{alarm['AlarmName']}",
        state=State(alarm["StateValue"]),
        at=_utc(alarm.get("StateTransitionedTimestamp") or alarm["StateUpdatedTimestamp"]),
        name=alarm["AlarmName"],
        what=alarm.get("AlarmDescription", ""),
        reason=alarm.get("StateReason", ""),
        queue=trigger.queue,
        threshold=trigger.threshold,
    )


def alert_of_failed_run(run: RunFailed) -> Alert:
    """The alert for a failed run."""
    return Alert(
        subject=f"runs/{run.run_id}",
        state=State.ALARM,
        at=datetime.fromisoformat(run.completed_at),
        name=run.run_id,
        reason=run.error,
        run_id=run.run_id,
    )


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
