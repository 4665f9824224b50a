"""Start processes of services from one process that has already imported what all of them import.

`Forker` starts this module as a process, which imports `PRELOADED` and then forks for each request. A forked process
runs `python -m MODULE` without importing those modules again, and shares their memory with the others: it starts in a
quarter of the processor time. It is a process like any other: it has its own pid, environment, log and session, it can
be killed alone, and it ends when its parent ends.

Only on Linux: on other systems, forking a process that has imported much is not safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import botocore.session

from prismline_localstack.processes import end_with_parent, spawn

#: What most services import. A module that is not installed is left out. No module of a service is here: a service may
#: run from another checkout.
PRELOADED = (
    "fastapi",
    "numpy",
    "prismline_contracts.deadletters",
    "prismline_contracts.events",
    "prismline_contracts.jobs",
    "prismline_coordination",
    "prismline_ledger",
    "prismline_runtime.consumer",
    "prismline_runtime.connections",
    "pyarrow.parquet",
    "uvicorn",
)
#: The services of AWS whose descriptions are read before the first fork. Each takes up to 100 ms and 10 MB.
DESCRIBED = ("dynamodb", "events", "s3", "sqs", "ssm", "stepfunctions")
#: Modules that run in a forked process. Others are started as usual.
FORKED = ("prismline_runtime", "prismline_runtime.server")
#: Largest request in bytes.
REQUEST_BYTES = 1024 * 1024
#: File descriptors that a forked process inherits are moved above this number before they get their own numbers.
FIRST_FREE_FD = 500
#: Seconds between two looks at a process that is waited for.
POLL_SECONDS = 0.02
#: `PR_SET_NAME` of Linux' <linux/prctl.h>.
PR_SET_NAME = 15


class Forked:
    """A forked process, with the interface of `subprocess.Popen` that the supervisor uses."""

    def __init__(self, forker: Forker, pid: int) -> None:
        self._forker = forker
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal. None while it runs."""
        if self.returncode is None:
            self.returncode = self._forker.code(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_SECONDS)
        return code


def _has_own_copies(path: str) -> bool:
    """Whether a folder of the import path `path` has one of the preloaded packages."""
    packages = {module.partition(".")[0] for module in PRELOADED}
    return any((Path(folder) / package).is_dir() for folder in path.split(":") if folder for package in packages)


class Forker:
    """The process that forks. `environment`: the environment in which it imports."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = spawn(command, environment=environment, log=log, pass_fds=[theirs.fileno()])
        self._codes: dict[int, int] = {}

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: dict[str, str],
        log: Path,
        folder: Path,
        pass_fds: Sequence[int] = (),
    ) -> Forked | subprocess.Popen[bytes]:
        """Start `command`, as `processes.spawn` does: forked if its module is in `FORKED`.

        A process whose path has its own copy of a preloaded package, for instance a service of an earlier release, is
        not forked: it would run with the packages of the forker.
        """
        forked = list(command[:2]) == [sys.executable, "-m"] and command[2] in FORKED
        if forked and not _has_own_copies(environment.get("PYTHONPATH", "")):
            request = {"arguments": command[2:], "environment": environment, "folder": str(folder), "fds": pass_fds}
            with contextlib.suppress(OSError), log.open("ab") as output:  # OSError: the forker was killed
                socket.send_fds(self._socket, [json.dumps(request).encode()], [output.fileno(), *pass_fds])
                while (answer := self._answer()) is not None:
                    if "pid" in answer:
                        return Forked(self, int(answer["pid"]))
        return spawn(command, environment=environment, log=log, folder=folder, pass_fds=pass_fds)

    def code(self, pid: int) -> int | None:
        """The exit code of a forked process. None while it runs."""
        with contextlib.suppress(BlockingIOError):
            while self._answer(socket.MSG_DONTWAIT) is not None:
                pass
        if pid not in self._codes and self._process.poll() is not None:  # the kernel kills what it forked
            return -signal.SIGKILL
        return self._codes.get(pid)

    def stop(self) -> None:
        """End the process that forks. What it forked has to have ended before."""
        self._socket.close()
        self._process.wait()

    def _answer(self, flags: int = 0) -> dict[str, Any] | None:
        """The next answer; the end of a process is recorded. None if the process that forks has ended."""
        try:
            text = self._socket.recv(REQUEST_BYTES, flags)
        except ConnectionError:
            return None
        if not text:
            return None
        answer: dict[str, Any] = json.loads(text)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


def _serve(place: socket.socket) -> None:
    """Fork for each request until the supervisor closes the socket. Returns in each forked process."""
    own = len([each for each in os.environ.get("PYTHONPATH", "").split(":") if each]) + 1
    importable = sys.path[own:]

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                code = os.waitstatus_to_exitcode(ended[1])
                with contextlib.suppress(OSError):
                    place.send(json.dumps({"ended": ended[0], "code": code}).encode())

    signal.signal(signal.SIGCHLD, reap)
    parent = os.getpid()
    while True:
        text, fds, *_ = socket.recv_fds(place, REQUEST_BYTES, 16)
        if not text:
            os._exit(0)
        request = json.loads(text)
        pid = os.fork()
        if pid == 0:
            end_with_parent(parent)
            _become(request, fds, place, importable)
            return
        for fd in fds:
            os.close(fd)
        place.send(json.dumps({"pid": pid}).encode())


def _become(request: dict[str, Any], fds: Sequence[int], place: socket.socket, importable: Sequence[str]) -> None:
    """Make this forked process what `python -m` would be: its session, files, environment and import path."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    place.close()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, [1, *request["fds"]], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.dup2(1, 2)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    given = filter(None, request["environment"].get("PYTHONPATH", "").split(":"))
    sys.path[:] = [request["folder"], *given, *importable]
    sys.argv[:] = request["arguments"]
    importlib.invalidate_caches()


def _describe() -> None:
    """Read the descriptions of AWS' services into the default session, whose clients the services use."""
    session = botocore.session.get_session()
    loader = session.get_component("data_loader")
    for service in DESCRIBED:
        for description in ("service-2", "endpoint-rule-set-1"):
            loader.load_service_model(service, description)
    boto3.setup_default_session(botocore_session=session)


def main() -> None:
    """Import, then fork. In a forked process, run the module that was asked for."""
    place = socket.socket(fileno=int(sys.argv[1]))
    for module in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _describe()
    gc.freeze()  # the collector of a forked process does not write to the shared memory
    _serve(place)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
