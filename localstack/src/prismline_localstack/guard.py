"""The guard of the embedded emulator: which requests it answers, and what browsers may do with the answers.

Every web page that a browser on this machine shows can send requests to the emulator. The guard therefore refuses

- a request to a host name other than the emulator's own: a domain of an attacker may resolve to this machine;
- a request from a page, unless it is the console's, or the person follows a link;
- a request without a valid signature (`prismline_localstack.signatures`).

A stored object may be a page with a script. The answers tell the browser not to run it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from prismline_localstack.endpoints import LOOPBACK

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: Names of this machine that every emulator answers to.
OWN_NAMES = (LOOPBACK, "localhost")
#: Types of content that a browser shows without running anything. Other objects are saved.
INERT_TYPES = ("application/json", "image/gif", "image/jpeg", "image/png", "image/webp", "text/csv", "text/plain")
#: Headers of every answer: a browser believes the stored type, gives the object an origin of its own, runs no script of
#: it, and lets no other site embed it.
ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"referrer-policy", b"no-referrer"),
]
#: Methods that the console may use.
CONSOLE_METHODS = "GET, PUT"


@dataclass(frozen=True)
class Clients:
    """Who may send requests."""

    #: Host names under which clients know the emulator.
    hosts: frozenset[str]
    #: Origins whose pages may call the emulator.
    origins: frozenset[str]

    @classmethod
    def of(cls, hosts: str, origins: str) -> Clients:
        """From lists with commas: further names of the host, and origins."""
        return cls(frozenset([*OWN_NAMES, *_listed(hosts)]), frozenset(_listed(origins)))

    def refusal(self, method: str, headers: dict[str, str]) -> str | None:
        """Why a request is refused, as a sentence. None if its headers are those of an accepted client."""
        if headers.get("host", "").partition(":")[0].lower() not in self.hosts:
            return (
                f"The Host of the request is not a name of this emulator, which is {' or '.join(sorted(self.hosts))}."
            )
        origin = headers.get("origin")
        if origin is not None:
            return None if origin in self.origins else "The emulator answers no web page but the console."
        if headers.get("sec-fetch-site", "none") == "none" or _is_followed_link(method, headers):
            return None
        return "The emulator answers web pages only if a person follows a link."


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_followed_link(method: str, headers: dict[str, str]) -> bool:
    return (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("GET", "navigate", "document")


def attaches(headers: Headers) -> bool:
    """Whether a browser should save the object that an answer holds, by the headers of the answer."""
    found = {name.lower(): value.decode("latin-1") for name, value in headers}
    kind = found.get(b"content-type", "").partition(";")[0].strip().lower()
    return b"content-disposition" not in found and kind not in INERT_TYPES


def guarded_headers(headers: Headers, origin: str | None, *, linked: bool) -> Headers:
    """The headers of an answer, with those for browsers instead of the emulator's, which allow every origin.

    origin: the origin of the console, if it asked. linked: whether the request was a link to an object.
    """
    kept = [(name, value) for name, value in headers if not name.lower().startswith(b"access-control-")]
    if linked and attaches(kept):
        kept.append((b"content-disposition", b"attachment"))
    return [*kept, *ALWAYS, *_cors(origin)]


def _cors(origin: str | None) -> Headers:
    return [] if origin is None else [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]


def guarded(app: App, clients: Clients) -> App:
    """An ASGI application that passes the accepted requests to `app`."""

    async def guard(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get("origin")
        if (refusal := clients.refusal(scope["method"], headers)) is not None:
            await answer(send, 403, refusal)
            return
        if scope["method"] == "OPTIONS":
            await answer(send, 204, "", *_cors(origin), *_preflight(headers))
            return
        linked = "authorization" not in headers

        async def protected(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = message | {"headers": guarded_headers(list(message["headers"]), origin, linked=linked)}
            await send(message)

        await app(scope, receive, protected)

    return guard


def _preflight(headers: dict[str, str]) -> Headers:
    """The console may send the headers that its upload is signed with."""
    return [
        (b"access-control-allow-methods", CONSOLE_METHODS.encode()),
        (b"access-control-allow-headers", headers.get("access-control-request-headers", "").encode("latin-1")),
    ]


async def answer(send: Any, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    """Send a sentence as an answer."""
    body = f"{sentence}\n".encode() if sentence else b""
    plain = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *ALWAYS, *headers]})
    await send({"type": "http.response.body", "body": body})
