"""The entries of an export: one for each task or chunk of the run, in the order in which the ledger stores them."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prismline_contracts.items import ChunkItem, ChunkStatus, NewerStatus, RunItem
from prismline_contracts.tasks import TaskItem
from prismline_contracts.workloads import is_function

#: File name extensions by media type. The system's own tables are not read, so every machine gives the same names.
_TYPES = mimetypes.MimeTypes()
#: The time of an entry that has none.
_UNKNOWN = datetime(1980, 1, 1, tzinfo=UTC)
#: Cursor after the list of rejected lines.
_REJECTS = "rejects"

#: The outcome of a task or chunk, in the words of Step Functions' result files.
_OUTCOMES: dict[ChunkStatus | NewerStatus, str] = {ChunkStatus.COMPLETED: "succeeded", ChunkStatus.FAILED: "failed"}


@dataclass(frozen=True)
class Entry:
    """A result, or the reason why there is none."""

    #: The line of the manifest, without the fields that need the file's content. None: the file has no line.
    line: dict[str, Any] | None
    #: Position after this entry.
    cursor: str
    modified: datetime
    #: Where the file is stored, and its name in the archive. None: there is no file.
    key: str | None = None
    name: str | None = None
    #: Its length in bytes, as far as known.
    length: int = 0


#: The tasks of one shard after a task id (None: from the beginning), in the order of their ids.
TasksOfShard = Callable[[int, str | None], Iterator[TaskItem]]


def task_entries(run: RunItem, tasks: TasksOfShard, cursor: str | None) -> Iterator[Entry]:
    """The entries of a task run after `cursor`: the lines that ingestion rejected, then shard by shard."""
    if cursor is None and run.rejects_key is not None:
        yield Entry(None, _REJECTS, _moment(run.created_at), run.rejects_key, "rejects.jsonl")
    shard, after = 0, None
    if cursor is not None and cursor != _REJECTS:
        number, _, after = cursor.partition(":")
        shard = int(number)
    for each in range(shard, run.shard_count):
        for task in tasks(each, after):
            yield _task_entry(task, f"{each}:{task.task_id}", function=is_function(run.workload))
        after = None


def _task_entry(task: TaskItem, cursor: str, *, function: bool) -> Entry:
    result = task.result if task.state is ChunkStatus.COMPLETED else None
    line: dict[str, Any] = {
        "task_id": task.address,
        "index": task.index,
        **({"item": json.loads(task.source)} if function else {"url": task.source}),
        "outcome": _OUTCOMES.get(task.state, "skipped"),
        "attempts": task.attempts,
    }
    if task.code is not None:
        line["code"] = task.code
    if task.state is ChunkStatus.COMPLETED and (value := task.value) is not None:
        moment = _moment(task.completed_at)
        if value.text is not None:
            return Entry(line | {"value": json.loads(value.text)}, cursor, moment)
        return Entry(line, cursor, moment, value.key, f"values/{task.index:09d}.json", value.length)
    if task.error_type is not None:
        line["error_type"] = task.error_type
    if result is None:
        error = task.error if task.state is ChunkStatus.FAILED else task.last_error
        return Entry(line | {"error": error or "The run ended before the task did."}, cursor, _UNKNOWN)
    facts = result.model_dump(include={"http_status", "content_type", "length", "sha256", "final_url", "headers"})
    name = f"bodies/{task.index:09d}{_extension(result.content_type)}"
    return Entry(line | facts, cursor, _moment(task.completed_at), result.key, name, result.length)


def chunk_entries(chunks: Iterator[ChunkItem], cursor: str | None) -> Iterator[Entry]:
    """The entries of a chunked run after `cursor`. `chunks` are in the order of their ids."""
    for chunk in chunks:
        if cursor is not None and chunk.chunk_id <= cursor:
            continue
        line = {
            "chunk_id": chunk.chunk_id,
            "outcome": _OUTCOMES.get(chunk.state, "skipped"),
            "n_items": chunk.n_items,
            "attempts": chunk.attempts,
        }
        if chunk.state is not ChunkStatus.COMPLETED or chunk.output_key is None:
            error = chunk.error if chunk.state is ChunkStatus.FAILED else chunk.last_error
            error = error or "The run ended before the chunk did."
            yield Entry(line | {"error": error}, chunk.chunk_id, _UNKNOWN)
            continue
        _, dot, suffix = chunk.output_key.rpartition("/")[2].rpartition(".")
        name = f"results/{chunk.chunk_id}{dot}{suffix}"
        yield Entry(line, chunk.chunk_id, _moment(chunk.completed_at), chunk.output_key, name)


def _extension(content_type: str | None) -> str:
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return _TYPES.guess_extension(media_type) or ""


def _moment(text: str | None) -> datetime:
    return datetime.fromisoformat(text) if text else _UNKNOWN
