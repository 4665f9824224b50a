"""Copies of the project's sources in a temporary folder, one of them with a mutant, and processes that run in them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from tests.simulation.mutants.mutant import Mutant

ROOT = Path(__file__).parents[3]
#: The folders that the simulation runs, reads and consists of.
COPIED = (
    "contracts",
    "libs",
    "services",
    "cli",
    "platform",
    "tests/simulation",
    "tests/templates",
    "tests/__init__.py",
    "tests/run_view.py",
)
#: Not copied: generated files, and files of other tests.
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*", "build", "aws_data")
#: Names of the modules of the project.
_OWN = re.compile(r"prismline_|(prismline|tests)(\.|$)")
#: Seconds of real time after which a schedule counts as endless.
HANG_SECONDS = 180.0
#: Schedules between two garbage collections.
BETWEEN_COLLECTIONS = 20


class Tree:
    """A copy of the sources in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The original text of files that a mutant changed.
        self._before: dict[Path, str] = {}
        for name in COPIED:
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_IGNORED)
            else:
                shutil.copy(source, target)

    def enter(self) -> None:
        """Make this process import this copy instead of the installed packages."""
        for name in [name for name in sys.modules if _OWN.match(name)]:
            del sys.modules[name]
        sources = [str(path) for path in sorted(self.folder.glob("**/src")) if path.is_dir()]
        sys.path[:0] = [str(self.folder), *sources]
        os.chdir(self.folder)

    def mutate(self, mutant: Mutant) -> None:
        """Put a mutant into the copy."""
        path, text = mutant.change.apply(self.folder)
        self._before[path] = path.read_text()
        self._write(path, text)

    def fails(self, test: str) -> bool:
        """Whether a test of the checkout fails with the sources of this copy."""
        sources = [str(path) for path in sorted(self.folder.glob("**/src")) if path.is_dir()]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1}:
            raise ValueError(f"{test} cannot be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.returncode == 1

    def mend(self) -> None:
        """Restore the original files."""
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
    """A process that runs schedules in a tree. It is forked from this one, so that it need not import libraries."""

    def __init__(self, tree: Tree) -> None:
        forking = multiprocessing.get_context("fork")
        self._pipe, theirs = forking.Pipe()
        self._process = forking.Process(target=_serve, args=(tree, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def run(self, schedule: str, seed: int) -> dict[str, str] | None:
        """The finding of a schedule. Raises HangError if it does not end, EOFError or OSError if the process dies."""
        self._pipe.send((schedule, seed))
        if not self._pipe.poll(HANG_SECONDS):
            raise HangError(f"{schedule}/{seed} does not end")
        found: dict[str, str] | None = self._pipe.recv()
        return found


def preload() -> None:
    """Import everything once, so that forked processes need not."""
    import_module("tests.simulation.world").import_services()


def _serve(tree: Tree, pipe: Connection) -> None:
    tree.enter()
    run = import_module("tests.simulation.mutants.runner").run
    gc.disable()
    gc.freeze()
    n = 0
    while True:
        pipe.send(run(*pipe.recv()))
        n += 1
        if n % BETWEEN_COLLECTIONS == 0:
            gc.collect()
