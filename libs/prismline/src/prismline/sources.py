"""Lists of items in files. Reading the same file again gives the same items with the same indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prismline.values import NotJsonError, decode

#: Longest line in bytes. A longer one is rejected without being kept in memory.
MAX_LINE_BYTES = 2**20


@dataclass(frozen=True)
class Row:
    """A line of a list: an item, or the reason why it is none."""

    #: Number of the row from 0; empty lines are no rows.
    index: int
    #: Where the line begins, in bytes.
    offset: int
    item: Any = None
    #: Why the row was rejected; empty if it was not.
    rejected: str = ""


def read_jsonl(path: Path) -> Iterator[Row]:
    """The rows of a file with one JSON value a line, in UTF-8."""
    with path.open("rb") as file:
        yield from rows_of(file)


def rows_of(file: BinaryIO) -> Iterator[Row]:
    """The rows of an open file, from where it is."""
    index = offset = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        length = len(line) if len(line) <= MAX_LINE_BYTES else len(line) + _skip_line(file, line)
        if line.strip():
            yield _row(index, offset, line)
            index += 1
        offset += length


def _skip_line(file: BinaryIO, line: bytes) -> int:
    skipped = 0
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
        skipped += len(line)
    return skipped


def _row(index: int, offset: int, line: bytes) -> Row:
    if len(line) > MAX_LINE_BYTES:
        return Row(index, offset, rejected=f"The line is longer than {MAX_LINE_BYTES:,} bytes.")
    try:
        return Row(index, offset, decode(line))
    except NotJsonError as error:
        return Row(index, offset, rejected=str(error))
