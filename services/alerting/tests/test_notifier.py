"""The notifier over real queues and parameters, with a stand-in that refuses the same requests as Discord."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from alert_world import BACKLOG, NOON, AlertingWorld, later
from botocore.config import Config

from prismline_alerting.dependencies import NotifierDependencies
from prismline_alerting.discord import Webhook
from prismline_alerting.embeds import GREEN, RED
from prismline_alerting.parameters import AlertParameters
from prismline_contracts.alerts import webhook_url_parameter
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunFailed
from prismline_localstack.standins.discord import DiscordStandIn

pytestmark = pytest.mark.emulator


def titles(discord: DiscordStandIn) -> list[str]:
    return [message["embeds"][0]["title"] for message in discord.messages]


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    """The log records with this message."""
    return [record for record in caplog.records if record.message == message]


def run_failed(run_id: str = "run-1") -> str:
    event = RunFailed(run_id=run_id, completed_at="2026-03-01T12:00:00.000Z", error="Too many chunks failed.")
    return Envelope.wrap(event, source="prismline/test", traceparent=None).to_json()


# ---- the mute


def test_alert_suppressed_when_muted(
    world: AlertingWorld, discord: DiscordStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    until = later(hours=1)
    world.mute(until)
    assert world.deliver(world.alarm()) == [], "acknowledged"
    assert discord.posts == 0
    (line,) = logged(caplog, "alert_suppressed")
    assert line.muted_until == int(until.timestamp())


def test_alert_fires_when_unmuted(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.mute("0")
    assert world.deliver(world.alarm()) == []
    assert titles(discord) == [f"Alarm: prismline-{world.environment}-{BACKLOG}"]


def test_alert_fires_when_param_missing(world: AlertingWorld, discord: DiscordStandIn) -> None:
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1


def test_a_mute_that_has_ended_mutes_nothing(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.mute(NOON)
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1


@pytest.mark.parametrize("value", ["tomorrow", "1e12", "-5", "9" * 400, "12 34", "\u0665"])
def test_an_invalid_mute_mutes_nothing_and_is_logged(
    world: AlertingWorld, discord: DiscordStandIn, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    world.mute(value)
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1
    assert len(logged(caplog, "mute_unreadable")) == 1


def test_a_mute_that_cannot_be_read_mutes_nothing(world: AlertingWorld, discord: DiscordStandIn) -> None:
    dead = Config(retries={"total_max_attempts": 1}, connect_timeout=0.2, read_timeout=0.2)
    ssm = boto3.client("ssm", endpoint_url="http://127.0.0.1:1", config=dead)
    world.deps = replace(world.deps, parameters=AlertParameters(ssm, world.environment, world.deps.logger))
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1


def test_an_alarm_that_outlasts_its_mute_is_posted_then(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.put_alarm("ALARM")
    world.mute(later(seconds=1))
    assert world.deliver(world.alarm()) == []
    assert world.handle() is None, "not before its time"
    world.now = later(seconds=2)
    assert world.handle(wait=5) == []
    assert titles(discord) == [f"Alarm: prismline-{world.environment}-{BACKLOG}"]
    assert world.handle(wait=2) is None, "and not again"


def test_a_muted_alarm_is_looked_at_before_the_mute_ends_as_people_may_unmute(
    world: AlertingWorld, discord: DiscordStandIn
) -> None:
    world.put_alarm("ALARM")
    world.set(recheck_seconds=1)
    world.mute(later(days=30))
    assert world.deliver(world.alarm()) == []
    assert world.handle(wait=5) == []
    assert discord.posts == 0, "still muted"
    world.mute("0")
    assert world.handle(wait=5) == []
    assert len(discord.messages) == 1


@pytest.mark.parametrize("state", ["OK", None])
def test_an_alarm_that_was_over_before_its_mute_is_never_posted(
    world: AlertingWorld, discord: DiscordStandIn, state: str | None
) -> None:
    if state is not None:
        world.put_alarm(state)
    world.mute(later(seconds=1))
    world.deliver(world.alarm())
    world.now = later(seconds=2)
    assert world.handle(wait=5) == []
    assert world.handle() is None
    assert discord.posts == 0


def test_an_alarm_that_ended_under_a_mute_is_called_off_when_the_mute_ends(
    world: AlertingWorld, discord: DiscordStandIn
) -> None:
    world.deliver(world.alarm())
    world.put_alarm("OK")
    world.mute(later(seconds=2))
    world.now = later(seconds=1)
    world.deliver(world.alarm("OK", at=later(seconds=1)))
    assert len(discord.messages) == 1, "muted"
    world.now = later(seconds=3)
    assert world.handle(wait=5) == []
    assert [message["embeds"][0]["color"] for message in discord.messages] == [RED, GREEN]


def test_a_mute_drops_a_failed_run(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.mute(later(seconds=1))
    assert world.deliver(run_failed()) == []
    world.now = later(seconds=2)
    assert world.handle(wait=2) is None
    assert discord.posts == 0


# ---- one post for each change


def test_ok_is_posted_in_green_after_its_alarm(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.deliver(world.alarm())
    world.deliver(world.alarm("OK", at=later(seconds=30)))
    world.deliver(world.alarm("INSUFFICIENT_DATA", at=later(seconds=40)))
    assert [message["embeds"][0]["color"] for message in discord.messages] == [RED, GREEN]


def test_the_ok_of_a_new_deployment_is_not_posted(world: AlertingWorld, discord: DiscordStandIn) -> None:
    assert world.deliver(world.alarm("OK")) == []
    assert discord.posts == 0


def test_duplicates_of_one_change_are_posted_once(world: AlertingWorld, discord: DiscordStandIn) -> None:
    for _ in range(3):
        world.send(world.alarm())
    assert world.handle() == []
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1


def test_two_notifiers_at_once_post_once(world: AlertingWorld, discord: DiscordStandIn) -> None:
    """The second begins while the first is posting. It leaves its message, and finds the alert posted the next time."""
    world.put_alarm("ALARM")
    between = threading.Barrier(2, timeout=10)
    seconds_turn: list[list[str] | None] = []
    original = world.deps.webhook.post

    class Slow:
        def post(self, url: str, message: dict[str, Any]) -> None:
            between.wait()  # claimed, and not posted yet
            between.wait()  # the other one has looked
            original(url, message)

    slow = replace(world.deps, webhook=Slow())  # type: ignore[arg-type]
    first = threading.Thread(target=lambda: world.handle(slow))
    world.send(world.alarm())
    first.start()
    between.wait()
    seconds_turn.append(world.deliver(world.alarm()))
    between.wait()
    first.join(10)
    assert len(seconds_turn[0] or []) == 1, "left in the queue"
    assert len(discord.messages) == 1
    assert world.deliver(world.alarm()) == []
    assert len(discord.messages) == 1


def test_of_many_notifiers_at_the_same_moment_one_posts(world: AlertingWorld, discord: DiscordStandIn) -> None:
    bodies = [world.alarm()] * 6
    for body in bodies:
        world.send(body)
    threads = [threading.Thread(target=lambda: world.handle(batch=1)) for _ in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(discord.messages) == 1


def test_a_post_that_fails_does_not_swallow_the_alert(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.put_alarm("ALARM")
    world.deps = replace(world.deps, webhook=Webhook(httpx.Client(), 0.0))
    discord.fail(503)
    assert len(world.deliver(world.alarm()) or []) == 1, "left in the queue"
    assert discord.messages == []
    assert world.handle(wait=5) == []
    assert len(discord.messages) == 1


def _handle_in_child_that_dies(world: AlertingWorld, point: str, folder: Path) -> None:
    """A notifier in a process of its own, killed at `point`."""
    faults = folder / "faults.json"
    faults.write_text(json.dumps([{"point": point, "action": "kill"}]))
    world.send(world.alarm())
    code = (
        "import sys; from dataclasses import replace; from alert_world import NOON, AlertingWorld;"
        "world = AlertingWorld.connect(sys.argv[1]); world.handle(replace(world.deps, clock=lambda: NOON))"
    )
    environment = os.environ | {"PRISMLINE_FAULTS_FILE": str(faults)}
    command = [sys.executable, "-c", code, world.environment]
    child = subprocess.run(command, env=environment, cwd=Path(__file__).parent, check=False)
    assert child.returncode == -9
    world.sqs.purge_queue(QueueUrl=world.urls["alerts"])


def test_after_a_notifier_is_killed_before_its_post_another_one_posts(
    world: AlertingWorld, discord: DiscordStandIn, tmp_path: Path
) -> None:
    _handle_in_child_that_dies(world, "alert.claimed", tmp_path)
    assert discord.posts == 0
    assert len(world.deliver(world.alarm()) or []) == 1, "its claim is respected"
    world.now = later(seconds=world.deps.settings.claim_seconds + 1)
    assert world.deliver(world.alarm(at=later(seconds=30))) == []
    assert len(discord.messages) == 1


def test_after_a_notifier_is_killed_after_its_post_another_one_posts_again(
    world: AlertingWorld, discord: DiscordStandIn, tmp_path: Path
) -> None:
    _handle_in_child_that_dies(world, "alert.posted", tmp_path)
    assert len(discord.messages) == 1
    world.now = later(seconds=world.deps.settings.claim_seconds + 1)
    assert world.deliver(world.alarm(at=later(seconds=30))) == []
    assert len(discord.messages) == 2


def test_with_a_broken_record_of_posts_the_alert_is_posted(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.deliver(world.alarm())
    (found,) = boto3.client("s3").list_objects_v2(Bucket=world.deps.settings.bucket)["Contents"]
    boto3.client("s3").put_object(Bucket=world.deps.settings.bucket, Key=found["Key"], Body=b"{")
    world.deliver(world.alarm())
    assert len(discord.messages) == 2


# ---- late messages


def test_a_late_message_is_checked_against_the_alarms_present_state(
    world: AlertingWorld, discord: DiscordStandIn
) -> None:
    world.put_alarm("OK")
    world.now = later(minutes=10)
    assert world.deliver(world.alarm()) == []
    assert discord.posts == 0


def test_an_alarm_that_ended_while_discord_was_down_is_not_posted(
    world: AlertingWorld, discord: DiscordStandIn
) -> None:
    world.deps = replace(world.deps, webhook=Webhook(httpx.Client(), 0.0))
    discord.fail(503)
    assert len(world.deliver(world.alarm()) or []) == 1
    world.put_alarm("OK")
    assert world.handle(wait=5) == []
    assert discord.messages == []


def test_alarm_and_ok_that_arrive_late_and_in_the_wrong_order_leave_no_red_behind(
    world: AlertingWorld, discord: DiscordStandIn
) -> None:
    world.put_alarm("OK")
    world.now = later(minutes=10)
    world.deliver(world.alarm("OK", at=later(minutes=5)))
    world.deliver(world.alarm("ALARM"))
    assert discord.posts == 0


# ---- messages that cannot be posted


def test_a_post_that_discord_refuses_becomes_a_dead_letter_with_the_reason(
    world: AlertingWorld, discord: DiscordStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCORD_WEBHOOK_URL", discord.webhook_url + "x")
    deps = replace(NotifierDependencies.from_environment(), clock=world.deps.clock)
    world.send(world.alarm())
    assert world.handle(deps) == []
    (letter,) = world.dead_letters()
    assert letter["Body"] == world.alarm()
    assert "Unknown Webhook" in letter["MessageAttributes"]["error"]["StringValue"]
    assert discord.webhook_url not in json.dumps(letter)


@pytest.mark.parametrize("body", ["hello", "{}", '{"Type": "Notification", "TopicArn": "t", "Message": "lunch"}'])
def test_a_message_that_is_not_an_alert_becomes_a_dead_letter(
    world: AlertingWorld, discord: DiscordStandIn, body: str
) -> None:
    assert world.deliver(body) == []
    assert [letter["Body"] for letter in world.dead_letters()] == [body]
    assert discord.posts == 0


# ---- failed runs


def test_a_failed_run_is_posted_once_with_its_errors(world: AlertingWorld, discord: DiscordStandIn) -> None:
    world.run("run-1", {"chunk-0000000": "No caption"})
    assert world.deliver(run_failed()) == []
    assert world.deliver(run_failed()) == []
    (embed,) = [message["embeds"][0] for message in discord.messages]
    fields = {field["name"]: field["value"] for field in embed["fields"]}
    assert embed["title"] == "Run failed: run-1"
    assert fields["Most frequent errors"] == "1\u00d7 `No caption`"
    assert fields["Next"] == "`prismline failures run-1`"


# ---- the webhook's address


def test_without_a_webhook_the_alert_is_logged_in_full_once(
    world: AlertingWorld, discord: DiscordStandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DISCORD_WEBHOOK_URL", "")
    deps = replace(NotifierDependencies.from_environment(), clock=world.deps.clock)
    world.send(world.alarm())
    world.send(world.alarm())
    assert world.handle(deps) == []
    (line,) = logged(caplog, "alert_not_configured")
    assert line.alert["title"] == f"Alarm: prismline-{world.environment}-{BACKLOG}"
    assert discord.posts == 0


def test_the_webhook_is_read_from_a_secret_parameter_and_never_logged(
    world: AlertingWorld, discord: DiscordStandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.delenv("DISCORD_WEBHOOK_URL")
    name = webhook_url_parameter(world.environment)
    world.ssm.put_parameter(Name=name, Value=discord.webhook_url, Type="SecureString")
    deps = replace(NotifierDependencies.from_environment(), clock=world.deps.clock)
    world.send(world.alarm())
    assert world.handle(deps) == []
    assert len(discord.messages) == 1
    world.ssm.put_parameter(Name=name, Value=discord.webhook_url + "x", Type="SecureString", Overwrite=True)
    world.send(world.alarm(at=NOON + timedelta(seconds=30)))
    world.handle(deps)
    (refused,) = logged(caplog, "message_dead_lettered")
    assert "Unknown Webhook" in refused.reason
    output = "".join(str(vars(record)) for record in caplog.records if not record.name.startswith("botocore"))
    assert discord.webhook_url.rsplit("/", 1)[1] not in output
