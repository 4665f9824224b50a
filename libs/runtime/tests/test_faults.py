"""Fault points follow the rules file, and do nothing without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prismline_runtime import PermanentError, TransientError, fault_point, faults


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rules file; it does not exist yet."""
    path = tmp_path / "faults.json"
    monkeypatch.setenv("PRISMLINE_FAULTS_FILE", str(path))
    faults.rules_file.cache_clear()
    return path


@pytest.fixture(autouse=True)
def _forget_the_rules_file() -> Any:
    yield
    faults.rules_file.cache_clear()


def write(path: Path, *rules: dict[str, Any]) -> None:
    path.write_text(json.dumps(rules))


def hits(count: int, **context: str) -> int:
    """How many of `count` passes through the point `p` fail transiently."""
    failed = 0
    for _ in range(count):
        try:
            fault_point("p", **context)
        except TransientError:
            failed += 1
    return failed


def test_nothing_happens_without_a_rules_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMLINE_FAULTS_FILE", raising=False)
    faults.rules_file.cache_clear()
    fault_point("p")
    assert faults.rules_file() is None


def test_rules_can_come_and_go_while_the_service_runs(rules: Path) -> None:
    fault_point("p")
    write(rules, {"point": "p", "action": "permanent"})
    with pytest.raises(PermanentError, match="p"):
        fault_point("p")
    write(rules)
    fault_point("p")


def test_an_unexpected_error_is_of_neither_family(rules: Path) -> None:
    write(rules, {"point": "p", "action": "unexpected"})
    with pytest.raises(RuntimeError, match="p"):
        fault_point("p")


def test_a_rule_applies_to_its_point_and_context_only(rules: Path) -> None:
    write(rules, {"point": "p", "action": "transient", "where": {"chunk_id": "7"}})
    fault_point("q", chunk_id="7")
    assert hits(2, chunk_id="8") == 0
    assert hits(2) == 0
    assert hits(2, chunk_id="7", run_id="r") == 2


def test_times_counts_over_all_processes(rules: Path) -> None:
    write(rules, {"point": "p", "action": "transient", "times": 3})
    program = "from prismline_runtime import fault_point\ntry: fault_point('p')\nexcept Exception: print('hit')"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "hit\n"
    assert hits(5) == 2


def test_kill_is_a_real_kill(rules: Path) -> None:
    write(rules, {"point": "p", "action": "kill"})
    program = "from prismline_runtime import fault_point\nfault_point('p')"
    assert subprocess.run([sys.executable, "-c", program], check=False, env=dict(os.environ)).returncode == (
        -signal.SIGKILL
    )


def test_hang_waits_for_its_time_and_then_continues(rules: Path) -> None:
    write(rules, {"point": "p", "action": "hang", "seconds": 0.2})
    began = time.monotonic()
    fault_point("p")
    assert time.monotonic() - began >= 0.2
