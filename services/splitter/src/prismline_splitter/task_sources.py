"""Where the tasks of a run come from: a manifest's own list, a staged list, the batches of an open job, an earlier run.

A source gives blocks of consecutive tasks. It can start at the cursor of any earlier block
(`prismline_splitter.workload`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

from pydantic import TypeAdapter, ValidationError

from prismline_contracts.items import RunItem
from prismline_contracts.prefixes import JOBS_PREFIX
from prismline_contracts.tasks import RerunOf, TaskBatches, TaskStatus, UrlsManifest
from prismline_ledger import Ledger
from prismline_runtime import Bucket, PermanentError, describe_invalid
from prismline_splitter.lists import UrlList
from prismline_splitter.rows import BEGINNING, Position, Rows, blocks
from prismline_splitter.workload import Cursor, TaskBlock, TaskContext, TaskSource


def source_of(manifest: UrlsManifest, context: TaskContext) -> TaskSource:
    """The source that the manifest names. A list is read in the version that was submitted, or else the first found."""
    bucket = context.bucket
    if manifest.urls is not None:
        return InlineTasks(manifest.urls)
    if manifest.list is not None:
        of, key = manifest.list, manifest.list.key
        etag = of.etag or str(context.pinned("etag", lambda: bucket.version(key)))
        return RowTasks(lambda: UrlList(bucket.open(key, etag=etag), of.format, compressed=of.gzip, name=key))
    if manifest.batches is not None:
        return BatchedTasks(bucket, manifest.batches)
    assert manifest.rerun is not None, "the manifest has exactly one source"
    return rerun_source_of(manifest.rerun, context)


def rerun_source_of(rerun: RerunOf, context: TaskContext) -> TaskSource:
    """The tasks of an earlier run."""
    prefix = f"{JOBS_PREFIX}{context.job_id}/rerun-{context.run_id}/"
    return RerunTasks(context.ledger, context.bucket, rerun, prefix)


@dataclass(frozen=True)
class InlineTasks:
    """The URLs in the manifest. Each entry is a task, even if it is not a URL: its position is the task's index."""

    urls: list[str]

    def estimate(self) -> int:
        """The number of tasks."""
        return len(self.urls)

    def blocks(self, cursor: Cursor | None, index: int, size: int) -> Iterator[TaskBlock]:
        """The blocks of the list. The cursor is a position in it."""
        del cursor  # the index is the position
        for start in range(index, len(self.urls), size):
            sources = self.urls[start : start + size]
            yield TaskBlock(start, sources, {"position": start + len(sources)})


@dataclass(frozen=True)
class RowTasks:
    """The rows of a list, at most `most` of them that are tasks. It is read as a stream."""

    #: Opens the list, when it is first needed.
    open: Callable[[], Rows]
    most: int | None = None

    @cached_property
    def _rows(self) -> Rows:
        return self.open()

    def estimate(self) -> int:
        """The number of rows, as far as it is known without reading them."""
        lines = self._rows.estimated_lines()
        return lines if self.most is None else min(lines, self.most)

    def blocks(self, cursor: Cursor | None, index: int, size: int) -> Iterator[TaskBlock]:
        """Blocks of `size` rows. The cursor is a position in the list."""
        start = BEGINNING if cursor is None else TypeAdapter(Position).validate_python(cursor)
        rest = None if self.most is None else self.most - index
        for block in blocks(self._rows.lines(start), size, rest):
            after: Cursor = asdict(block.after)
            yield TaskBlock(index, block.values, after, block.rejects)
            index += len(block.values)


@dataclass(frozen=True)
class BatchedTasks:
    """The batches of a job that was open. Each has its own list, named after the index of its first task."""

    bucket: Bucket
    batches: TaskBatches

    def estimate(self) -> int:
        """The number of tasks that were reserved."""
        return self.batches.count

    def blocks(self, cursor: Cursor | None, index: int, size: int) -> Iterator[TaskBlock]:
        """One block for each batch, of at most 1,000 tasks. The cursor is the key of the last batch."""
        del index, size  # the batch decides
        after = str(cursor["key"]) if cursor is not None else ""
        for key in self.bucket.list(self.batches.prefix, after=after):
            yield TaskBlock(_first_index(key), _batch_sources(key, self.bucket.read(key)), {"key": key})


def _first_index(key: str) -> int:
    name = key.rpartition("/")[2].partition(".")[0]
    if not name.isdecimal():
        raise PermanentError(f"{key} is not the list of a batch: its name is not the index of its first task.")
    return int(name)


def _batch_sources(key: str, body: bytes) -> list[str]:
    """The sources of the tasks of a batch. The service that accepted the batch has checked its lines."""
    try:
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        return [str(line["url"]) if isinstance(line, dict) else str(line) for line in lines]
    except (ValueError, KeyError) as error:
        raise PermanentError(f"{key} is not a list of tasks: {error}.") from error


@dataclass(frozen=True)
class _RerunBlock:
    """A block of a rerun as it is stored. The next block begins in `shard`, after the task id `after`."""

    sources: list[str]
    shard: int
    after: str | None


@dataclass(frozen=True)
class RerunTasks:
    """The tasks of an earlier run: all, those that failed, or those that are not completed.

    They are read as a stream, shard by shard. The earlier run may change while it is read, for example because a
    recovery completes a task that had failed. So the first delivery that reads a block stores it, and every later one
    takes the stored block.
    """

    ledger: Ledger
    bucket: Bucket
    of: RerunOf
    prefix: str

    @cached_property
    def _run(self) -> RunItem:
        return self.ledger.run(self.of.run_id)

    def estimate(self) -> int:
        """The number of tasks that the rerun takes from the earlier run."""
        counts = self.ledger.counts(self._run)
        if self.of.only == "failed":
            return counts.failed
        return (counts.total or 0) - (counts.completed if self.of.only == "rest" else 0)

    def blocks(self, cursor: Cursor | None, index: int, size: int) -> Iterator[TaskBlock]:
        """Blocks of at most `size` tasks. The cursor has the next block's number and its place in the earlier run."""
        number, shard, after = 0, 0, None
        if cursor is not None:
            place = TypeAdapter(_RerunCursor).validate_python(cursor)
            number, shard, after = place.number, place.shard, place.after
        while shard < self._run.shard_count:
            block = self._stored(number, shard, after, size)
            number, shard, after = number + 1, block.shard, block.after
            yield TaskBlock(index, block.sources, {"number": number, "shard": shard, "after": after})
            index += len(block.sources)

    def _stored(self, number: int, shard: int, after: str | None, size: int) -> _RerunBlock:
        """The block with this number. If it is not stored yet, read it from the earlier run and store it."""
        key = f"{self.prefix}{number:06d}.json"
        found = self._read(shard, after, size)
        if self.bucket.create(key, TypeAdapter(_RerunBlock).dump_json(found)):
            return found
        try:
            return TypeAdapter(_RerunBlock).validate_json(self.bucket.read(key))
        except ValidationError as error:
            raise PermanentError(f"{key} is not a block of a rerun: {describe_invalid(error)}.") from error

    def _read(self, shard: int, after: str | None, size: int) -> _RerunBlock:
        status = TaskStatus.FAILED if self.of.only == "failed" else None
        page = self.ledger.page_of_tasks(self._run, shard, after=after, limit=size, status=status)
        rest = self.of.only == "rest"
        sources = [task.source for task in page.tasks if not (rest and task.state is TaskStatus.COMPLETED)]
        if page.after is None:
            return _RerunBlock(sources, shard + 1, None)
        return _RerunBlock(sources, shard, page.after)


@dataclass(frozen=True)
class _RerunCursor:
    number: int
    shard: int
    after: str | None
