"""Search the archive of dead letters.

The archive is partitioned by date. A search fetches only the objects of the given dates, a few at a time, and keeps
only what it returns. Records that a recovery has taken are no longer stored by date, so the search fetches all of them.
On AWS, Athena can query all other records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from botocore.exceptions import ClientError
from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_contracts.deadletters import DeadLetterRecord
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX, RECOVERING_PREFIX
from prismline_runtime import batches, describe_invalid, error_code

#: Objects that are fetched at the same time. A record can have several megabytes.
READERS = 16
#: Rows that are sorted together.
SORTED_ROWS = 1000
#: Fields of a record that a row leaves out.
LEFT_OUT = {"body", "attributes", "messageAttributes", "receiptHandle"}

#: A date's folder below the archive's prefix.
_DATE_FOLDER = re.compile(r"/(\d{4}-\d{2}-\d{2})/$")


@dataclass(frozen=True)
class Search:
    """The dead letters to search for. Both days are included. They are days of the archive, in UTC."""

    first: date
    last: date
    survey: str | None = None
    run_id: str | None = None
    #: Text that the error contains. Case is ignored.
    error: str | None = None

    def matches(self, row: dict[str, Any]) -> bool:
        """Whether a row meets the conditions. Its day is not checked."""
        return (
            self.survey in (None, row["collection"])
            and self.run_id in (None, row["run_id"])
            and (self.error is None or self.error.lower() in (row["error"] or "").lower())
        )


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


def dead_letters(connection: Connection, search: Search) -> Iterator[dict[str, Any]]:
    """The rows of all records found: the place of a record and its fields without `LEFT_OUT`.

    Fetches `READERS` records at a time. A dead letter without an error (its worker died, or the attempt may succeed
    later) gets the error that the ledger has for its chunk.
    """
    for found in batches(found_records(connection, search), READERS):
        silent = [name for _, record in found if record.error is None and (name := _chunk_name(record)) is not None]
        chunks = connection.ledger.find(silent) if silent else {}
        for key, record in found:
            chunk = chunks.get(_chunk_name(record) or ("", "")) if record.error is None else None
            row = _row(key, record, (chunk.error or chunk.last_error) if chunk is not None else None)
            if search.matches(row):
                yield row


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


def record_keys(connection: Connection, search: Search, message_id: str = "") -> Iterator[str]:
    """Keys of the records of the given days, and of only one message if `message_id` is given. Keys of records that a
    recovery has taken contain neither a day nor a message, so all of them are included.

    The folders of other days are not listed.
    """
    pages = connection.s3.get_paginator("list_objects_v2")
    for root in (DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX):
        for folders in pages.paginate(Bucket=connection.bucket, Prefix=root, Delimiter="/"):
            for folder in (entry["Prefix"] for entry in folders.get("CommonPrefixes", [])):
                if not _within(folder, search):
                    continue
                for page in pages.paginate(Bucket=connection.bucket, Prefix=folder + message_id):
                    yield from (item["Key"] for item in page.get("Contents", []))
    for page in pages.paginate(Bucket=connection.bucket, Prefix=RECOVERING_PREFIX):
        yield from (item["Key"] for item in page.get("Contents", []))


def found_records(
    connection: Connection, search: Search, message_id: str = ""
) -> Iterator[tuple[str, DeadLetterRecord]]:
    """The records that `record_keys` names, with their keys, if they belong to the message and the days."""
    with ThreadPoolExecutor(READERS) as pool:
        for keys in batches(record_keys(connection, search, message_id), READERS):
            for key, record in zip(keys, pool.map(lambda key: read_record(connection, key), keys), strict=True):
                if record is None:
                    continue
                taken = key.startswith(RECOVERING_PREFIX)
                if not taken or (_was_within(record, search) and (record.messageId or "").startswith(message_id)):
                    yield key, record


def read_record(connection: Connection, key: str) -> DeadLetterRecord | None:
    """A record. None if a recovery has moved it since. An invalid record is replaced by one whose error says so."""
    try:
        body = connection.s3.get_object(Bucket=connection.bucket, Key=key)["Body"].read()
    except ClientError as error:
        if error_code(error) == "NoSuchKey":
            return None
        raise
    try:
        return DeadLetterRecord.model_validate_json(body)
    except ValidationError as error:
        return DeadLetterRecord(
            body=body.decode(errors="replace"), error=f"The archived object is not a record: {describe_invalid(error)}."
        )


def _within(folder: str, search: Search) -> bool:
    found = _DATE_FOLDER.search(folder)
    return found is not None and search.first.isoformat() <= found[1] <= search.last.isoformat()


def _was_within(record: DeadLetterRecord, search: Search) -> bool:
    return search.first.isoformat() <= (record.archived_at or "")[:10] <= search.last.isoformat()


def _chunk_name(record: DeadLetterRecord) -> tuple[str, str] | None:
    return (record.run_id, record.chunk_id) if record.run_id and record.chunk_id else None


def _row(key: str, record: DeadLetterRecord, chunk_error: str | None) -> dict[str, Any]:
    recovering = key.startswith(RECOVERING_PREFIX)
    place = {
        "eventdate": (record.archived_at or "")[:10] if recovering else key.split("/")[-2],
        "key": key,
        "recovering": recovering,
        "recovery_failed": key.startswith(FAILED_DEAD_LETTERS_PREFIX),
        "body_bytes": len(record.body.encode(errors="surrogatepass")),
    }
    return place | record.model_dump(exclude=LEFT_OUT) | {"error": record.error or chunk_error}
