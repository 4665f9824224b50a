"""Security headers. They allow a page only what the service needs."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Sent with every answer.
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def content_security_policy(upload_origin: str) -> str:
    """The Content-Security-Policy of all answers. It allows only scripts and styles that are files of this origin.

    upload_origin: scheme and host of another service to which pages may send files; empty for none.
    """
    return "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            f"connect-src 'self' {upload_origin}".rstrip(),
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ]
    )


class SecurityHeaders:
    """Adds the headers to every answer. Browsers do not cache pages, and revalidate static files by ETag.

    pages: the path below which the pages are, with their static files below `static/`.
    """

    def __init__(self, app: ASGIApp, *, pages: str, upload_origin: str) -> None:
        self._app = app
        self._pages, self._static = pages, f"{pages}/static/"
        self._headers = ALWAYS | {"Content-Security-Policy": content_security_policy(upload_origin)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        static = scope["path"].startswith(self._static)
        page = scope["path"].startswith(self._pages) and not static

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                if page:
                    headers["Cache-Control"] = "no-store"
                elif static:
                    headers["Cache-Control"] = "no-cache"
            await send(message)

        await self._app(scope, receive, protected)
