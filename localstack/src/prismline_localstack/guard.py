"""The guard of the embedded emulator: which requests it answers, and what browsers may do with the answers.

Every web page that a browser on this machine shows can send requests to the emulator. The guard therefore refuses

- a request to a host name other than the emulator's own: a domain of an attacker may resolve to this machine;
- a request from a page, unless it is the console's, or the person follows a link;
- a request without a valid signature (`prismline_localstack.signatures`), except the health check.

A stored object may be a page with a script. The answers tell the browser not to run it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from prismline_localstack.endpoints import HEALTH_PATH, LOOPBACK
from prismline_localstack.signatures import Claim, Refusal, SignedRequest

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: Names of this machine that every emulator answers to.
OWN_NAMES = (LOOPBACK, "localhost")
#: Headers of every answer: a browser believes the stored type, gives the object an origin of its own, runs no script of
#: it, and lets no other site embed it.
ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"referrer-policy", b"no-referrer"),
]
#: How the names of ministack's headers begin that allow every page to read an answer.
ALLOWING = (b"Access-Control-", b"access-control-")
#: Methods that the console may use.
CONSOLE_METHODS = b"GET, PUT"
#: The code of a refusal in the answer to an AWS client.
ACCESS_DENIED = "AccessDenied"


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

    def refusal(self, method: str, headers: dict[str, str]) -> Refusal | None:
        """Why a request is refused. None if its headers are those of an accepted client."""
        if headers.get("host", "").partition(":")[0].lower() not in self.hosts:
            names = " or ".join(sorted(self.hosts))
            return Refusal(f"The Host of the request is not a name of this emulator, which is {names}.")
        origin = headers.get("origin")
        if origin is not None:
            return None if origin in self.origins else Refusal("The emulator answers no web page but the console.")
        if headers.get("sec-fetch-site", "none") == "none" or _is_followed_link(method, headers):
            return None
        return Refusal("The emulator answers web pages only if a person follows a link.")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_followed_link(method: str, headers: dict[str, str]) -> bool:
    return (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("GET", "navigate", "document")


def guarded_headers(headers: Headers, origin: str | None, *, linked: bool) -> Headers:
    """The headers of an answer, with those for browsers instead of ministack's, which allow every origin.

    A browser saves an object that a link leads to, unless the object or the link names another disposition.
    origin: the origin of the console, if it asked. linked: whether the answer holds an object that a link led to.
    """
    kept = [header for header in headers if not header[0].startswith(ALLOWING)]
    if linked and not any(name.lower() == b"content-disposition" for name, _ in kept):
        kept.append((b"content-disposition", b"attachment"))
    return [*kept, *_cors(origin), *ALWAYS]


def _cors(origin: str | None) -> Headers:
    return [] if origin is None else [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]


def guarded(app: App, clients: Clients, services: frozenset[str]) -> App:
    """An ASGI application that passes the accepted requests to `app`. services: those that requests may be for."""

    async def guard(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = clients.refusal(scope["method"], headers)
        origin = headers.get("origin") if refusal is None else None
        request = SignedRequest.of(scope, headers)

        async def protected(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                linked = request.linked and message["status"] < 300
                message = message | {"headers": guarded_headers(list(message["headers"]), origin, linked=linked)}
            await send(message)

        if refusal is None and scope["method"] == "OPTIONS":
            await _answer(send, 200, b"", [*_cors(origin), *_preflight(headers)])
            return
        if refusal is None and scope["path"] != HEALTH_PATH:
            refusal, receive = await _checked(request, services, receive)
        if refusal is not None:
            await _refuse(protected, refusal, headers)
            return
        await app(scope, receive, protected)

    return guard


async def _checked(request: SignedRequest, services: frozenset[str], receive: Any) -> tuple[Refusal | None, Any]:
    """Why the request is refused, if it is, and a channel from which its body can still be received."""
    claim = Claim.of(request, services)
    if isinstance(claim, Refusal):
        return claim, receive
    if not request.needs_body:
        return claim.refusal(b""), receive
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    body = b"".join(message.get("body", b"") for message in messages)
    last = messages[-1] | {"body": body} if messages[-1]["type"] == "http.request" else messages[-1]
    waiting = [last]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return claim.refusal(body), again


def _preflight(headers: dict[str, str]) -> Headers:
    """The console may send the headers that its upload is signed with."""
    wanted = headers.get("access-control-request-headers", "").encode("latin-1")
    return [(b"access-control-allow-methods", CONSOLE_METHODS), (b"access-control-allow-headers", wanted)]


async def _refuse(send: Any, refusal: Refusal, headers: dict[str, str]) -> None:
    """Answer 403 with the sentence of the refusal, in the form that a client of the service understands."""
    if not refusal.service:
        await _answer(send, 403, f"{refusal.sentence}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8")])
        return
    from ministack.core.iam_actions import access_denied_response  # noqa: PLC0415  it takes 0.1 s

    status, described, body = access_denied_response(
        refusal.service, "", "", "", error_code=ACCESS_DENIED, message=refusal.sentence, headers=headers
    )
    await _answer(send, status, body, [(name.encode(), value.encode()) for name, value in described.items()])


async def _answer(send: Any, status: int, body: bytes, headers: Headers) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
