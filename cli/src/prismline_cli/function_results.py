"""The results of a function's run as a Parquet file: one row for each item, failures included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prismline_cli.connection import Connection
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, TaskStatus

#: The columns. `item` and `value` are JSON.
SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("item", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("value", pa.string()),
        pa.field("error", pa.string()),
        pa.field("error_type", pa.string()),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("duration_ms", pa.int64()),
        pa.field("code", pa.string()),
    ]
)
#: Name of the file.
FILE = "rows.parquet"
#: Rows that are read together.
BLOCK_ROWS = 5000
#: Long values that are fetched at a time.
FETCHES = 16


def write_rows(connection: Connection, run: RunItem, folder: Path) -> Path:
    """Write the rows of a run in the order of their indices into `folder`, and return the file."""
    with ThreadPoolExecutor(FETCHES) as pool:
        tables = [
            pa.Table.from_pylist(list(pool.map(lambda task: _row(connection, task), block)), SCHEMA)
            for block in _blocks(connection.ledger.tasks(run))
        ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    pq.write_table(pa.concat_tables(tables or [SCHEMA.empty_table()]).sort_by("index"), path)
    return path


def _blocks(tasks: Iterable[TaskItem]) -> Iterator[list[TaskItem]]:
    left = iter(tasks)
    while block := list(islice(left, BLOCK_ROWS)):
        yield block


def _row(connection: Connection, task: TaskItem) -> dict[str, Any]:
    failed = task.state is TaskStatus.FAILED
    return {
        "index": task.index,
        "item": task.source,
        "status": task.status.lower(),
        "value": _value(connection, task),
        "error": task.error if failed else None,
        "error_type": task.error_type if failed else None,
        "attempts": task.attempts,
        "duration_ms": task.duration_ms,
        "code": task.code,
    }


def _value(connection: Connection, task: TaskItem) -> str | None:
    """The value of a completed item as JSON."""
    if task.value is None or task.state is not TaskStatus.COMPLETED:
        return None
    if task.value.key is None:
        return task.value.text
    answer = connection.s3.get_object(Bucket=connection.bucket, Key=task.value.key)
    return answer["Body"].read().decode()
