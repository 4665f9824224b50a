"""One runner process: lines to it and from it, with a deadline and a limit of memory for each exchange."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from prismline import usage
from prismline.environment import environment
from prismline.protocol import MAX_LINE_BYTES

#: Seconds between two looks at memory and processes. An item that is shorter is not looked at.
LOOK = 0.1
#: Bytes that are kept of what an item prints, from the end.
MAX_OUTPUT = 64 * 1024
#: Bytes of one read.
BLOCK = 2**20
MIB = 2**20

#: How a runner was lost.
Loss = Literal["Crashed", "TimedOut", "OutOfMemory", "TooManyProcesses", "BrokenProtocol"]


class RunnerLostError(Exception):
    """The runner ended, or was killed, before it answered."""

    def __init__(self, loss: Loss, message: str) -> None:
        super().__init__(message)
        self.loss = loss


class RunnerProcess:
    """A runner, its streams and its folder. Not to be used by two threads at a time.

    Making one raises OSError if the interpreter does not exist.
    """

    def __init__(self, name: str, *, python: str, paths: Sequence[str], variables: Collection[str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="prismline-"))
        options = [option for path in paths for option in ("--path", path)]
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "prismline.runner", name, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._folder,
                env=environment(self._folder, variables),
                start_new_session=True,
            )
        except OSError:
            self._folder.rmdir()
            raise
        self.pid = self._process.pid
        self._requests, self._replies, self._printed = (
            _not_blocking(stream) for stream in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._selector = selectors.DefaultSelector()
        for stream in (self._replies, self._printed):
            self._selector.register(stream, selectors.EVENT_READ)
        self._line = bytearray()
        self._output: deque[bytes] = deque()
        self._output_bytes = 0

    def exchange(
        self, request: bytes, *, timeout: float, memory: int, processes: int, longest: int = MAX_LINE_BYTES
    ) -> bytes:
        """Send a line, if it is not empty, and return the next line of the runner.

        timeout in seconds, memory in MiB, processes is a number, longest is that of the answer in bytes. Raises
        RunnerLostError; the runner is then killed.
        """
        if self._line:
            raise self._lost("BrokenProtocol", "The runner wrote more than one line for a request.")
        self._output.clear()
        self._output_bytes = 0
        deadline = time.monotonic() + timeout
        look_at = time.monotonic() + LOOK
        waiting = memoryview(request)
        if waiting:
            self._selector.register(self._requests, selectors.EVENT_WRITE)
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise self._lost("TimedOut", f"The item took longer than its limit of {timeout:g} s.")
            if now >= look_at:
                self._look(memory, processes)
                look_at = time.monotonic() + LOOK
            for key, _ in self._selector.select(max(0.0, min(deadline, look_at) - now)):
                if key.fileobj is self._requests:
                    waiting = self._send(waiting)
                elif key.fileobj is self._printed:
                    self._keep_output()
                elif (line := self._receive(longest)) is not None:
                    if waiting:
                        raise self._lost("BrokenProtocol", "The runner answered before it had read the request.")
                    self._keep_rest()
                    return line

    @property
    def output(self) -> str:
        """The end of what was printed since the last request."""
        return b"".join(self._output)[-MAX_OUTPUT:].decode(errors="replace")

    def close(self) -> None:
        """Kill the runner and all processes that it started, and remove its folder."""
        descendants = usage.tree(self.pid) if self._process.returncode is None else []
        if self._process.returncode is None:
            # The process was not waited for, so its id, which is also that of its group, belongs to nobody else.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            for each in descendants:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self._process.wait()
        self._selector.close()
        for stream in (self._requests, self._replies, self._printed):
            with suppress(OSError):
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, waiting: memoryview) -> memoryview:
        with suppress(BlockingIOError, BrokenPipeError):
            waiting = waiting[self._requests.write(waiting) or 0 :]
            if waiting:
                return waiting
        self._selector.unregister(self._requests)
        return waiting

    def _receive(self, longest: int) -> bytes | None:
        data = self._replies.read(BLOCK)
        if data == b"":
            raise self._ended()
        self._line += data or b""
        end = self._line.find(b"\n")
        if end >= 0:
            line, self._line = bytes(self._line[:end]), self._line[end + 1 :]
            return line
        if len(self._line) > longest:
            raise self._lost("BrokenProtocol", f"The runner wrote a line of more than {longest:,} bytes.")
        return None

    def _keep_output(self) -> None:
        data = self._printed.read(BLOCK)
        if data == b"":
            self._selector.unregister(self._printed)
        if data:
            self._output.append(data)
            self._output_bytes += len(data)
            while self._output_bytes - len(self._output[0]) >= MAX_OUTPUT:
                self._output_bytes -= len(self._output.popleft())

    def _look(self, memory: int, processes: int) -> None:
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            # A process that the item left behind holds the stream open.
            raise self._ended()
        pids = usage.tree(self.pid)
        if len(pids) > processes:
            raise self._lost("TooManyProcesses", f"The item has more than {processes} processes at a time.")
        if usage.memory(pids, memory * MIB) > memory * MIB:
            raise self._lost("OutOfMemory", f"The item uses more memory than its limit of {memory:,} MiB.")

    def _ended(self) -> RunnerLostError:
        """The runner ended by itself. Its last words are in the output."""
        with suppress(subprocess.TimeoutExpired):
            self._wait(1.0)
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return self._lost("BrokenProtocol", "The item closed the stream on which the runner answers.")
        if status.si_code == os.CLD_EXITED:
            return self._lost("Crashed", f"The item ended its process with exit code {status.si_status}.")
        name = signal.Signals(status.si_status).name
        return self._lost("Crashed", f"The process of the item was ended by the signal {name}.")

    def _wait(self, seconds: float) -> None:
        """Wait until the process has ended, without collecting it: `close` still needs its id."""
        descriptor = os.pidfd_open(self.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(descriptor, selectors.EVENT_READ)
                selector.select(seconds)
        finally:
            os.close(descriptor)

    def _lost(self, loss: Loss, message: str) -> RunnerLostError:
        self._keep_rest()
        self.close()
        return RunnerLostError(loss, message)

    def _keep_rest(self) -> None:
        with suppress(KeyError, OSError, ValueError):
            if self._printed in {key.fileobj for key in self._selector.get_map().values()}:
                self._keep_output()


def _not_blocking(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AssertionError("Popen opens all three streams")
    os.set_blocking(stream.fileno(), False)
    return stream


#: The interpreter of a runner, unless another environment is chosen.
PYTHON = sys.executable
