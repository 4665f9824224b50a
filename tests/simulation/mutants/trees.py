"""Copies of the project's sources in a temporary folder, one of them with a fault, and processes that run in them."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.simulation.mutants.catalogue import Mutant

ROOT = Path(__file__).parents[3]
#: What the simulation runs, reads, and consists of.
COPIED = ("contracts", "libs", "services", "cli", "platform", "tests/simulation", "tests/__init__.py")
#: Left out: what is made, and what other tests need.
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*", "build", "aws_data")
#: Seconds of real time after which a schedule that does not end is given up.
HANG_SECONDS = 180.0


class Tree:
    """A copy of the sources in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Files as they were before a mutant.
        self._before: dict[Path, str] = {}
        for name in COPIED:
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_IGNORED)
            else:
                shutil.copy(source, target)

    def environment(self) -> dict[str, str]:
        """The environment in which Python imports this copy, and not what is installed."""
        sources = [str(path) for path in sorted(self.folder.glob("**/src")) if path.is_dir()]
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), *sources]), "PYTHONHASHSEED": "0"}

    def mutate(self, mutant: Mutant) -> None:
        """Put a fault into the copy."""
        path = self.folder / mutant.file
        self._before[path] = path.read_text()
        self._write(path, mutant.applied(self._before[path]))

    def mend(self) -> None:
        """Take it out."""
        while self._before:
            self._write(*self._before.popitem())

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


class HangError(Exception):
    """A schedule does not end."""


class Runner:
    """A process that runs schedules in a tree."""

    def __init__(self, tree: Tree) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.mutants.runner"],
            cwd=tree.folder,
            env=tree.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, schedule: str, seed: int) -> dict[str, str] | None:
        """What a schedule found. Raises HangError if it does not end, RuntimeError if the process dies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"schedule": schedule, "seed": seed}) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], HANG_SECONDS)
        if not ready:
            raise HangError(f"{schedule}/{seed} does not end")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the runner died at {schedule}/{seed}")
        found: Any = json.loads(line)
        return None if found is None else {"check": found["check"], "message": found["message"]}
