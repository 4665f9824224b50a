"""Finds the log lines of one chunk or task in the files of the processes of this machine.

A file is read from its end, and never more of it than `MOST_BYTES`. What is shown is chosen by name: a line may quote
the data of users in a field that nobody expected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prismline_api.cells.models import LogLineView
from prismline_runtime import logged_at, logged_document, without_credentials

#: Bytes that are read from the end of a file, and of each read.
MOST_BYTES, BLOCK_BYTES = 4 * 2**20, 2**16
#: Files that are read, those first that were written last. Lines that are shown, the latest.
MOST_FILES, MOST_LINES = 64, 200
#: Characters that are shown of a text from its beginning, and of a traceback from its end.
MOST_TEXT, MOST_TRACEBACK = 1000, 8000
#: The fields of a line whose text is shown. Numbers are shown whatever their name.
TEXTS = ("reason", "error", "error_type", "decision", "resource", "queue", "host", "status")
#: What every service's name begins with in its lines. Other programs write to the folder too.
_SERVICES = "prismline-"
_TOKENS = re.compile(r"(?i)\b(bearer\s+|prismline_|whsec_)[\w.~+/=-]+")


@dataclass(frozen=True)
class Subject:
    """What the lines are about: one chunk or task of a run, since it was written to the ledger."""

    run_id: str
    since: datetime
    chunk_id: str | None = None
    #: Of a task. The lines of a message name all its tasks, and a line about one of them has its index too.
    task_id: str | None = None
    index: int | None = None

    def covers(self, line: Mapping[str, Any]) -> bool:
        """Whether a line is about it."""
        if line.get("run_id") != self.run_id or not str(line.get("service", "")).startswith(_SERVICES):
            return False
        if self.chunk_id is not None:
            return line.get("chunk_id") == self.chunk_id
        tasks = line.get("task_ids")
        return isinstance(tasks, list) and self.task_id in tasks and line.get("index", self.index) == self.index


def find_lines(folder: Path, subject: Subject) -> tuple[list[LogLineView], bool]:
    """The latest lines about the subject, the earliest first, and whether no older ones were left out."""
    since = subject.since.timestamp()
    files = sorted(((path.stat().st_mtime, path) for path in folder.glob("*.log")), reverse=True)
    wanted = [path for written, path in files if written >= since]
    found, complete = list[LogLineView](), len(wanted) <= MOST_FILES
    for path in wanted[:MOST_FILES]:
        lines, whole = _lines_in(path, subject)
        found += lines
        complete = complete and whole
    found.sort(key=lambda line: line.at)
    return found[-MOST_LINES:], complete and len(found) <= MOST_LINES


def _lines_in(path: Path, subject: Subject) -> tuple[list[LogLineView], bool]:
    found = list[LogLineView]()
    sought = subject.run_id.encode()
    for line in lines_from_end(path, MOST_BYTES):
        document = logged_document(line) if sought in line else None
        if document is None or not subject.covers(document):
            continue
        at = logged_at(document)
        if at is None:
            continue
        if at < subject.since:
            return found, True
        if len(found) == MOST_LINES:
            return found, False
        found.append(shown(document, at, path.stem))
    return found, path.stat().st_size <= MOST_BYTES


def lines_from_end(path: Path, most_bytes: int) -> Iterator[bytes]:
    """The lines of a file, the last first, as far as they are complete in its last bytes, at most this many."""
    with path.open("rb") as log:
        position = log.seek(0, os.SEEK_END)
        first, rest = max(0, position - most_bytes), b""
        while position > first:
            begin = max(first, position - BLOCK_BYTES)
            log.seek(begin)
            rest, *lines = (log.read(position - begin) + rest).split(b"\n")
            yield from reversed(lines)
            position = begin
        if first == 0:
            yield rest


def shown(line: Mapping[str, Any], at: datetime, process: str) -> LogLineView:
    """What is shown of a line."""
    numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
    texts = {name: _masked(line[name])[:MOST_TEXT] for name in TEXTS if isinstance(line.get(name), str)}
    traceback = next((line[name] for name in ("exception", "traceback") if isinstance(line.get(name), str)), None)
    return LogLineView(
        at=at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        level=str(line.get("level", "info")).lower(),
        process=process,
        message=_masked(str(line.get("message", "")))[:MOST_TEXT],
        fields=texts | numbers,
        traceback=None if traceback is None else _masked(traceback)[-MOST_TRACEBACK:],
    )


def _masked(text: str) -> str:
    return _TOKENS.sub(r"\1...", without_credentials(text))
