"""Child processes that end with their parent, and process ids that stay unique when a pid is reused."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

#: `PR_SET_PDEATHSIG` of Linux' <linux/prctl.h>.
PR_SET_PDEATHSIG = 1

_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class Child(Protocol):
    """What `stop` uses of a `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Its exit code. None while it runs."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends. Raises subprocess.TimeoutExpired."""


class ProcessId(BaseModel, frozen=True):
    """A process, identified by pid and start time, because a pid alone may belong to a later process."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that currently has `pid`."""
        return cls(pid=pid, started=_started(pid))

    @property
    def alive(self) -> bool:
        """Whether this process still runs."""
        return self.started != "" and _started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _started(pid: int) -> str:
    """A text that identifies the start time of process `pid`. Empty if there is none, or only a zombie."""
    if sys.platform != "linux":
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    state, *fields = _stat(pid) or ["X"]
    return "" if state in {"Z", "X"} else fields[18]


def processor_seconds(pid: int) -> float:
    """Processor time in seconds that a process has used, system calls included. 0 if there is no /proc."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/<pid>/stat` after the command, which may contain any character. Empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def spawn(
    command: Sequence[str],
    *,
    environment: dict[str, str],
    log: Path,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command` with its output appended to `log`. It inherits the file descriptors `pass_fds`.

    On Linux, the kernel sends SIGKILL to the child when the parent ends. SIGTERM would not help: nobody waits for the
    child any more, and the emulator is gone. On other systems, the next `up` or `down` ends leftover processes.
    Call it from the main thread, while no other thread works: the kernel watches the thread that forked, and the
    Python code between fork and exec could wait for a lock of another thread.
    """
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=lambda: end_with_parent(parent),  # noqa: PLW1509  no other threads, see above
        )


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, the process `parent`. Only on Linux."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended between fork and prctl
            os._exit(1)


def stop(children: Iterable[Child], grace_seconds: float) -> None:
    """Send SIGTERM to all, wait at most `grace_seconds` for all together, and send SIGKILL to the rest."""
    running = [child for child in children if child.poll() is None]
    for child in running:
        child.terminate()
    deadline = time.monotonic() + grace_seconds
    for child in running:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
