"""A process is identified by pid and start time. A child gets SIGTERM, and SIGKILL after the grace time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prismline_localstack.processes import ProcessId, spawn, stop
from prismline_localstack.waiting import wait_until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
GENTLE = """
import signal, sys, time
def end(*_):
    print('bye', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('up', flush=True)
time.sleep(60)
"""


def start(program: str, log: Path) -> subprocess.Popen[bytes]:
    child = spawn([sys.executable, "-c", program], environment=dict(os.environ), log=log)
    assert wait_until(lambda: "up" in log.read_text(), 10)
    return child


def test_another_process_with_a_reused_pid_is_not_the_same_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = ProcessId.of(child.pid)
        before = ProcessId(pid=child.pid, started="1")
        assert process.alive
        assert not before.alive
        before.signal(signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        process.signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL


def test_an_ended_process_is_not_alive_even_as_a_zombie(tmp_path: Path) -> None:
    child = spawn([sys.executable, "-c", ""], environment=dict(os.environ), log=tmp_path / "log")
    process = ProcessId.of(child.pid)
    assert wait_until(lambda: not process.alive, 10)
    assert child.wait() == 0
    assert not ProcessId.of(child.pid).alive


def test_children_get_sigterm_and_are_killed_if_they_ignore_it(tmp_path: Path) -> None:
    gentle, stubborn = start(GENTLE, tmp_path / "gentle"), start(STUBBORN, tmp_path / "stubborn")
    stop([gentle, stubborn], grace_seconds=2)
    assert "bye" in (tmp_path / "gentle").read_text()
    assert gentle.returncode == 0
    assert stubborn.returncode == -signal.SIGKILL
