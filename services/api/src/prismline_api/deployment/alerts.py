"""The alerts of this deployment: the state of its alarms, their changes, and the mute.

The mute is one SSM parameter, whose name and format are a contract. Slash commands, the command line and this service
write it, and the alerting service reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from botocore.exceptions import ClientError
from pydantic import Field

from prismline_api.models import Request, Response
from prismline_contracts.alerts import (
    DEFAULT_MUTE,
    MAX_MUTE_DAYS,
    NOT_MUTED,
    muted_until_parameter,
    parse_muted_until,
)
from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import queue_name
from prismline_runtime import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_ssm import SSMClient

#: Most changes of alarms in an answer, and most changes that are searched for them: the account has other alarms, too.
MOST_CHANGES, MOST_LOOKED_THROUGH = 100, 500
#: Changes that CloudWatch returns at a time.
CHANGES_PER_PAGE = 100


class MuteRequest(Request):
    """How long alerts are muted."""

    model_config = Request.model_config | {"json_schema_extra": {"examples": [{"duration": "4h"}]}}

    duration: Annotated[
        str,
        Field(
            pattern=r"^[0-9]{1,9}[mhd]$",
            description=f"A whole number and m, h or d, such as 30m, 4h or 2d; {MAX_MUTE_DAYS}d at most.",
        ),
    ] = DEFAULT_MUTE


class MuteView(Response):
    """Whether alerts are muted."""

    muted: bool
    muted_until: Annotated[str | None, Field(description="The end of the mute. Absent: nothing is muted.")] = None
    muted_problem: Annotated[
        str | None, Field(description="Why the mute cannot be read. Nothing is muted then. Unmuting repairs it.")
    ] = None


class AlarmView(Response):
    """An alarm of this deployment."""

    name: str
    state: Annotated[str, Field(description="`OK`, `ALARM` or `INSUFFICIENT_DATA`.", examples=["OK"])]
    since: Annotated[str | None, Field(description="When it changed to this state.")] = None
    description: str
    reason: Annotated[str, Field(description="CloudWatch's reason for this state.")]
    queue: Annotated[str | None, Field(description="Short name of the queue that it watches.")] = None
    threshold: float | None = None


class AlarmChange(Response):
    """An alarm that changed its state."""

    name: str
    at: str
    before: str
    after: str
    reason: str


class AlertsView(MuteView):
    """The alarms, their changes, and the mute."""

    alarms: Annotated[list[AlarmView], Field(description="Alarms that are on come first, then by name.")]
    changes: Annotated[list[AlarmChange], Field(description="The latest changes, the newest first.")]


class Alerts:
    """Reads alarms, and reads and writes the mute. Raises TransientError if AWS does not answer."""

    def __init__(
        self,
        ssm: SSMClient,
        cloudwatch: CloudWatchClient,
        environment: str,
        *,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._ssm = ssm
        self._cloudwatch = cloudwatch
        self._parameter = muted_until_parameter(environment)
        self._prefix = queue_name(environment, "")
        self._clock = clock

    def view(self) -> AlertsView:
        """The alarms, their changes, and the mute."""
        return AlertsView(**self.mute().model_dump(), alarms=self._alarms(), changes=self._changes())

    def mute(self) -> MuteView:
        """The mute as it is now."""
        with aws_errors(f"read the parameter {self._parameter}"):
            try:
                value = self._ssm.get_parameter(Name=self._parameter)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) != "ParameterNotFound":
                    raise
                value = NOT_MUTED
        try:
            until = parse_muted_until(value)
        except ValueError as error:
            return MuteView(muted=False, muted_problem=str(error))
        return self._muted(until)

    def mute_for(self, seconds: int) -> MuteView:
        """Mute alerts from now on for `seconds`. 0 unmutes them."""
        until = int(self._clock().timestamp()) + seconds if seconds else 0
        with aws_errors(f"write the parameter {self._parameter}"):
            self._ssm.put_parameter(Name=self._parameter, Value=str(until), Type="String", Overwrite=True)
        return self._muted(until)

    def _muted(self, until: int) -> MuteView:
        if until <= self._clock().timestamp():
            return MuteView(muted=False)
        return MuteView(muted=True, muted_until=timestamp(datetime.fromtimestamp(until, UTC)))

    def _alarms(self) -> list[AlarmView]:
        with aws_errors("read the alarms"):
            pages = self._cloudwatch.get_paginator("describe_alarms").paginate(
                AlarmNamePrefix=self._prefix, AlarmTypes=["MetricAlarm"]
            )
            found: list[Any] = [alarm for page in pages for alarm in page["MetricAlarms"]]
        return sorted(map(self._alarm, found), key=lambda alarm: (alarm.state != "ALARM", alarm.name))

    def _alarm(self, alarm: dict[str, Any]) -> AlarmView:
        stats = [query["MetricStat"]["Metric"] for query in alarm.get("Metrics", []) if "MetricStat" in query]
        watched = [alarm, *stats]
        queues = [each["Value"] for one in watched for each in one.get("Dimensions", []) if each["Name"] == "QueueName"]
        since = alarm.get("StateTransitionedTimestamp") or alarm.get("StateUpdatedTimestamp")
        return AlarmView(
            name=alarm["AlarmName"],
            state=alarm["StateValue"],
            since=timestamp(since) if since else None,
            description=alarm.get("AlarmDescription", ""),
            reason=alarm.get("StateReason", ""),
            queue=queues[0].removeprefix(self._prefix) if queues else None,
            threshold=alarm.get("Threshold"),
        )

    def _changes(self) -> list[AlarmChange]:
        with aws_errors("read the history of the alarms"):
            return list(islice(self._walk_changes(), MOST_CHANGES))

    def _walk_changes(self) -> Iterator[AlarmChange]:
        pages = self._cloudwatch.get_paginator("describe_alarm_history").paginate(
            HistoryItemType="StateUpdate",
            ScanBy="TimestampDescending",
            PaginationConfig={"PageSize": CHANGES_PER_PAGE, "MaxItems": MOST_LOOKED_THROUGH},
        )
        for entry in (entry for page in pages for entry in page["AlarmHistoryItems"]):
            if entry["AlarmName"].startswith(self._prefix):
                data = json.loads(entry["HistoryData"])
                yield AlarmChange(
                    name=entry["AlarmName"],
                    at=timestamp(entry["Timestamp"]),
                    before=data["oldState"]["stateValue"],
                    after=data["newState"]["stateValue"],
                    reason=data["newState"].get("stateReason", ""),
                )
