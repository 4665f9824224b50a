"""Parses alarms from CloudWatch and SNS, in the formats of AWS and of the emulator."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from prismline_alerting.alerts import State, alert_of_failed_run, alert_of_metric_alarm, alert_of_notification
from prismline_contracts.events import RunFailed
from prismline_runtime import PermanentError

CHANGE = {
    "AlarmName": "prismline-dev-chunks-dlq-backlog",
    "AlarmDescription": None,
    "AWSAccountId": "123456789012",
    "NewStateValue": "ALARM",
    "NewStateReason": "Threshold Crossed: 2 datapoints [312.0, 290.0] were greater than the threshold (100.0).",
    "StateChangeTime": "2026-03-01T12:00:00.123+0000",
    "Region": "EU (Frankfurt)",
    "OldStateValue": "OK",
}
ONE_METRIC = {
    "MetricName": "ApproximateNumberOfMessagesVisible",
    "Namespace": "AWS/SQS",
    "Dimensions": [{"value": "prismline-dev-chunks-dlq", "name": "QueueName"}],
    "Threshold": 0.0,
}
METRIC_MATH = {
    "Period": 300,
    "EvaluationPeriods": 2,
    "Threshold": 100.0,
    "Metrics": [
        {"Expression": "visible + hidden", "Id": "depth", "Label": "depth", "ReturnData": True},
        {
            "Id": "visible",
            "MetricStat": {
                "Metric": {
                    "Dimensions": [{"value": "prismline-dev-chunks-dlq", "name": "QueueName"}],
                    "MetricName": "ApproximateNumberOfMessagesVisible",
                    "Namespace": "AWS/SQS",
                },
                "Period": 300,
                "Stat": "Maximum",
            },
            "ReturnData": False,
        },
    ],
}
EMULATED = ONE_METRIC | {"Dimensions": [{"Name": "QueueName", "Value": "prismline-dev-chunks-dlq"}]}


def notification(change: Any) -> dict[str, Any]:
    text = change if isinstance(change, str) else json.dumps(change)
    return {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-central-1:1:t", "Message": text}


@pytest.mark.parametrize(("trigger", "threshold"), [(ONE_METRIC, 0.0), (METRIC_MATH, 100.0), (EMULATED, 0.0)])
def test_an_alarm_is_read_whatever_it_watches(trigger: dict[str, Any], threshold: float) -> None:
    alert = alert_of_notification(notification(CHANGE | {"Trigger": trigger}))
    assert alert.subject == "alarms/prismline-dev-chunks-dlq-backlog"
    assert alert.state is State.ALARM
    assert alert.at == datetime(2026, 3, 1, 12, 0, 0, 123000, UTC)
    assert alert.queue == "prismline-dev-chunks-dlq"
    assert alert.threshold == threshold
    assert alert.what == ""


def test_an_alarm_that_watches_no_queue_is_read_too() -> None:
    drift = {"Namespace": "Prismline/Sweeper", "Dimensions": [{"name": "Environment", "value": "dev"}], "Threshold": 0}
    assert alert_of_notification(notification(CHANGE | {"Trigger": drift})).queue is None
    assert alert_of_notification(notification(CHANGE)).queue is None


@pytest.mark.parametrize(
    "change",
    [
        "",
        "hello",
        "[]",
        "{}",
        "null",
        "[" * 10_000,
        CHANGE | {"NewStateValue": "PANIC"},
        CHANGE | {"AlarmName": ""},
        CHANGE | {"StateChangeTime": "yesterday"},
        CHANGE | {"Trigger": {"Dimensions": "all"}},
    ],
)
def test_a_notification_that_is_not_an_alarm_is_refused_with_the_reason(change: Any) -> None:
    with pytest.raises(PermanentError, match=r"^The notification of the alarm topic is not a CloudWatch alarm: "):
        alert_of_notification(notification(change))


def test_an_alarm_looked_up_says_when_its_state_changed_rather_than_when_it_was_updated() -> None:
    changed, updated = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    alarm = {"AlarmName": "a", "StateValue": "OK", "StateUpdatedTimestamp": updated, "Threshold": 1.0}
    assert alert_of_metric_alarm(alarm).at == updated
    assert alert_of_metric_alarm(alarm | {"StateTransitionedTimestamp": changed}).at == changed


def test_a_failed_run_is_an_alert_of_the_run() -> None:
    run = RunFailed(run_id="r", completed_at="2026-03-01T12:00:00.000Z", error="Too many chunks failed.")
    alert = alert_of_failed_run(run)
    assert (alert.subject, alert.state, alert.run_id) == ("runs/r", State.ALARM, "r")
    assert alert.reason == "Too many chunks failed."
