"""A function URL: converts a request to Lambda's event for it, and the answer to a response.

The event is version 2.0 of https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from prismline_emulator.endpoints import LOOPBACK
from prismline_localstack.functions.environment import Outcome
from prismline_localstack.functions.function import THROTTLED

#: Types of content that an event holds as text. Other content is encoded in Base64.
TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-www-form-url")


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def request_event(method: str, target: str, headers: Mapping[str, str], body: bytes, source_ip: str) -> dict[str, Any]:
    """The event of a request to `target`, a path with its query. The names of `headers` are in lower case."""
    path, _, query = target.partition("?")
    content_type = headers.get("content-type", "")
    text = not body or content_type.startswith(TEXT_TYPES) or "charset=" in content_type
    if text:
        try:
            content = body.decode()
        except UnicodeDecodeError:
            text = False
    now = datetime.now(UTC)
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {name: value for name, value in headers.items() if name != "cookie"},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "local",
            "domainName": headers.get("host", LOOPBACK),
            "domainPrefix": "local",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": str(uuid.uuid4()),
            "routeKey": "$default",
            "stage": "$default",
            "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": round(now.timestamp() * 1000),
        },
        "body": content if text else base64.b64encode(body).decode(),
        "isBase64Encoded": not text,
    }
    if query:
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
        event["queryStringParameters"] = parameters
    if "cookie" in headers:
        event["cookies"] = [cookie.strip() for cookie in headers["cookie"].split(";")]
    return event


def response_of(outcome: Outcome) -> Response:
    """The HTTP response for the outcome of an invocation.

    As on AWS, a failed invocation gives 502, and a function that has no concurrency left gives 429.
    """
    if outcome is THROTTLED:
        return Response(429, [("content-type", "application/json")], b'{"message":"Too Many Requests"}')
    failed = Response(502, [("content-type", "application/json")], b'{"message":"Internal Server Error"}')
    try:
        answer = outcome.json()
    except ValueError:
        return failed
    if outcome.answer is None:
        return failed
    if not (isinstance(answer, dict) and "statusCode" in answer):
        return Response(200, [("content-type", "application/json")], outcome.answer)
    body = str(answer.get("body") or "")
    try:
        content = base64.b64decode(body, validate=True) if answer.get("isBase64Encoded") else body.encode()
        headers = [(name, str(value)) for name, value in (answer.get("headers") or {}).items()]
        cookies = [("set-cookie", str(cookie)) for cookie in answer.get("cookies") or []]
        return Response(int(answer["statusCode"]), headers + cookies, content)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        return failed


def serve(port: int, invoke: Callable[[bytes], Outcome | None]) -> ThreadingHTTPServer:
    """Serve the URL of a function at `port` of this machine, in threads. `invoke` returns None if there is none yet."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing: the driver logs invocations."""

        def _handle(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            event = request_event(self.command, self.path, headers, body, self.client_address[0])
            outcome = invoke(json.dumps(event).encode())
            response = Response(503, [], b"") if outcome is None else response_of(outcome)
            self.send_response(response.status)
            for name, value in response.headers:
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            with suppress(OSError):
                if self.command != "HEAD":
                    self.wfile.write(response.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle  # noqa: N815

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
