"""A fake server of a vision model on loopback with the chat-completions API. The test chooses its answers."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n-a-picture"
JPEG = b"\xff\xd8\xff-a-photo"


def completion(content: Any) -> dict[str, Any]:
    return {"model": "vision-1", "choices": [{"message": {"role": "assistant", "content": content}}]}


@dataclass
class Reply:
    status: int = 200
    body: Any = field(default_factory=lambda: completion("A cat sits on a wall."))
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ModelServer:
    url: str
    #: The next answers. When it is empty, every request gets a caption.
    replies: deque[Reply] = field(default_factory=deque)
    #: The documents that were posted, and the headers of their requests.
    requests: list[tuple[dict[str, Any], dict[str, str]]] = field(default_factory=list)
    #: The answer to a request for the list of models, and the number of such requests.
    models: Reply = field(default_factory=lambda: Reply(body={"data": [{"id": "vision-1"}]}))
    looks: int = 0


@contextmanager
def model_server() -> Iterator[ModelServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.looks += 1
            self._answer(server.models)

        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append((document, dict(self.headers)))
            self._answer(server.replies.popleft() if server.replies else Reply())

        def _answer(self, reply: Reply) -> None:
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ModelServer(f"http://127.0.0.1:{http.server_port}/v1")
    thread = Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    yield server
    http.shutdown()
    thread.join()
    http.server_close()
