"""The system of a demonstration, which runs nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prismline_cli.output import console, fail, stderr
from prismline_localstack import harness
from prismline_localstack.state import State


@contextmanager
def own_system(home: Path, **arguments: Any) -> Iterator[tuple[State, Callable[[str], None]]]:
    """Start a system in `home`, to which the command connects. It is down afterwards.

    arguments: those of `harness.up`. Yields the state, and a function that prints a line with the seconds since the
    start. Ends the command with a sentence if a system already runs in `home`.
    """
    if harness.is_up(home):
        fail(f"A system already runs in {home}. Stop it with `prismline down --home {home}`.")
    with stderr.status("starting an AWS emulator and the services"):
        state = harness.up(home, **arguments)
    try:
        os.environ.update(state.env | {"PRISMLINE_HOME": str(home)})
        began = time.monotonic()
        yield state, lambda line: console.print(f"{time.monotonic() - began:6.1f} s  {line}", soft_wrap=True)
    finally:
        with stderr.status("shutting down"):
            harness.down(home)
