"""The stand-in refuses the same requests as Discord. Otherwise tests against it would prove nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from prismline_localstack.standins.discord import DiscordStandIn, interaction_id, slash_command


def embed(**fields: Any) -> dict[str, Any]:
    return {"embeds": [{"title": "t"} | fields]}


def test_a_message_is_kept_and_can_be_waited_for(discord: DiscordStandIn) -> None:
    assert httpx.post(discord.webhook_url, json={"content": "hello"}).status_code == 204
    answer = httpx.post(discord.webhook_url, params={"wait": "true"}, json=embed(description="d"))
    assert answer.status_code == 200
    assert answer.json()["embeds"][0]["description"] == "d"
    assert discord.wait_for_message(lambda message: "embeds" in message, timeout=1)["embeds"][0]["title"] == "t"
    with pytest.raises(TimeoutError):
        discord.wait_for_message(lambda message: message.get("content") == "bye", timeout=0.05)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": ""},
        {"content": "x" * 2001},
        {"colour": 1, "content": "x"},
        {"embeds": [{"title": "t"}] * 11},
        embed(title="x" * 257),
        embed(title="\N{PILE OF POO}" * 129),
        embed(description="x" * 4097),
        embed(color=0x1000000),
        embed(timestamp="yesterday"),
        embed(fields=[{"name": "n", "value": "v"}] * 26),
        embed(fields=[{"name": "n", "value": ""}]),
        embed(fields=[{"name": "n", "value": "   "}]),
        embed(fields=[{"name": "x" * 257, "value": "v"}]),
        embed(fields=[{"name": "n", "value": "x" * 1025}]),
        embed(description="x" * 4096, fields=[{"name": "n", "value": "x" * 1000}] * 2),
        {"content": "x", "allowed_mentions": {"parse": ["all"]}},
    ],
)
def test_a_message_that_breaks_a_limit_is_refused_with_discords_error(
    discord: DiscordStandIn, message: dict[str, Any]
) -> None:
    answer = httpx.post(discord.webhook_url, json=message)
    assert answer.status_code == 400
    assert (answer.json()["code"], answer.json()["message"]) == (50035, "Invalid Form Body")
    assert discord.messages == []


def test_a_message_just_within_the_limits_is_accepted(discord: DiscordStandIn) -> None:
    fields = [{"name": "n" * 100, "value": "v" * 100}] * 25
    assert httpx.post(discord.webhook_url, json=embed(title="x" * 256, fields=fields)).is_success
    assert httpx.post(discord.webhook_url, json=embed(description="x" * 4096)).is_success


def test_another_webhook_does_not_exist(discord: DiscordStandIn) -> None:
    answer = httpx.post(discord.webhook_url + "x", json={"content": "hello"})
    assert (answer.status_code, answer.json()["code"]) == (404, 10015)


def test_an_injected_failure_occurs_the_given_number_of_times(discord: DiscordStandIn) -> None:
    discord.fail(429, retry_after=2.5)
    discord.fail(503, times=2)
    limited = httpx.post(discord.webhook_url, json={"content": "hello"})
    assert (limited.status_code, limited.headers["Retry-After"], limited.json()["retry_after"]) == (429, "2.5", 2.5)
    codes = [httpx.post(discord.webhook_url, json={"content": "hello"}).status_code for _ in range(3)]
    assert codes == [503, 503, 204]


def test_commands_are_overwritten_as_a_whole_and_only_by_the_bot(discord: DiscordStandIn) -> None:
    url = f"{discord.api_url}/applications/1/commands"
    command = {"name": "mute", "type": 1, "description": "Mute."}
    assert httpx.put(url, json=[command], headers={"Authorization": "Bot x"}).status_code == 401
    bot = {"Authorization": f"Bot {discord.bot_token}"}
    assert httpx.put(url, json=[command], headers=bot).status_code == 200
    assert httpx.put(url, json=[command | {"name": "Mute!"}], headers=bot).status_code == 400
    assert [found["name"] for found in discord.commands] == ["mute"]
    assert httpx.put(url, json=[], headers=bot).json() == []


def test_interactions_are_signed_over_timestamp_and_body_and_ids_grow(discord: DiscordStandIn) -> None:
    key = VerifyKey(bytes.fromhex(discord.public_key))
    signed = discord.sign(slash_command("mute-alerts", duration="4h"), at=1_700_000_000)
    key.verify(b"1700000000" + signed.body, bytes.fromhex(signed.headers["X-Signature-Ed25519"]))
    for other in (signed.altered(b"{}"), discord.sign({}, at=1_700_000_000, forged=True)):
        with pytest.raises(BadSignatureError):
            key.verify(b"1700000000" + other.body, bytes.fromhex(other.signature))
    ids = [int(interaction_id()) for _ in range(100)]
    assert sorted(set(ids)) == ids
