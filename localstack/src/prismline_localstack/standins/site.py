"""Stand-in for the web: a site with pages that answer, wait, fail, redirect, are huge, or end early.

`python -m prismline_runtime.server prismline_localstack.standins.site:create_app` serves it. `prismline up` does not
start it.

| path | answer |
| --- | --- |
| `/page/N` | `page_body(N)`, the same every time, with an `ETag` |
| `/slow/SECONDS/N` | the same, after a wait |
| `/drip/SECONDS/N` | the same, byte by byte, with a wait before each byte |
| `/flaky/TIMES/N` | 503 for the first TIMES requests, then the page |
| `/busy/TIMES/SECONDS/N` | 429 with `Retry-After: SECONDS` for the first TIMES requests, then the page |
| `/redirect/TIMES/N` | TIMES redirects, then the page |
| `/redirect-to?URL` | a redirect to anything |
| `/status/CODE` | this status |
| `/huge/BYTES` | this number of zeros, with `Content-Length`; `/endless/BYTES` without it |
| `/cut/N` | half of the page, then the connection is closed |
| `/cookie` | sets a cookie and returns the cookies of the request |
| `/_site/counts` | the number of requests for each path, as JSON |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Bytes of each part of a huge page.
PIECE = bytes(64 * 1024)


def page_body(number: int) -> bytes:
    """The body of `/page/<number>`: 64 to 4,159 bytes, different for each page."""
    seed = hashlib.sha256(f"page {number}".encode()).hexdigest().encode()
    return seed * (1 + number % 64)


class Site:
    """The application."""

    def __init__(self) -> None:
        #: Number of requests for each path.
        self.counts: Counter[str] = Counter()
        #: Number of requests in progress, and its maximum so far.
        self.busy = self.most = 0

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self._serve(scope, send)
        finally:
            self.busy -= 1

    async def _serve(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        self.counts[path] += 1
        name, *rest = path.strip("/").split("/")
        page = getattr(self, f"_{name.replace('-', '_')}", None)
        try:
            if page is None:
                await _answer(send, 404, b"no such page")
            else:
                await page(scope, send, *rest)
        except (ValueError, TypeError):
            await _answer(send, 400, b"the path is wrong")

    async def _page(self, _scope: Scope, send: Send, number: str) -> None:
        body = page_body(int(number))
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        await _answer(send, 200, body, ("etag", f'"{etag}"'), ("content-type", "text/plain"))

    async def _slow(self, scope: Scope, send: Send, seconds: str, number: str) -> None:
        await asyncio.sleep(float(seconds))
        await self._page(scope, send, number)

    async def _drip(self, _scope: Scope, send: Send, seconds: str, number: str) -> None:
        body = page_body(int(number))
        await _start(send, 200, ("content-length", str(len(body))))
        for byte in body:
            await asyncio.sleep(float(seconds))
            await _more(send, bytes([byte]))
        await _end(send)

    async def _flaky(self, scope: Scope, send: Send, times: str, number: str) -> None:
        if self.counts[scope["path"]] <= int(times):
            await _answer(send, 503, b"not now")
        else:
            await self._page(scope, send, number)

    async def _busy(self, scope: Scope, send: Send, times: str, seconds: str, number: str) -> None:
        if self.counts[scope["path"]] <= int(times):
            await _answer(send, 429, b"too many", ("retry-after", seconds))
        else:
            await self._page(scope, send, number)

    async def _redirect(self, _scope: Scope, send: Send, times: str, number: str) -> None:
        left = int(times)
        target = f"/redirect/{left - 1}/{number}" if left > 1 else f"/page/{number}"
        await _answer(send, 302, b"", ("location", target))

    async def _redirect_to(self, scope: Scope, send: Send) -> None:
        await _answer(send, 302, b"", ("location", unquote(scope["query_string"].decode())))

    async def _status(self, _scope: Scope, send: Send, code: str) -> None:
        await _answer(send, int(code), b"" if code in {"204", "304"} else b"as asked")

    async def _huge(self, _scope: Scope, send: Send, size: str) -> None:
        await _start(send, 200, ("content-length", size))
        await _zeros(send, int(size))

    async def _endless(self, _scope: Scope, send: Send, size: str) -> None:
        await _start(send, 200)
        await _zeros(send, int(size))

    async def _cut(self, _scope: Scope, send: Send, number: str) -> None:
        body = page_body(int(number))
        await _start(send, 200, ("content-length", str(len(body))))
        await _more(send, body[: len(body) // 2])
        raise ConnectionError("the page ends early, as requested")

    async def _cookie(self, scope: Scope, send: Send) -> None:
        got = dict(scope["headers"]).get(b"cookie", b"none")
        await _answer(send, 200, got, ("set-cookie", "who=me"))

    async def __site(self, _scope: Scope, send: Send, _what: str) -> None:
        await _answer(send, 200, json.dumps(self.counts).encode(), ("content-type", "application/json"))


async def _start(send: Send, status: int, *headers: tuple[str, str]) -> None:
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _more(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})


async def _zeros(send: Send, size: int) -> None:
    for start in range(0, size, len(PIECE)):
        await _more(send, PIECE[: min(len(PIECE), size - start)])
    await _end(send)


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[str, str]) -> None:
    await _start(send, status, ("content-length", str(len(body))), *headers)
    await send({"type": "http.response.body", "body": body})


def create_app() -> Site:
    """A new site, with all counters at 0."""
    return Site()
