"""The walk of a chunk from its queue to the ledger stays short, and docs/explanation/architecture.md draws it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from worker_world import FIRST, WorkerWorld

PAGE = Path(__file__).parents[3] / "docs/explanation/architecture.md"
#: Most files to open to follow a chunk, without the contracts' models and the inside of the workload.
MOST_FILES = 14
#: Polls the queue and calls the handler; the test calls the handler itself.
CONSUMER = "runtime/consumer.py"

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(not PAGE.exists(), reason="a sparse checkout has no docs/"),
]


class Walk:
    """Records the files that the call enters until the end of the chunk is in the ledger."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._over = False
        self._inside: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = re.search(r"/prismline_(\w+/(?:\w+/)*\w+\.py)$", frame.f_code.co_filename)
        if self._over or name is None or name[1].startswith(("contracts/", "ledger/testing.py")):
            return
        if event == "return":
            self._over = frame.f_code.co_name == "complete_chunk"
            self._inside = None if frame is self._inside else self._inside
        elif event == "call" and self._inside is None:
            if name[1] not in self.files:
                self.files.append(name[1])
            if name[1].startswith("worker/workloads/") and frame.f_code.co_name == "process":
                self._inside = frame


def test_the_walk_from_queue_to_ledger_is_the_one_that_the_page_draws(world: WorkerWorld) -> None:
    world.open_run(FIRST)
    walk = Walk()
    sys.setprofile(walk)
    try:
        world.process(FIRST)
    finally:
        sys.setprofile(None)
    page = PAGE.read_text().partition("## The walk of a chunk")[2]
    drawn = set(re.findall(r"\b(?:\w+/)+\w+\.py", page.partition("```mermaid")[2].partition("```")[0]))
    assert {CONSUMER, *walk.files} == drawn
    assert len(drawn) <= MOST_FILES
