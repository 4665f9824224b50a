"""Fault points: named places where a test or a demonstration can make a service fail.

A service calls `fault_point("split.items_written", run_id=...)` between two steps. Nothing happens unless
`PRISMLINE_FAULTS_FILE` names a JSON file with a list of rules, for instance

    [{"point": "split.items_written", "action": "kill", "times": 1},
     {"point": "chunk.started", "where": {"chunk_id": "chunk-0000010"}, "action": "transient", "times": 2}]

`kill` sends SIGKILL to the service's own process. `transient` and `permanent` raise an error of that family,
`unexpected` one of neither. `hang` waits for `seconds`, or until its rule is removed. `times` (default: no limit)
counts over all processes, by marker files beside the rules file.
"""

from __future__ import annotations

import os
import signal
import time
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter

from prismline_runtime.errors import PermanentError, TransientError
from prismline_runtime.settings import FaultSettings


class FaultRule(BaseModel):
    """One rule of the faults file: where to fail, how, and how often."""

    point: str
    action: Literal["kill", "transient", "permanent", "unexpected", "hang"]
    where: dict[str, str] = {}
    times: int | None = None
    seconds: float = 0.0


@cache
def rules_file() -> Path | None:
    """The rules file of this process, or None. Cached: the setting is read once."""
    return FaultSettings().faults_file


def fault_point(point: str, **context: str) -> None:
    """Fail if there is a rule for `point` whose `where` matches `context`.

    Every call reads the rules file again, so a test can change the rules while services run.
    """
    path = rules_file()
    if path is None:
        return
    for number, rule in enumerate(_rules(path)):
        matches = rule.point == point and all(context.get(key) == value for key, value in rule.where.items())
        if matches and _claim(path, number, rule.times):
            _act(rule, path)


def _rules(path: Path) -> list[FaultRule]:
    return TypeAdapter(list[FaultRule]).validate_json(path.read_text()) if path.exists() else []


def _claim(path: Path, number: int, times: int | None) -> bool:
    """Whether the rule has occurrences left. Takes one of them by creating a marker file, which is atomic."""
    if times is None:
        return True
    for occurrence in range(times):
        try:
            path.with_name(f"{path.name}.{number}.{occurrence}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _act(rule: FaultRule, path: Path) -> None:
    match rule.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "transient":
            raise TransientError(f"Injected transient fault at {rule.point}.")
        case "permanent":
            raise PermanentError(f"Injected permanent fault at {rule.point}.")
        case "unexpected":
            raise RuntimeError(f"Injected unexpected fault at {rule.point}.")
        case "hang":
            until = time.monotonic() + rule.seconds
            while time.monotonic() < until and rule in _rules(path):
                time.sleep(0.05)
