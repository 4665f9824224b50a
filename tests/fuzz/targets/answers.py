"""Answers of other servers, as bytes of a connection: of sites, of webhooks' targets, of the caption model, of Discord.

Each client reads an answer with the real HTTP parser. Only its network is replaced, by one that sends the input.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, cast

import httpcore
import httpx

from prismline_alerting.discord import Webhook
from prismline_contracts.tasks import UrlParams
from prismline_runtime import PrismlineError
from prismline_web import guarded_async_client, guarded_client
from prismline_webhooks.posting import Poster
from prismline_worker.body_store import BodyStore
from prismline_worker.caption_client import CaptionClient
from prismline_worker.fetcher import Fetcher
from tests.fuzz.account import account, empty
from tests.fuzz.mutations import TOKENS, mutated_bytes
from tests.fuzz.target import Target

URL = "http://example.com/page"
PNG = b"\x89PNG\r\n\x1a\n"
#: The parameters of a job whose tasks keep many headers.
PARAMS = UrlParams(keep_headers=["content-type", "content-disposition", "retry-after", "etag", "x-a"])
HEADER_TOKENS = (
    *(b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Content-Type: text/html; charset=\xff\r\n", b"Content-Disposition: attachment; filename*=UTF-8''%ff\r\n"),
    *(b"Retry-After: 99999999999999999999\r\n", b"Retry-After: Fri, 31 Dec 9999 23:59:59 -9999\r\n"),
    *(b"Location: http://[::1\r\n", b"Location: //\xff/\r\n", b"Location: http://a:99999999/\r\n", b"Location: \r\n"),
    *(
        b"Content-Encoding: gzip\r\n",
        b"Set-Cookie: a=b; Domain=\xff\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"X-A: \x80",
    ),
)


def answer(status: str, *headers: str, body: str = "") -> bytes:
    """An HTTP answer as bytes."""
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body.encode())}", "", body]).encode()


class Network(httpcore.NetworkBackend):
    """Every connection answers with `data`, whatever is sent."""

    data = b""

    def connect_tcp(self, *_: Any, **__: Any) -> httpcore.NetworkStream:
        return httpcore.MockStream([self.data])


class AsyncNetwork(httpcore.AsyncNetworkBackend):
    """The same for asynchronous clients."""

    data = b""

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        return httpcore.AsyncMockStream([self.data])


#: Each request has a connection of its own, because the rest of an earlier answer is left in the old one.
LIMITS = httpx.Limits(max_keepalive_connections=0)
ADDRESS = "93.184.216.34"


async def resolve_async(*_: Any) -> list[str]:
    return [ADDRESS]


@cache
def clients() -> tuple[httpx.Client, httpx.AsyncClient, asyncio.AbstractEventLoop, ThreadPoolExecutor]:
    """The guarded clients, and what the asynchronous one needs. They take long to make."""
    account()
    client = guarded_client(limits=LIMITS, resolve=lambda *_: [ADDRESS], network=Network())
    async_client = guarded_async_client(limits=LIMITS, resolve=resolve_async, network=AsyncNetwork())
    return client, async_client, asyncio.new_event_loop(), ThreadPoolExecutor(1)


def _client(data: bytes) -> httpx.Client:
    Network.data = data
    return clients()[0]


def fetch(data: bytes) -> None:
    """Fetch a page from a site that answers with `data`, and store its body."""
    aws: Any = empty()
    AsyncNetwork.data = data
    _, http, loop, executor = clients()
    store = BodyStore(aws.s3, next(iter(aws.objects)), executor)
    loop.run_until_complete(Fetcher(http).fetch(URL, PARAMS, store, "results/r/t"))


class _Kept:
    """The asynchronous client, which stays open after a post."""

    async def __aenter__(self) -> httpx.AsyncClient:
        return clients()[1]

    async def __aexit__(self, *_: object) -> None:
        return None


def post_webhook(data: bytes) -> str | None:
    """Post to the target of a webhook that answers with `data`."""
    AsyncNetwork.data = data
    return Poster(cast("Callable[[], httpx.AsyncClient]", _Kept), seconds=5).post(URL, b"{}", {}).error


def caption(data: bytes) -> None:
    """Request a caption from a model whose server answers with `data`."""
    _caption(CaptionClient(_client(data), resource="gpu", model="m", tries=1))


def list_models(data: bytes) -> None:
    """Ask a server, which answers with `data`, for its models."""
    _caption(CaptionClient(_client(data), resource="gpu", tries=1))


def _caption(client: CaptionClient) -> None:
    client.caption("http://example.com/v1", [PNG], "What is this?", 10, deadline=time.monotonic() + 10)


def post_alert(data: bytes) -> None:
    """Post an alert to Discord, which answers with `data`."""
    Webhook(_client(data), patience_seconds=0).post(URL, {})


SITE = [
    answer("200 OK", "Content-Type: text/html; charset=utf-8", "Content-Disposition: inline", "ETag: x", body="<p>"),
    answer("302 Found", "Location: https://example.org/other"),
    answer("429 Too Many Requests", "Retry-After: 30"),
    answer("503 Service Unavailable", "Retry-After: Fri, 31 Dec 2027 23:59:59 GMT"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
]
COMPLETION = {"model": "m", "choices": [{"message": {"content": "A cat."}}]}
MODEL = [
    answer("200 OK", "Content-Type: application/json", body=json.dumps(COMPLETION)),
    answer("400 Bad Request", "Content-Type: application/json", body='{"error": {"message": "No such model."}}'),
    answer("429 Too Many Requests", "Retry-After: 1"),
]
MODELS = [answer("200 OK", "Content-Type: application/json", body='{"data": [{"id": "m"}]}')]
DISCORD = [
    answer("200 OK", "Content-Type: application/json", body="{}"),
    answer("429 Too Many Requests", "Retry-After: 1", body='{"retry_after": 0.5, "message": "Slow."}'),
    answer("400 Bad Request", body='{"message": "Invalid Form Body", "code": 50035}'),
]
HOSTILE = {
    "a_redirect_to_an_address_without_a_host": answer("302 Found", "Location: https:}/example.org/other"),
    "an_answer_that_is_not_http": b"\x16\x03\x01\x00\x00",
    "an_empty_answer": b"",
    "a_length_of_twenty_digits": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "a_status_that_does_not_exist": b"HTTP/1.1 999 ?\r\n\r\n",
    "a_date_to_wait_for_in_a_time_zone_that_does_not_exist": answer(
        "503 Service Unavailable", "Retry-After: Fri, 31 Dec 9999 23:59:59 -9999"
    ),
    "a_date_to_wait_for_in_a_year_of_forty_digits": answer(
        "503 Service Unavailable", f"Retry-After: Fri, 31 Dec {'9' * 40} 23:59:59 GMT"
    ),
    "a_wait_of_ten_thousand_digits": answer("429 Too Many Requests", f"Retry-After: {'9' * 10_000}"),
    "a_redirect_to_half_of_an_address": answer("302 Found", "Location: http://[::1"),
    "a_redirect_to_a_port_that_does_not_exist": answer("302 Found", "Location: http://a:99999999/"),
    "a_header_line_of_a_million_bytes": b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 10**6,
    "a_body_of_nested_lists": answer("400 Bad Request", "Content-Type: application/json", body="[" * 100_000),
    "a_header_that_is_not_ascii": answer("200 OK", "X-A: \u00e9", "Content-Type: \u00e9"),
    "a_refusal_that_is_not_compressed_as_it_says": answer("429 Too Many Requests", "Content-Encoding: gzip", body="{}"),
    "an_answer_that_is_not_compressed_as_it_says": answer("200 OK", "Content-Encoding: gzip", body="{}"),
    "a_character_set_that_does_not_exist": answer(
        "400 Bad Request", "Content-Type: application/json; charset=x", body="{}"
    ),
}


def _target(name: str, run: Any, examples: Sequence[bytes]) -> Target:
    inputs = mutated_bytes(*examples, tokens=[*TOKENS, *HEADER_TOKENS])
    return Target(name, run, inputs, HOSTILE, refuses_with=(PrismlineError,), prepare=clients)


TARGETS = [
    _target("answers-of-sites", fetch, SITE),
    _target("answers-of-webhooks", post_webhook, SITE),
    _target("answers-of-models", caption, MODEL),
    _target("answers-of-model-lists", list_models, MODELS),
    _target("answers-of-discord", post_alert, DISCORD),
]
