"""Reads the current state of an alarm from CloudWatch, when the message about it is no longer fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from prismline_alerting.alerts import Alert, alert_of_metric_alarm
from prismline_runtime import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient


class Alarms:
    """CloudWatch's metric alarms. Raises TransientError if CloudWatch does not answer."""

    def __init__(self, cloudwatch: CloudWatchClient) -> None:
        self._cloudwatch = cloudwatch

    def look_up(self, name: str) -> Alert | None:
        """The current state of the alarm, or None if it was deleted."""
        with aws_errors(f"read the alarm {name}"):
            found = self._cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=["MetricAlarm"])["MetricAlarms"]
        return alert_of_metric_alarm(cast("dict[str, Any]", found[0])) if found else None
