"""The size limit of request bodies."""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prismline_http.problems import ProblemError, problem_response

_KIND = "body-too-large"
_CLOSE = {"Connection": "close"}


class BodyLimit:
    """Refuses a request whose body is too large: at once by its `Content-Length`, or else while it is read.

    Nothing is read before an operation asks for it, so a body without a valid key takes no memory.

    advice: a sentence that says what to send instead.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, advice: str) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._detail = f"The body is larger than {max_bytes} bytes. {advice}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._max_bytes:
            response = problem_response(413, _KIND, self._detail, headers=_CLOSE)
            await response(scope, receive, send)
            return
        left = self._max_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise ProblemError(413, _KIND, self._detail, headers=_CLOSE)
            return message

        await self._app(scope, counted, send)


async def short_body(request: Request, max_bytes: int) -> bytes:
    """The body of a request that needs no key. Raises ProblemError (413) as soon as it is larger than `max_bytes`."""
    body = b""
    if int(request.headers.get("Content-Length", "0")) <= max_bytes:
        async for part in request.stream():
            body += part
            if len(body) > max_bytes:
                break
        else:
            return body
    raise ProblemError(413, _KIND, f"The body is larger than {max_bytes} bytes.", headers=_CLOSE)
