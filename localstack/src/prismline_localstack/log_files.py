"""The logs of a home since the last `up`: one file for each process. Most services write their lines as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from prismline_localstack.errors import NotRunningError
from prismline_localstack.home import Home
from prismline_localstack.state import State
from prismline_runtime import logged_at, logged_document


class Level(StrEnum):
    """The severity of a line, with the names of Python's logging, in ascending order."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The position in the order of severity."""
        return list(Level).index(self)


class LogLine(NamedTuple):
    """A line that a process wrote."""

    process: str
    text: str


class LogFiles:
    """The logs of the processes of a home. Each read continues where the last one ended."""

    def __init__(self, home: Home, service: str | None = None) -> None:
        """service: only the processes of this service, or the process of this name.

        Raises NotRunningError if there is no such log.
        """
        self._home, self._service = home, service
        state = State.load(home.state)
        entries = state.processes.values() if state is not None else []
        self._names = {service} | {entry.name for entry in entries if entry.service == service}
        self._position: dict[Path, int] = {}
        if not self._paths():
            what = f"of {service} " if service else ""
            raise NotRunningError(f"There is no log {what}in {home.path}.")

    def _paths(self) -> list[Path]:
        every = sorted(self._home.logs.glob("*.log"))
        return [path for path in every if self._service is None or path.stem in self._names]

    def new_lines(self) -> Iterator[LogLine]:
        """The complete lines that were written since the last call, file by file."""
        for path in self._paths():
            with path.open("rb") as log:
                log.seek(self._position.get(path, 0))
                for line in log:
                    if not line.endswith(b"\n"):  # still incomplete
                        break
                    self._position[path] = self._position.get(path, 0) + len(line)
                    yield LogLine(path.stem, line.decode(errors="replace").rstrip("\n"))


@dataclass(frozen=True)
class Entry:
    """A log line, parsed as far as possible."""

    process: str
    message: str
    #: The time as written, and parsed. A line without a time has the parsed time of the line before it.
    time: str | None = None
    moment: datetime | None = None
    level: Level = Level.INFO
    run_id: str | None = None
    chunk_id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The entry as a JSON document."""
        named = {"time": self.time, "run_id": self.run_id, "chunk_id": self.chunk_id, "fields": self.fields}
        return {
            "process": self.process,
            "level": self.level.value,
            "message": self.message,
            **{name: value for name, value in named.items() if value},
        }

    def __str__(self) -> str:
        """One line for a person, followed by the lines of the traceback, if any."""
        when = self.time[11:19] if self.time else " " * 8
        about = " ".join(name for name in (self.run_id, self.chunk_id) if name)
        more = " ".join(f"{name}={_plain(value)}" for name, value in self.fields.items() if name != "exception")
        line = f"{when} {self.level.upper():<8} {self.process:<14} {self.message}"
        line = "  ".join(part for part in (line, about, more) if part)
        return f"{line}\n{self.fields['exception']}" if self.fields.get("exception") else line


#: Keys of a service's line that `Entry` shows in another way, or that do not help a reader.
_OWN_KEYS = {
    "task_ids",
    "level",
    "message",
    "timestamp",
    "run_id",
    "chunk_id",
    "service",
    "location",
    "exception_name",
    "stack_trace",
}


class Reader:
    """Parses the lines of one or more processes. It skips metrics, which services also write as lines."""

    def __init__(self) -> None:
        self._last: dict[str, Entry] = {}
        self._in_traceback: set[str] = set()

    def entries(self, lines: Iterable[LogLine]) -> Iterator[Entry]:
        """The entries of `lines`."""
        for line in lines:
            entry = self._entry(line)
            if entry is not None:
                self._last[line.process] = entry
                yield entry

    def _entry(self, line: LogLine) -> Entry | None:
        document = logged_document(line.text)
        if document is None:
            if line.text.startswith("Traceback "):
                self._in_traceback.add(line.process)
            last = self._last.get(line.process)
            level = Level.ERROR if line.process in self._in_traceback else Level.INFO
            return Entry(line.process, line.text, moment=last.moment if last else None, level=level)
        if "_aws" in document:
            return None
        self._in_traceback.discard(line.process)
        time = document.get("timestamp")
        return Entry(
            line.process,
            str(document.get("message", "")),
            time=str(time) if time else None,
            moment=logged_at(document),
            level=_level(document.get("level")),
            run_id=_text(document.get("run_id")),
            chunk_id=_text(document.get("chunk_id")),
            fields={name: value for name, value in document.items() if name not in _OWN_KEYS},
        )


def _level(value: object) -> Level:
    try:
        return Level(str(value).lower())
    except ValueError:
        return Level.INFO


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
