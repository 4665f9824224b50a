"""From the depth of a queue to a post: with the real templates, and the emulator's alarm, topic and queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from alert_world import AlertingWorld
from cfnlint.decode import cfn_yaml

from prismline_alerting.embeds import GREEN, RED
from prismline_contracts.base import timestamp
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunFailed
from prismline_localstack.queues import depths, publish_depths
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.stacks import create_stacks
from prismline_localstack.standins.discord import DiscordStandIn
from prismline_localstack.testing import stacks_around
from prismline_localstack.waiting import wait_until

SERVICE = Path(__file__).parents[1]
STACKS = ("platform", "services/worker", "services/alerting")
#: The alarm's period, in seconds. It is short, so that the alarm is soon OK again.
PERIOD = 2


@pytest.fixture
def deployed(
    aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discord: DiscordStandIn
) -> Iterator[AlertingWorld]:
    """Deploy the platform, the worker's stack with the alarm, and the alerting stack. Yields a notifier on them."""
    root = stacks_around(SERVICE, tmp_path / "stacks", STACKS)
    parameters = {"AlarmThreshold": "3", "AlarmPeriod": str(PERIOD), "AlarmEvaluationPeriods": "1"}
    cloudformation, s3 = boto3.client("cloudformation"), boto3.client("s3")
    for name, value in create_stacks(cloudformation, s3, root, aws_env["ENVIRONMENT"], parameters).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DISCORD_WEBHOOK_URL", discord.webhook_url)
    yield AlertingWorld.connect(aws_env["ENVIRONMENT"])
    alarms = boto3.client("cloudwatch")
    names = [alarm["AlarmName"] for alarm in alarms.describe_alarms()["MetricAlarms"]]
    alarms.delete_alarms(AlarmNames=[name for name in names if aws_env["ENVIRONMENT"] in name])


def publish(world: AlertingWorld) -> None:
    """Publish the depths of the queues, as the harness does every five seconds."""
    publish_depths(world.cloudwatch, depths(world.sqs, world.environment))


def colours(discord: DiscordStandIn) -> list[int]:
    return [message["embeds"][0]["color"] for message in discord.messages]


@pytest.mark.emulator
def test_a_backlog_is_posted_once_hidden_messages_included_and_called_off_when_it_is_gone(
    deployed: AlertingWorld, discord: DiscordStandIn
) -> None:
    deployed.fill("chunks-dlq", 5)
    deployed.sqs.receive_message(QueueUrl=deployed.urls["chunks-dlq"], MaxNumberOfMessages=10, VisibilityTimeout=900)
    for _ in range(3):
        publish(deployed)
        deployed.handle(wait=1)
    (embed,) = [message["embeds"][0] for message in discord.messages]
    assert embed["title"] == f"Alarm: prismline-{deployed.environment}-chunks-dlq-backlog"
    assert {"name": "Depth", "value": "5 messages (alarm above 3)", "inline": True} in embed["fields"]

    deployed.sqs.purge_queue(QueueUrl=deployed.urls["chunks-dlq"])

    def called_off() -> bool:
        publish(deployed)
        deployed.handle()
        return colours(discord) == [RED, GREEN]

    assert wait_until(called_off, 5 * PERIOD)
    publish(deployed)
    assert deployed.handle() is None


@pytest.mark.emulator
def test_another_queue_that_is_full_sets_off_nothing(deployed: AlertingWorld, discord: DiscordStandIn) -> None:
    url = deployed.sqs.get_queue_url(QueueName=f"prismline-{deployed.environment}-chunks")["QueueUrl"]
    for _ in range(5):
        deployed.sqs.send_message(QueueUrl=url, MessageBody="x")
    publish(deployed)
    deployed.handle(wait=1)
    assert discord.posts == 0


@pytest.mark.emulator
def test_a_run_failed_event_on_the_bus_is_posted(deployed: AlertingWorld, discord: DiscordStandIn) -> None:
    event = RunFailed(run_id="run-1", completed_at=timestamp(), error="Too many chunks failed.")
    transport = deployed.deps.transport
    transport.publish(Envelope.wrap(event, source=transport.source, traceparent=None))
    assert deployed.handle(wait=5) == []
    assert discord.messages[0]["embeds"][0]["title"] == "Run failed: run-1"


# ---- the templates' text


def template(service: str) -> dict[str, Any]:
    folder = SERVICE if service == SERVICE.name else REPOSITORY / "services" / service
    loaded: dict[str, Any] = cfn_yaml.load(str(folder / "template.yaml"))
    return loaded


def test_the_alarm_has_the_required_limits_and_counts_visible_and_hidden_messages() -> None:
    worker = template("worker")
    alarm = worker["Resources"]["ChunksBacklogAlarm"]["Properties"]
    defaults = {
        name: worker["Parameters"][name]["Default"]
        for name in ("AlarmThreshold", "AlarmPeriod", "AlarmEvaluationPeriods")
    }
    assert defaults == {"AlarmThreshold": 100, "AlarmPeriod": 300, "AlarmEvaluationPeriods": 2}
    assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("GreaterThanThreshold", "notBreaching")
    assert alarm["AlarmActions"] == alarm["OKActions"] != []
    _, (total, *parts), _ = alarm["Metrics"]["Fn::If"]
    assert total["Expression"] == "visible + hidden"
    assert {part["Id"]: part["MetricStat"]["Metric"]["MetricName"] for part in parts} == {
        "visible": "ApproximateNumberOfMessagesVisible",
        "hidden": "ApproximateNumberOfMessagesNotVisible",
    }
    assert {part["MetricStat"]["Stat"] for part in parts} == {"Maximum"}


@pytest.mark.parametrize(
    ("role", "actions"),
    [("NotifierRole", {"ssm:GetParameter"}), ("InteractionsRole", {"ssm:GetParameter", "ssm:PutParameter"})],
)
def test_roles_reach_no_other_parameters_than_those_of_alerts(role: str, actions: set[str]) -> None:
    (policy,) = template("alerting")["Resources"][role]["Properties"]["Policies"]
    found = set()
    for statement in policy["PolicyDocument"]["Statement"]:
        named = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        if about_ssm := {action for action in named if action.startswith("ssm:")}:
            found |= about_ssm
            resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
            assert all(":parameter/prismline/${Environment}/alerts/" in resource["Fn::Sub"] for resource in resources)
    assert found == actions


def test_the_endpoint_may_not_read_the_webhooks_address() -> None:
    assert "webhook_url" not in str(template("alerting")["Resources"]["InteractionsRole"])
    assert "alerts/*" not in str(template("alerting")["Resources"]["InteractionsRole"])
