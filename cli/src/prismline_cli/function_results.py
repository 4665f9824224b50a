"""The results of a function's run as a Parquet file: one row for each item, failures included."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prismline_client import Client, Task, part
from prismline_runtime import batches

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


def write_rows(client: Client, run_id: str, folder: Path) -> Path:
    """Write the rows of a run in the order of their indices into `folder`, and return the file."""
    with ThreadPoolExecutor(FETCHES) as pool:
        tables = [
            pa.Table.from_pylist(list(pool.map(lambda task: _row(client, task), block)), SCHEMA)
            for block in batches(client.tasks(run_id, details=True), BLOCK_ROWS)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    pq.write_table(pa.concat_tables(tables or [SCHEMA.empty_table()]).sort_by("index"), path)
    return path


def _row(client: Client, task: Task) -> dict[str, Any]:
    record, failed = task.details, task.status == "failed"
    return {
        "index": task.index,
        "item": record["source"],
        "status": task.status,
        "value": _value(client, task) if task.status == "completed" else None,
        "error": task.error if failed else None,
        "error_type": task.error_type if failed else None,
        "attempts": task.attempts,
        "duration_ms": task.duration_ms,
        "code": task.code,
    }


def _value(client: Client, task: Task) -> str | None:
    """The value of a completed item as JSON."""
    value = task.details.get("value")
    if value is None or value.get("key") is None:
        return None if value is None else value["text"]
    return client.read(client.get(f"/tasks/{part(task.task_id)}/result")["url"]).decode()
