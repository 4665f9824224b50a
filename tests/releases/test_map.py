"""A function over a list in a fresh environment of wheels, outside of the checkout: the README's second example."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prismline_localstack.settings import REPOSITORY
from tests.environments import without_a_system

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

BLOCKS = dict(
    re.findall(r"^<!-- (install|run) -->\n```sh\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.M | re.S)
)
AUTHOR = """
import os


def work(item: int, *, plus: int = 0) -> int:
    if item == 2:
        os._exit(1)
    return item + plus
"""


class Author:
    """A person with an environment and a folder."""

    def __init__(self, commands: Path, folder: Path) -> None:
        self.folder = folder
        kept = without_a_system()
        path = f"{commands}{os.pathsep}{kept['PATH']}"
        self._environment = {**kept, "PATH": path, "PRISMLINE_HOME": str(folder / "home"), "COLUMNS": "120"}

    def types(self, commands: str, *, expect: int = 0) -> str:
        """Type commands into a shell. Return what they print."""
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        assert done.returncode == expect, done.stdout
        return done.stdout

    def rows(self, results: str) -> list[dict[str, Any]]:
        """The rows that a command wrote."""
        rows: list[dict[str, Any]] = pq.read_table(self.folder / results).to_pylist()
        return rows


@pytest.fixture
def author(commands: Path, tmp_path: Path) -> Iterator[Author]:
    person = Author(commands, tmp_path)
    try:
        yield person
    finally:
        person.types("prismline down")


def test_the_readme_installs_the_wheels_that_the_environment_of_this_test_has() -> None:
    assert "pip install --no-index --find-links dist 'prismline-localstack[emulator]'" in BLOCKS["install"]


def test_the_example_of_the_readme(author: Author) -> None:
    began = time.monotonic()
    printed = author.types(BLOCKS["run"])
    print(f"From the file with the function to the results: {time.monotonic() - began:.1f} s")
    assert "completed: 3/3 tasks" in printed
    assert [row["value"] for row in author.rows("results")] == ["5", "10", "15"]


def test_changed_code_is_used_by_the_next_run_and_a_failed_item_is_a_row(author: Author) -> None:
    (author.folder / "mine.py").write_text(AUTHOR)
    (author.folder / "items.jsonl").write_text("1\n2\n3\n")
    author.types("prismline up")
    author.types("prismline map mine:work items.jsonl --wait --to before", expect=1)
    before = author.rows("before")
    assert [row["status"] for row in before] == ["completed", "failed", "completed"]
    assert (before[1]["error_type"], before[1]["attempts"]) == ("prismline.Crashed", 3)
    (author.folder / "mine.py").write_text(AUTHOR.replace("os._exit(1)", "return -1"))
    author.types("prismline map mine:work items.jsonl --param plus=10 --wait --to after")
    after = author.rows("after")
    assert [row["value"] for row in after] == ["11", "-1", "13"]
    assert before[0]["code"] != after[0]["code"]
