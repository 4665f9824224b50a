"""Posting to Discord: errors that may pass are retried, others are not. No error or log has the webhook's address."""

from __future__ import annotations

import json
import logging
import socket
import time
from typing import Any

import httpx
import pytest

from prismline_alerting.discord import MAX_RETRY_AFTER_SECONDS, Webhook, quiet_http_logs
from prismline_localstack.standins.discord import DiscordStandIn
from prismline_runtime import PermanentError, TransientError

HELLO = {"content": "hello"}


def webhook(patience: float = 10.0) -> Webhook:
    return Webhook(httpx.Client(), patience)


def answering(status: int, **answer: Any) -> Webhook:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, **answer))
    return Webhook(httpx.Client(transport=transport), 0.0)


def test_a_message_is_posted(discord: DiscordStandIn) -> None:
    webhook().post(discord.webhook_url, HELLO)
    assert discord.messages == [HELLO]


def test_a_thread_in_the_address_is_kept(discord: DiscordStandIn) -> None:
    seen = []
    client = httpx.Client(transport=httpx.MockTransport(lambda request: seen.append(request) or httpx.Response(200)))  # type: ignore[func-returns-value]
    Webhook(client, 1.0).post("https://discord.test/api/webhooks/1/t?thread_id=7", HELLO)
    assert dict(seen[0].url.params) == {"thread_id": "7", "wait": "true"}


def test_it_waits_as_long_as_discord_asks_and_then_posts_once(discord: DiscordStandIn) -> None:
    discord.fail(429, retry_after=1.2)
    began = time.monotonic()
    webhook().post(discord.webhook_url, HELLO)
    assert time.monotonic() - began >= 1.2
    assert (discord.messages, discord.posts) == ([HELLO], 2)


def test_server_errors_are_tried_again(discord: DiscordStandIn) -> None:
    discord.fail(500)
    discord.fail(503)
    webhook().post(discord.webhook_url, HELLO)
    assert discord.messages == [HELLO]


def garbled(status: int) -> Webhook:
    """A webhook whose answers are not compressed as they say."""
    return answering(status, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"{}"))


def test_an_accepted_message_is_not_posted_again_because_the_answer_cannot_be_read() -> None:
    posted = []

    def accept(request: httpx.Request) -> httpx.Response:
        posted.append(json.loads(request.content))
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"{}"))

    client = httpx.Client(transport=httpx.MockTransport(accept))
    Webhook(client, 1.0).post("https://discord.test/api/webhooks/1/t", HELLO)
    assert posted == [HELLO]


@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_refusal_that_cannot_be_read_is_tried_again(status: int) -> None:
    with pytest.raises(TransientError, match="cannot be read: DecodingError"):
        garbled(status).post("https://discord.test/api/webhooks/1/t", HELLO)


def test_a_wait_beyond_its_patience_is_passed_on(discord: DiscordStandIn) -> None:
    discord.fail(429, retry_after=120.5)
    with pytest.raises(TransientError) as caught:
        webhook().post(discord.webhook_url, HELLO)
    assert caught.value.retry_after == 121
    assert discord.posts == 1


def test_errors_that_do_not_pass_in_time_leave_the_message_for_later(discord: DiscordStandIn) -> None:
    discord.fail(502, times=100)
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"^Discord answered 502\.$"):
        webhook(patience=1.0).post(discord.webhook_url, HELLO)
    assert time.monotonic() - began < 5
    assert 1 < discord.posts < 100


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ({"json": {"retry_after": 0.3}}, 1),
        ({"json": {"retry_after": 64.57}, "headers": {"Retry-After": "65"}}, 65),
        ({"headers": {"Retry-After": "17"}, "text": "<html>"}, 17),
        ({"json": []}, 1),
        ({"json": {"retry_after": "soon"}, "headers": {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}}, 1),
        ({"json": {"retry_after": -3}}, 1),
        ({"content": b'{"retry_after": NaN}'}, 1),
        ({"json": {"retry_after": 1e9}}, MAX_RETRY_AFTER_SECONDS),
    ],
)
def test_the_wait_that_discord_asks_for_is_read_from_body_or_header(answer: dict[str, Any], seconds: int) -> None:
    with pytest.raises(TransientError) as caught:
        answering(429, **answer).post("https://discord.test/w", HELLO)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
def test_a_message_that_discord_refuses_is_a_permanent_error_with_its_reason(status: int) -> None:
    refusing = answering(status, json={"message": "Unknown Webhook", "code": 10015})
    with pytest.raises(PermanentError, match=rf"{status}, Unknown Webhook \(code 10015\)\. Check the webhook"):
        refusing.post("https://discord.test/w", HELLO)


def test_a_refusal_whose_reason_is_nested_too_deep_has_no_reason() -> None:
    with pytest.raises(PermanentError, match="Discord refused the alert: 400, no reason given"):
        answering(400, content=b"[" * 100_000).post("https://discord.test/api/webhooks/1/t", HELLO)


def test_a_wrong_webhook_is_refused_for_good(discord: DiscordStandIn) -> None:
    with pytest.raises(PermanentError, match="Unknown Webhook"):
        webhook().post(discord.webhook_url + "x", HELLO)


@pytest.mark.parametrize(
    "url", ["", "no url", "discord.com/api/webhooks/1/s3cret", "ftp://h/s3cret", "http://h:s3cret/"]
)
def test_an_invalid_address_is_refused_for_good(url: str) -> None:
    with pytest.raises(PermanentError, match=r"^The webhook's address is not an http or https URL\."):
        webhook().post(url, HELLO)


def test_discord_that_cannot_be_reached_is_tried_again(discord: DiscordStandIn) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(TransientError, match=r"^Discord cannot be reached: ConnectError\.$"):
        webhook(patience=0.5).post(f"http://127.0.0.1:{port}/s3cret", HELLO)


@pytest.mark.parametrize(
    ("url", "error"),
    [("http://127.0.0.1:1/s3cret", TransientError), ("http://h:s3cret/", PermanentError), ("s3cret", PermanentError)],
)
def test_the_address_is_in_no_error_and_no_log(
    url: str, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(error) as caught:
        webhook(patience=0.1).post(url, HELLO)
    formatted = logging.Formatter().formatException((caught.type, caught.value, caught.tb))
    assert "s3cret" not in formatted.replace(f'"{url}"', "")
    assert "s3cret" not in caplog.text


def test_httpx_logs_no_address(discord: DiscordStandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    quiet_http_logs()
    webhook().post(discord.webhook_url, HELLO)
    assert "webhooks" not in caplog.text
