"""One execution environment of a function: a process of awslambdaric, and the Runtime API that it asks for work.

The process runs only while it starts and while it works on an invocation. In between, SIGSTOP freezes it, as Lambda
does: threads that a handler left behind do not run. If an invocation exceeds the time limit of its function, the
process is killed without a warning to the handler.

The protocol is https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prismline_emulator.endpoints import LOOPBACK, is_from_page
from prismline_localstack.processes import processor_seconds

#: Maximum size in bytes of the answer of an invocation: 6 MB, and 100 bytes that Lambda allows in addition.
MAX_ANSWER_BYTES = 6 * 1024 * 1024 + 100
#: Time limit in seconds until a process first asks for work. Lambda allows ten seconds and then tries again.
INIT_SECONDS = 60.0
#: First part of every path of the Runtime API.
API = "/2018-06-01/runtime"
#: A program that executes `sys.argv[1:]`. On Linux, the kernel kills it when the thread that started it ends.
_TETHER = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 9)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
#: The thread that starts all processes. It runs until this process ends, so they are not killed earlier.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="start-environments")


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended: with an answer, or with an error."""

    #: The answer of the handler as it was sent. None if the invocation failed.
    answer: bytes | None
    #: Type of the error, as Lambda calls it: `Sandbox.Timedout`, `Runtime.ExitError`, the class of an exception, ...
    error: str | None = None
    message: str = ""

    def json(self) -> Any:
        """The parsed answer. Raises ValueError if it is not JSON."""
        return json.loads(self.answer or b"null")


@dataclass
class _Invocation:
    event: bytes
    deadline_ms: int
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    outcome: queue.SimpleQueue[Outcome] = field(default_factory=queue.SimpleQueue)


@dataclass(frozen=True)
class ColdStart:
    """The time and processor time from the start of a process until it first asked for work."""

    seconds: float
    processor_seconds: float


class EnvironmentFailedError(Exception):
    """The process ended, or did not ask for work in time. The reason is in its log."""


class ExecutionEnvironment:
    """A process of awslambdaric. It takes one invocation at a time.

    command: the command of the process, with the handler as its last argument. variables: its whole environment. The
    variables that Lambda sets for every function are added.
    """

    def __init__(
        self, name: str, arn: str, command: Sequence[str], variables: Mapping[str, str], log: Path, folder: Path
    ) -> None:
        self._arn = arn
        self._next: queue.SimpleQueue[_Invocation | None] = queue.SimpleQueue()
        self._current: _Invocation | None = None
        self._ready = threading.Event()
        self._server = _serve(self)
        environment = {
            **variables,
            "AWS_LAMBDA_RUNTIME_API": f"{LOOPBACK}:{self._server.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": uuid.uuid4().hex,
            "_HANDLER": command[-1],
            "LAMBDA_TASK_ROOT": str(folder),
        }
        self.started = time.monotonic()
        self._process = _STARTER.submit(_start, command, environment, log, folder).result()
        self._log = log
        self.cold_start: ColdStart | None = None
        self.idle_since = self.started
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is frozen."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def processor_seconds(self) -> float:
        """Processor time that the process has used since it was started."""
        return processor_seconds(self.pid)

    def wait_until_ready(self, seconds: float = INIT_SECONDS) -> ColdStart:
        """Wait until the process first asks for work. Raises EnvironmentFailedError if it ends or takes too long."""
        if not self._ready.wait(seconds) or self.cold_start is None:
            self.stop()
            raise EnvironmentFailedError(f"The function did not start. The reason is in its log, {self._log}.")
        return self.cold_start

    def invoke(self, event: bytes, timeout: float) -> Outcome:
        """Invoke the handler with `event`, and wait at most `timeout` seconds for the outcome.

        The process is killed at the end of that time. Raises EnvironmentFailedError if it never asked for work.
        """
        self.wait_until_ready()
        invocation = _Invocation(event, deadline_ms=int((time.time() + timeout) * 1000))
        self._current = invocation
        self._next.put(invocation)
        try:
            outcome = invocation.outcome.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            outcome = Outcome(None, "Sandbox.Timedout", f"Task timed out after {timeout:.2f} seconds")
        self._current = None
        self.idle_since = time.monotonic()
        return outcome

    def stop(self) -> None:
        """Kill the process, frozen or not, and end its Runtime API."""
        self._process.kill()
        self._process.wait()
        self._next.put(None)
        self._server.shutdown()
        self._server.server_close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _watch(self) -> None:
        """Wait for the end of the process, and fail the invocation that it was working on."""
        code = self._process.wait()
        self._ready.set()
        if (current := self._current) is not None:
            current.outcome.put(Outcome(None, "Runtime.ExitError", f"Runtime exited with code {code}"))

    # The Runtime API calls the following methods, in threads of its server.

    def next_invocation(self) -> _Invocation | None:
        """Freeze the process until an invocation arrives. None if the environment is stopped meanwhile."""
        if not self._ready.is_set():
            self.cold_start = ColdStart(time.monotonic() - self.started, self.processor_seconds)
            self._ready.set()
        if self._next.empty():
            self._signal(signal.SIGSTOP)
            invocation = self._next.get()
            self._signal(signal.SIGCONT)
            return invocation
        return self._next.get()

    def finish(self, request_id: str, outcome: Outcome) -> bool:
        """Accept the outcome of an invocation. False if it is not the current one."""
        current = self._current
        if current is None or current.request_id != request_id:
            return False
        current.outcome.put(outcome)
        return True

    @property
    def arn(self) -> str:
        """ARN of the function."""
        return self._arn


def _start(command: Sequence[str], environment: dict[str, str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process as `processes.spawn` does, which may only be called while no other thread works."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TETHER, *command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing when a process is killed while it is connected."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _serve(environment: ExecutionEnvironment) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing: the driver logs invocations."""

        def parse_request(self) -> bool:
            """Refuse requests that are not from the process: a web page could take an event, or answer it."""
            if not super().parse_request():
                return False
            own = self.headers.get("Host", "").partition(":")[0] == LOOPBACK
            if not own or is_from_page(self.headers.keys()):
                self.close_connection = True
                self._answer(403, {}, b"")
                return False
            return True

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the process was killed meanwhile
                self.wfile.write(body)

        def _answer_json(self, status: int, document: Mapping[str, Any]) -> None:
            self._answer(status, {"Content-Type": "application/json"}, json.dumps(document).encode())

        def do_GET(self) -> None:
            if self.path != f"{API}/invocation/next":
                self._answer_json(404, {"errorType": "NotFound", "errorMessage": self.path})
                return
            if (invocation := environment.next_invocation()) is None:
                self.close_connection = True
                return
            headers = {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": environment.arn,
                "Lambda-Runtime-Trace-Id": f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0",
            }
            self._answer(200, headers, invocation.event)

        def _body(self) -> bytes:
            """The body of the request. Bytes beyond the limit of an answer are read and dropped."""
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                part = self.rfile.read(size)
                if len(body) <= MAX_ANSWER_BYTES:
                    body += part
                self.rfile.readline()
            self.rfile.readline()
            return bytes(body)

        def do_POST(self) -> None:
            body = self._body()
            if self.path == f"{API}/init/error":
                # awslambdaric has written the reason to its log, and ends.
                self._answer_json(202, {"status": "OK"})
                return
            request_id, _, kind = self.path.removeprefix(f"{API}/invocation/").partition("/")
            if kind == "response" and len(body) > MAX_ANSWER_BYTES:
                message = f"Exceeded maximum allowed payload size ({MAX_ANSWER_BYTES} bytes)."
                environment.finish(request_id, Outcome(None, "Function.ResponseSizeTooLarge", message))
                self._answer_json(413, {"errorType": "RequestEntityTooLarge", "errorMessage": message})
                return
            if kind == "response":
                outcome = Outcome(body)
            elif kind == "error":
                outcome = _error(body)
            else:
                self._answer_json(404, {"errorType": "NotFound", "errorMessage": self.path})
                return
            if environment.finish(request_id, outcome):
                self._answer_json(202, {"status": "OK"})
            else:
                self._answer_json(400, {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"})

    server = _Server((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def _error(body: bytes) -> Outcome:
    """The outcome that a posted error describes."""
    try:
        document = json.loads(body)
        return Outcome(None, document.get("errorType") or "Unhandled", document.get("errorMessage") or "")
    except (ValueError, AttributeError):
        return Outcome(None, "Unhandled", body.decode(errors="replace"))
