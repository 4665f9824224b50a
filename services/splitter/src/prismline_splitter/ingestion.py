"""Ingests the tasks of a run: block by block it writes tasks, sends their messages and records how far it has come.

At the end it sets the absolute total and closes the latch. Task ids depend on the index alone, existing tasks stay
unchanged, and every block ends with a checkpoint in the run's item. So a delivery that takes over repeats at most one
block. A delivery replaces only the checkpoint that it read, so one of two concurrent deliveries stops.

A delivery ingests for a short time, and then sends its command again. So the commands of small runs do not wait for the
end of long lists, even if a process has as many long lists as it takes commands at a time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter

from prismline_contracts.commands import RunSplit, TasksProcess, task_queue_of
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import rejects_key
from prismline_contracts.pools import pool_of
from prismline_contracts.tasks import MAX_SHARDS
from prismline_runtime import Bucket, PermanentError, TransientError, fault_point
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.functions import tasks_per_message
from prismline_splitter.rows import Reject
from prismline_splitter.workload import Cursor, TaskBlock, TaskSource

#: Most tasks of a run with one shard: one query lists it, and one item counts it.
TASKS_OF_ONE_SHARD = 10_000
#: Tasks in each shard of a large run. A task takes four writes from its creation to its end, and DynamoDB allows 1,000
#: writes a second for a partition, so a shard of this size takes about four minutes.
TASKS_PER_SHARD = 62_500
#: Tasks of one shard in a block. Enough that the checkpoint after each block costs little compared with its tasks.
BLOCK_TASKS_PER_SHARD = 400
#: Fewest tasks in a block.
LEAST_BLOCK_TASKS = 1000
#: Seconds until a delivery is retried that found another one ingesting the same run.
ANOTHER_SECONDS = 60


class SliceOverError(Exception):
    """The time for one delivery is over, and the checkpoint is written. Another message continues the ingestion."""


@dataclass(frozen=True)
class Checkpoint:
    """How far an ingestion has come: what is written and sent, and where it continues in its source."""

    cursor: Cursor | None = None
    next_index: int = 0
    #: Tasks in each shard so far.
    totals: list[int] = field(default_factory=list)
    #: Rejected lines so far, and the objects that hold them.
    rejected: int = 0
    reject_parts: int = 0

    @classmethod
    def of(cls, run: RunItem) -> Checkpoint:
        """The checkpoint in the run's item. Without one, a checkpoint at the beginning of the source."""
        if run.checkpoint is None:
            return cls(totals=[0] * run.shard_count)
        return TypeAdapter(cls).validate_json(run.checkpoint)

    def json(self) -> str:
        """The checkpoint as the run's item holds it."""
        return TypeAdapter(type(self)).dump_json(self).decode()

    def after(self, block: TaskBlock, added: Mapping[int, list[str]]) -> Checkpoint:
        """The checkpoint after a block whose tasks have these ids in each shard."""
        return Checkpoint(
            cursor=block.cursor,
            next_index=block.first_index + len(block.sources),
            totals=[total + len(added.get(shard, ())) for shard, total in enumerate(self.totals)],
            rejected=self.rejected + len(block.rejects),
            reject_parts=self.reject_parts + bool(block.rejects),
        )


def shard_count_of(n_tasks: int) -> int:
    """Shards of a run of about `n_tasks` tasks: one for a small run, else a power of two that is at least four."""
    if n_tasks <= TASKS_OF_ONE_SHARD:
        return 1
    n_tasks = min(n_tasks, MAX_SHARDS * TASKS_PER_SHARD)  # a manifest may claim more than a float can hold
    return min(MAX_SHARDS, 1 << max(2, math.ceil(math.log2(n_tasks / TASKS_PER_SHARD))))


def block_size(shard_count: int) -> int:
    """Tasks in a block of a run with this many shards."""
    return max(LEAST_BLOCK_TASKS, BLOCK_TASKS_PER_SHARD * shard_count)


def ingest(command: RunSplit, run: RunItem, source: TaskSource, deps: Dependencies) -> RunItem:
    """Write and send all tasks of `source` from the run's checkpoint on, set the total and latch. Return the run.

    Return early if the run is stopped. Raises SliceOverError if the time for one delivery is over, PermanentError if
    the source has no task, and TransientError if another delivery ingests the run.
    """
    until = time.monotonic() + deps.slice_seconds
    ledger, bucket = deps.ledger, deps.open_bucket(command.bucket)
    checkpoint = Checkpoint.of(run)
    size, per_message = block_size(run.shard_count), tasks_per_message(run, bucket)
    if run.task_queue is not None:  # the queue that an earlier delivery created may be gone
        deps.run_queues.ensure(run.run_id)
    elif pool_of(run.run_id) is None and run.checkpoint is None and 0 < deps.own_queue_tasks < source.estimate():
        run = ledger.note_task_queue(run, deps.run_queues.ensure(run.run_id))
        fault_point("ingest.queue_created", run_id=run.run_id)
        if _over(run):
            return run
    for block in source.blocks(checkpoint.cursor, checkpoint.next_index, size):
        added = ledger.add_tasks(run, block.first_index, block.sources)
        fault_point("ingest.tasks_written", run_id=run.run_id)
        deps.transport.send(
            task_queue_of(run, deps.transport.environment), messages_of(command, run, added.to_send, per_message, deps)
        )
        fault_point("ingest.messages_sent", run_id=run.run_id)
        if block.rejects:
            bucket.write(_part_key(command, checkpoint.reject_parts), _lines_of(block.rejects))
            fault_point("ingest.rejects_written", run_id=run.run_id)
        checkpoint = checkpoint.after(block, added.ids)
        run = _recorded(run, checkpoint, deps)
        fault_point("ingest.checkpointed", run_id=run.run_id)
        if _over(run):
            return run
        if time.monotonic() >= until:
            raise SliceOverError
    if checkpoint.next_index == 0 and checkpoint.rejected:
        raise PermanentError(
            f"None of the list's {checkpoint.rejected} lines is a task; the first one: {_first(bucket, command)}."
        )
    if checkpoint.rejected:
        _merge_rejects(bucket, command, checkpoint.reject_parts, deps.workdir)
        fault_point("ingest.rejects_merged", run_id=run.run_id)
        run = _recorded(run, checkpoint, deps, rejects_key(command.job_id, run.run_id))
        if _over(run):
            return run
    ledger.set_task_total(run.run_id, checkpoint.totals)
    fault_point("ingest.total_set", run_id=run.run_id)
    run = ledger.latch(run.run_id)
    fault_point("ingest.latched", run_id=run.run_id)
    deps.logger.info("run_ingested", extra={"tasks": checkpoint.next_index, "rejected": checkpoint.rejected})
    return run


def _recorded(run: RunItem, checkpoint: Checkpoint, deps: Dependencies, rejects: str | None = None) -> RunItem:
    """Replace the run's checkpoint and return the run, which may be latched or stopped by now.

    Raises TransientError if another delivery has replaced the checkpoint since it was read.
    """
    recorded = deps.ledger.checkpoint(
        run, checkpoint.json(), n_rejected=checkpoint.rejected or None, rejects_key=rejects
    )
    if recorded is not None:
        return recorded
    now = deps.ledger.run(run.run_id)
    if _over(now):
        return now
    raise TransientError(f"Another delivery ingests the run {run.run_id}.", retry_after=ANOTHER_SECONDS)


def _over(run: RunItem) -> bool:
    """Whether there is nothing left to ingest: the run is latched or stopped."""
    return run.latched_at is not None or run.cancelled_at is not None


# ---- messages


def messages_of(
    command: RunSplit,
    run: RunItem,
    added: Mapping[int, list[str]],
    per_message: int,
    deps: Dependencies,
) -> Iterator[Envelope]:
    """The messages for tasks, whose ids are grouped by shard, with at most `per_message` tasks each.

    Those of one shard hold about equally many tasks.
    """
    for _, ids in sorted(added.items()):
        for part in _parts(ids, per_message):
            process = TasksProcess.of(run, part, command.bucket)
            yield deps.transport.wrap(process, traceparent=run.traceparent, key=(part[0],))


def _parts(ids: list[str], most: int) -> Iterator[list[str]]:
    size = math.ceil(len(ids) / max(1, math.ceil(len(ids) / most)))
    for start in range(0, len(ids), max(1, size)):
        yield ids[start : start + size]


# ---- rejected lines


def _part_key(command: RunSplit, number: int) -> str:
    return f"{rejects_key(command.job_id, command.run_id)}.parts/{number:06d}"


def _lines_of(rejects: list[Reject]) -> bytes:
    lines = ({"line": each.line, "reason": each.reason, "text": each.excerpt} for each in rejects)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _first(bucket: Bucket, command: RunSplit) -> str:
    first = json.loads(bucket.read(_part_key(command, 0)).splitlines()[0])
    return f"line {first['line']}, {first['reason']}"


def _merge_rejects(bucket: Bucket, command: RunSplit, n_parts: int, workdir: Path) -> None:
    """Join the parts into one object, through a temporary file. A repeat writes the same object again."""
    with TemporaryDirectory(dir=workdir) as folder:
        path = Path(folder) / "rejects.jsonl"
        with path.open("wb") as file:
            for number in range(n_parts):
                file.write(bucket.read(_part_key(command, number)))
        bucket.upload(path, rejects_key(command.job_id, command.run_id))
