"""A proxy in front of the emulator that makes every queue message arrive twice.

It drops the first acknowledgement of each message, so that the queue delivers the message again over the real
protocol.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from prismline_localstack.emulator import Emulator
from prismline_localstack.settings import EMULATOR_KEY_ID, EMULATOR_REGION

#: Headers that belong to one connection and are not passed on.
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class RedeliveringProxy:
    """An HTTP proxy to `upstream`. `redelivered` counts the dropped acknowledgements.

    secret: the secret access key of the emulator, with which the proxy signs the requests that it changes.
    """

    def __init__(self, upstream: str, secret: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._secret = secret
        self._message_of: dict[str, str] = {}
        self._swallowed: set[str] = set()
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, answer = proxy.relay(self.command, self.path, dict(self.headers.items()), body)
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _relay

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @classmethod
    @contextmanager
    def before_emulator(cls, folder: Path) -> Iterator[RedeliveringProxy]:
        """Start an emulator behind a proxy."""
        emulator = Emulator.start(folder / "emulator", folder / "emulator.log")
        proxy = cls(emulator.endpoint, emulator.secret)
        thread = threading.Thread(target=proxy._server.serve_forever, daemon=True)
        thread.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PRISMLINE_EMULATOR_SECRET", emulator.secret)
                yield proxy
        finally:
            proxy._server.shutdown()
            proxy._server.server_close()
            emulator.stop()

    @property
    def endpoint(self) -> str:
        """The address at which the proxy listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def redelivered(self) -> int:
        """Number of messages whose first acknowledgement was dropped."""
        return len(self._swallowed)

    def relay(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Forward a request, unless it is a first acknowledgement."""
        operation = {name.lower(): value for name, value in headers.items()}.get("x-amz-target", "")
        if operation.endswith(".DeleteMessageBatch"):
            request = json.loads(body)
            kept = [entry for entry in request["Entries"] if not self._swallow(entry["ReceiptHandle"])]
            if len(kept) < len(request["Entries"]):
                done = [{"Id": entry["Id"]} for entry in request["Entries"]]
                if kept:
                    changed = json.dumps(request | {"Entries": kept}).encode()
                    self._forward(method, path, self._signed(path, headers, changed), changed)
                return 200, JSON, json.dumps({"Successful": done, "Failed": []}).encode()
        if operation.endswith(".DeleteMessage") and self._swallow(json.loads(body)["ReceiptHandle"]):
            return 200, JSON, b"{}"
        status, answer_headers, answer = self._forward(method, path, headers, body)
        if operation.endswith(".ReceiveMessage") and status == 200:
            self._remember(json.loads(answer or b"{}").get("Messages", []))
        return status, answer_headers, answer

    def _signed(self, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers of a request to SQS with another body."""
        headers = {
            name: value for name, value in headers.items() if name.lower() in {"host", "content-type", "x-amz-target"}
        }
        request = AWSRequest("POST", f"{self.endpoint}{path}", headers, body)
        SigV4Auth(Credentials(EMULATOR_KEY_ID, self._secret), "sqs", EMULATOR_REGION).add_auth(request)
        return dict(request.headers)

    def _remember(self, messages: list[dict[str, Any]]) -> None:
        with self._lock:
            self._message_of.update({message["ReceiptHandle"]: message["MessageId"] for message in messages})

    def _swallow(self, handle: str) -> bool:
        with self._lock:
            message_id = self._message_of[handle]
            if message_id in self._swallowed:
                return False
            self._swallowed.add(message_id)
            return True

    def _forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            passed = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
            connection.request(method, path, body, passed)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


#: Headers of an answer that the proxy itself gives.
JSON = [("Content-Type", "application/x-amz-json-1.0")]
