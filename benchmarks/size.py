"""Count lines and files of the repository: source, tests, generated files, and the rest.

    python benchmarks/size.py                 # the present commit and what is staged
    python benchmarks/size.py v1.1 HEAD       # before and after, with the difference

Lines of text files are counted as they are, with comments and blank lines. Pictures and other binary files have none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
#: Folders and files that a command of the Makefile or a benchmark writes, or that others wrote.
GENERATED = (
    "benchmarks/gaussline/results",
    "contracts/catalogue",
    "contracts/pacts",
    "contracts/registry",
    "contracts/released",
    "contracts/schemas",
    "docs/images",
    "requirements",
)
_GENERATED_NAMES = frozenset({"vendor", "asyncapi.json", "openapi.json"})
_TEST_NAMES = frozenset({"conftest.py"})


class Kind(StrEnum):
    """What a file is for."""

    SOURCE = "source"
    TESTS = "tests"
    GENERATED = "generated"
    BENCHMARKS = "benchmarks"
    DOCUMENTS = "documents"
    OTHER = "settings and others"


@dataclass
class Size:
    """Numbers of files and lines."""

    files: int = 0
    lines: int = 0


def kind_of(path: str) -> Kind:
    """The kind of a file, from its path below the repository."""
    parts = PurePosixPath(path).parts
    if any(path.startswith(f"{folder}/") for folder in GENERATED) or _GENERATED_NAMES & set(parts):
        return Kind.GENERATED
    if "tests" in parts or parts[-1] in _TEST_NAMES or "prismline_testkit" in parts:
        return Kind.TESTS
    if "src" in parts or "statemachine" in parts or parts[-1] == "template.yaml":
        return Kind.SOURCE
    if parts[0] == "benchmarks":
        return Kind.BENCHMARKS
    return Kind.DOCUMENTS if parts[-1].endswith(".md") else Kind.OTHER


def files_of(commit: str | None) -> Iterator[tuple[str, int]]:
    """Path and number of lines of every file of a commit, or of the index if there is none."""
    # the empty tree: every line of a commit is an addition
    empty = _git("hash-object", "-t", "tree", "--stdin").strip()
    names = ["--cached", empty] if commit is None else [empty, commit]
    for line in _git("diff", "--numstat", "--no-renames", *names).splitlines():
        added, _, path = line.split("\t")
        yield path, int(added) if added.isdigit() else 0


def count(commit: str | None) -> dict[Kind, Size]:
    """The size of each kind."""
    sizes = {kind: Size() for kind in Kind}
    for path, lines in files_of(commit):
        size = sizes[kind_of(path)]
        size.files += 1
        size.lines += lines
    return sizes


def main(
    before: Annotated[str | None, typer.Argument(help="A commit to compare with.")] = None,
    after: Annotated[str | None, typer.Argument(help="Another commit. By default, what is staged.")] = None,
) -> None:
    """Print the size of the repository, or of two states of it."""
    new = count(after)
    old = None if before is None else count(before)
    headings = ["files", "lines"] if old is None else ["files", "lines", "before", "lines", "change", "lines"]
    table = Table("", box=None)
    for heading in headings:
        table.add_column(heading, justify="right")
    sums = {}
    for name, sizes in (("new", new), ("old", old)):
        if sizes is not None:
            every = sizes.values()
            sums[name] = Size(sum(size.files for size in every), sum(size.lines for size in every))
    rows = [(kind.value, new[kind], None if old is None else old[kind]) for kind in Kind]
    for label, now, then in [*rows, ("all", sums["new"], sums.get("old"))]:
        cells = [f"{now.files:,}", f"{now.lines:,}"]
        if then is not None:
            cells += [f"{then.files:,}", f"{then.lines:,}"]
            cells += [f"{now.files - then.files:+,}", f"{now.lines - then.lines:+,}"]
        table.add_row(label, *cells)
    Console(highlight=False).print(table)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


if __name__ == "__main__":
    typer.run(main)
