"""Search the archive of dead letters with SQL, in DuckDB.

The archive is partitioned by date. The search fetches only the objects of the given dates, a few at a time, into a
table on disk, so that memory does not grow with the archive. Records that a recovery has taken are no longer stored by
date, so the search fetches all of them. On AWS, Athena can query all other records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from pydantic import ValidationError

from prismline_cli.connection import Connection
from prismline_contracts.deadletters import DeadLetterRecord
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX, FAILED_DEAD_LETTERS_PREFIX, RECOVERING_PREFIX
from prismline_runtime import batches, describe_invalid, error_code

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Objects that are fetched at the same time. A record can have several megabytes.
READERS = 16
#: Bytes of records that are gathered in a file before DuckDB reads the file.
INGEST_BYTES = 32 * 2**20
#: Most memory that DuckDB uses. It keeps the rest on disk.
MEMORY_LIMIT = "256MB"

#: A date's folder below the archive's prefix.
_DATE_FOLDER = re.compile(r"/(\d{4}-\d{2}-\d{2})/$")
#: Columns of the table `dead_letters`: the place of the record, and its fields without the body.
_COLUMNS = {
    "eventdate": "DATE",
    "key": "VARCHAR",
    "recovering": "BOOLEAN",
    "recovery_failed": "BOOLEAN",
    "body_bytes": "BIGINT",
    "error": "VARCHAR",
    "execution": "VARCHAR",
    "time": "VARCHAR",
    "collection": "VARCHAR",
    "granules": "VARCHAR[]",
    "stateMachine": "VARCHAR",
    "status": "VARCHAR",
    "md5OfBody": "VARCHAR",
    "eventSource": "VARCHAR",
    "awsRegion": "VARCHAR",
    "messageId": "VARCHAR",
    "receiptHandle": "VARCHAR",
    "attributes": "JSON",
    "messageAttributes": "JSON",
    "run_id": "VARCHAR",
    "chunk_id": "VARCHAR",
    "source_queue": "VARCHAR",
    "receive_count": "BIGINT",
    "archived_at": "VARCHAR",
    "recovery": "VARCHAR",
}

#: SQL conditions for the fields of a `Search`.
_CONDITIONS = {
    "survey": "collection = $survey",
    "run_id": "run_id = $run_id",
    "error": "contains(lower(error), lower($error))",
}

LATEST_FIRST = """
SELECT * EXCLUDE (attributes, messageAttributes, receiptHandle)
FROM dead_letters ORDER BY eventdate DESC, archived_at DESC, key LIMIT $limit
"""
BY_CAUSE = """
SELECT eventdate, source_queue, error, count(*) AS records, count(DISTINCT messageId) AS messages,
       count(DISTINCT run_id) AS runs, count(DISTINCT (run_id, chunk_id)) FILTER (chunk_id IS NOT NULL) AS chunks
FROM dead_letters GROUP BY ALL ORDER BY eventdate DESC, records DESC, source_queue, error
"""


@dataclass(frozen=True)
class Search:
    """The dead letters to search for. Both days are included. They are days of the archive, in UTC."""

    first: date
    last: date
    survey: str | None = None
    run_id: str | None = None
    #: Text that the error contains. Case is ignored.
    error: str | None = None


@contextmanager
def dead_letters(connection: Connection, search: Search) -> Iterator[DuckDBPyConnection]:
    """A database with the table `dead_letters` of all records found. It is deleted when the block ends."""
    import duckdb  # noqa: PLC0415  an import of a third of a second that other commands do not need

    wanted = {name: value for name in _CONDITIONS if (value := getattr(search, name))}
    where = " AND ".join(_CONDITIONS[name] for name in wanted) or "true"
    with TemporaryDirectory(prefix="prismline-deadletters-") as folder:
        gathered = Path(folder) / "records.ndjson"
        with duckdb.connect(
            str(Path(folder) / "archive.duckdb"), config={"memory_limit": MEMORY_LIMIT, "temp_directory": folder}
        ) as database:
            columns = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
            database.execute(f"CREATE TABLE dead_letters ({columns})")
            for rows in _portions(_rows(connection, search)):
                gathered.write_text("\n".join(rows))
                database.execute(
                    "INSERT INTO dead_letters SELECT * FROM read_json($file, format = 'newline_delimited',"
                    f" columns = {_COLUMNS}) WHERE {where}",
                    {"file": str(gathered), **wanted},
                )
            yield database


def rows_of(database: DuckDBPyConnection, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    """The rows that a query returns, as dicts. Dates are text."""
    answer = database.execute(sql, parameters)
    names = [column[0] for column in answer.description or ()]
    return [
        {name: str(value) if isinstance(value, date) else value for name, value in zip(names, row, strict=True)}
        for row in answer.fetchall()
    ]


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


def _rows(connection: Connection, search: Search) -> Iterator[str]:
    """The records as JSON lines, `READERS` of them in memory at a time. A dead letter without an error (its worker
    died, or the attempt may succeed later) gets the error that the ledger has for its chunk.
    """
    for found in batches(found_records(connection, search), READERS):
        silent = [name for _, record in found if record.error is None and (name := _chunk_name(record)) is not None]
        chunks = connection.ledger.find(silent) if silent else {}
        for key, record in found:
            chunk = chunks.get(_chunk_name(record) or ("", "")) if record.error is None else None
            yield _row(key, record, (chunk.error or chunk.last_error) if chunk is not None else None)


def _chunk_name(record: DeadLetterRecord) -> tuple[str, str] | None:
    return (record.run_id, record.chunk_id) if record.run_id and record.chunk_id else None


def _row(key: str, record: DeadLetterRecord, chunk_error: str | None) -> str:
    recovering = key.startswith(RECOVERING_PREFIX)
    place = {
        "eventdate": (record.archived_at or "")[:10] if recovering else key.split("/")[-2],
        "key": key,
        "recovering": recovering,
        "recovery_failed": key.startswith(FAILED_DEAD_LETTERS_PREFIX),
        "body_bytes": len(record.body.encode(errors="surrogatepass")),
    }
    fields = record.model_dump(exclude={"body"})
    return json.dumps(fields | place | {"error": record.error or chunk_error})


def _portions(lines: Iterable[str]) -> Iterator[list[str]]:
    """`lines` in lists of about `INGEST_BYTES`."""
    portion: list[str] = []
    size = 0
    for line in lines:
        portion.append(line)
        size += len(line)
        if size >= INGEST_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
