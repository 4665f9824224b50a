"""A post says what people need at night, and stays within Discord's limits whatever an error says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import pytest
from alert_world import NOON, later
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismline_alerting.alerts import Alert, State
from prismline_alerting.embeds import GREEN, RED, clip, message
from prismline_alerting.facts import Facts
from prismline_localstack.standins.discord import DiscordStandIn

BACKLOG = Alert(
    subject="alarms/prismline-dev-chunks-dlq-backlog",
    state=State.ALARM,
    at=NOON,
    name="prismline-dev-chunks-dlq-backlog",
    what="Chunks pile up.",
    reason="Threshold Crossed",
    queue="prismline-dev-chunks-dlq",
    threshold=100.0,
)
FACTS = Facts(depth=312, oldest=later(hours=-3), errors=(("GPU is down", 300), ("Timeout", 11), ("`rm -rf`", 1)))
ANYTHING = st.text(max_size=6000) | st.text(alphabet="`*_<@!&>\n\ud800\U0001f4a9", max_size=3000)


def shown(alert: Alert, facts: Facts = FACTS) -> tuple[dict[str, Any], dict[str, str]]:
    (embed,) = message(alert, facts, "dev")["embeds"]
    return embed, {field["name"]: field["value"] for field in embed["fields"]}


def test_an_alarm_says_what_how_deep_since_when_how_old_why_and_what_to_do() -> None:
    embed, fields = shown(BACKLOG)
    assert embed["title"] == "Alarm: prismline-dev-chunks-dlq-backlog"
    assert embed["description"] == "Chunks pile up."
    assert embed["color"] == RED
    assert embed["timestamp"] == "2026-03-01T12:00:00+00:00"
    assert fields["Depth"] == "312 messages (alarm above 100)"
    assert fields["Since"] == "<t:1772366400:f> (<t:1772366400:R>)"
    assert fields["Oldest waits since"] == "<t:1772355600:R>"
    assert fields["Most frequent errors"].split("\n") == [
        "300\u00d7 `GPU is down`",
        "11\u00d7 `Timeout`",
        "1\u00d7 `'rm -rf'`",
    ]
    assert fields["Next"] == "`prismline deadletters stats`"


def test_ok_is_green_and_says_how_deep_the_queue_is_still() -> None:
    embed, fields = shown(Alert(**vars(BACKLOG) | {"state": State.OK}), Facts(depth=3))
    assert (embed["title"], embed["color"]) == ("OK again: prismline-dev-chunks-dlq-backlog", GREEN)
    assert embed["description"] == "This is over: Chunks pile up."
    assert set(fields) == {"Depth", "Since", "Next"}
    assert fields["Depth"] == "3 messages"


def test_a_fact_that_is_not_known_is_left_out() -> None:
    _, fields = shown(BACKLOG, Facts())
    assert set(fields) == {"Since", "Why", "Next"}


def test_an_alarm_without_a_queue_names_the_reason_and_the_alarms_history() -> None:
    drift = Alert("alarms/prismline-dev-ledger-drift", State.ALARM, NOON, "prismline-dev-ledger-drift", reason="3 > 0")
    _, fields = shown(drift, Facts())
    assert fields["Why"] == "`3 > 0`"
    assert "describe-alarm-history --alarm-name 'prismline-dev-ledger-drift'" in fields["Next"]


def test_a_failed_run_names_its_error_and_the_command_that_shows_its_chunks() -> None:
    run = Alert("runs/run-1", State.ALARM, NOON, "run-1", reason="Too many chunks failed.", run_id="run-1")
    embed, fields = shown(run, Facts(errors=(("boom", 2),)))
    assert embed["title"] == "Run failed: run-1"
    assert "description" not in embed
    assert fields["Why"] == "`Too many chunks failed.`"
    assert fields["Next"] == "`prismline failures run-1`"


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 5, "-"),
        ("  ", 5, "-"),
        ("abcde", 5, "abcde"),
        ("abcdef", 5, "abcd\u2026"),
        ("ab\U0001f4a9cd", 4, "ab\u2026"),
    ],
)
def test_text_is_cut_between_characters_and_never_empty(text: str, most: int, expected: str) -> None:
    assert clip(text, most) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=ANYTHING, what=ANYTHING, reason=ANYTHING, errors=st.lists(st.tuples(ANYTHING, st.just(7)), max_size=3))
def test_discord_takes_whatever_an_alert_says(
    discord: DiscordStandIn, name: str, what: str, reason: str, errors: list[tuple[str, int]]
) -> None:
    alert = Alert("alarms/x", State.ALARM, NOON, name, what, reason, queue="q", threshold=1e300)
    facts = Facts(depth=10**12, oldest=datetime.min.replace(tzinfo=NOON.tzinfo), errors=tuple(errors))
    answer = httpx.post(discord.webhook_url, json=message(alert, facts, "dev"))
    assert answer.status_code == 204, answer.text
    assert discord.messages[-1]["allowed_mentions"] == {"parse": []}
