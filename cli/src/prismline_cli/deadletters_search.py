"""Search the archive of dead letters: the newest of those found, and their causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prismline_client import Client, DeadLetter, WantedDeadLetters
from prismline_contracts.deadletters import DeadLetterRecord
from prismline_runtime import batches

#: Also dead letters that a recovery has taken, and the records of all.
ALL: WantedDeadLetters = {"recovering": True, "details": True}
#: Rows that are sorted together.
SORTED_ROWS = 1000


@dataclass
class Cause:
    """What dead letters of one day, queue and error have in common."""

    records: int = 0
    messages: set[str | None] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    chunks: set[tuple[str | None, str]] = field(default_factory=set)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row."""
        self.records += 1
        self.messages.add(row["messageId"])
        if row["run_id"] is not None:
            self.runs.add(row["run_id"])
        if row["chunk_id"] is not None:
            self.chunks.add((row["run_id"], row["chunk_id"]))

    def counts(self) -> dict[str, int]:
        """The numbers of `prismline deadletters stats`."""
        messages = len(self.messages - {None})
        return {"records": self.records, "messages": messages, "runs": len(self.runs), "chunks": len(self.chunks)}


def dead_letters(client: Client, wanted: WantedDeadLetters) -> Iterator[dict[str, Any]]:
    """The rows of all dead letters found."""
    return map(row_of, client.dead_letters(**(wanted | ALL)))


def row_of(letter: DeadLetter) -> dict[str, Any]:
    """What a command prints of a dead letter: its place, and its record with its error or that of its chunk."""
    record = letter.details
    place = {
        "eventdate": letter.day,
        "key": letter.key,
        "recovering": letter.recovering,
        "recovery_failed": letter.recovery_failed,
        "body_bytes": record["body_bytes"],
    }
    known = {name: record[name] for name in DeadLetterRecord.model_fields if name in record}
    return place | known | {"error": letter.error}


def latest(rows: Iterable[dict[str, Any]], limit: int) -> tuple[list[dict[str, Any]], int]:
    """The newest rows, newest first, and the number of all rows."""
    newest: list[dict[str, Any]] = []
    total = 0
    for portion in batches(rows, SORTED_ROWS):
        total += len(portion)
        by_key = sorted([*newest, *portion], key=lambda row: row["key"])
        newest = sorted(by_key, key=lambda row: (row["eventdate"], row["archived_at"] or ""), reverse=True)[:limit]
    return newest, total


def by_cause(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The counts for each day, queue and error: newest day first, then the most frequent cause."""
    causes: dict[tuple[str, str | None, str | None], Cause] = {}
    for row in rows:
        causes.setdefault((row["eventdate"], row["source_queue"], row["error"]), Cause()).add(row)
    found: list[dict[str, Any]] = [
        {"eventdate": day, "source_queue": queue, "error": error} | cause.counts()
        for (day, queue, error), cause in causes.items()
    ]
    found.sort(key=lambda row: (-row["records"], row["source_queue"] or "", row["error"] or ""))
    return sorted(found, key=lambda row: row["eventdate"], reverse=True)
