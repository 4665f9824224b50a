"""The guard of the emulator: which requests it answers, and what browsers may do with the answers.

Every web page that a browser on this machine shows can send requests to the emulator. The guard therefore refuses

- a request to a host name other than the emulator's own: a domain of an attacker may resolve to this machine;
- a request from a page, unless it is the console's, or the person follows a link;
- a request without a valid signature (`prismline_emulator.signatures`), except the health check.

A stored object may be a page with a script. The answers tell the browser not to run it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from prismline_emulator.clients import Clients, Headers, Refusal, allowed_origin, guarded_headers
from prismline_emulator.endpoints import HEALTH_PATH
from prismline_emulator.signatures import SignedRequest, UnverifiedSignature

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

#: Methods that the console may use.
CONSOLE_METHODS = b"GET, PUT"
#: The code of a refusal in the answer to an AWS client.
ACCESS_DENIED = "AccessDenied"


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
            await _answer(send, 200, b"", [*allowed_origin(origin), *_preflight(headers)])
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
    claim = UnverifiedSignature.of(request, services)
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
