"""The base of the ledger: its table, all reads, the transaction that ends a chunk, and the drain of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from prismline_contracts.base import timestamp
from prismline_contracts.items import (
    CHUNK_SK_PREFIX,
    OPEN_RUNS,
    RUN_SK,
    ChunkItem,
    ChunkStatus,
    RepeatedErrorItem,
    RunItem,
)
from prismline_contracts.tasks import SHARD_SK, TASK_SK_PREFIX, ShardItem, TaskItem, partition
from prismline_ledger.transitions import (
    ALLOWED_FROM,
    ENDED_ON,
    Costs,
    Counts,
    Finished,
    charges,
    counter_changes,
    shard_counter_changes,
    with_error,
)
from prismline_runtime import CONCURRENT_CALLS, Change, ConditionFailedError, Page, PermanentError, Table, unchanged

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: The fields of a run that are counters. Each is a sum over its chunk items.
COUNTERS = ("chunks_completed", "chunks_failed", "n_timed_out", "n_refit_failed")
#: A number of shards for callers that only need to know that there are several.
SEVERAL = 2
#: The attributes of a chunk or a task that a picture of the run shows.
CELL_ATTRIBUTES = (
    "SK",
    "index",
    "status",
    "attempts",
    "started_at",
    "duration_ms",
    "completed_at",
    "deferred_at",
    "not_before",
    "result.length",
)
#: Attributes to remove from a run when its end may have to be announced again.
END = ("ended_at", "ended_status")

_COMPLETED, _FAILED = RunItem.attribute("chunks_completed"), RunItem.attribute("chunks_failed")


def run_key(run_id: str) -> dict[str, str]:
    """The key of a run's item."""
    return {"PK": run_id, "SK": RUN_SK}


def chunk_key_of(run_id: str, chunk_id: str) -> dict[str, str]:
    """The key of a chunk's item."""
    return {"PK": run_id, "SK": CHUNK_SK_PREFIX + chunk_id}


def shard_key(run_id: str, shard: int) -> dict[str, str]:
    """The key of the counters of a shard of a run with several shards."""
    return {"PK": partition(run_id, shard, SEVERAL), "SK": SHARD_SK}


def as_read(item: RunItem | ChunkItem | TaskItem | ShardItem | RepeatedErrorItem, *names: str) -> ConditionBase:
    """The condition that the fields `names` still have the values in `item`.

    An absent attribute equals its field's default.
    """
    present = {}
    condition: ConditionBase | None = None
    for name in dict.fromkeys(names):
        value, default = getattr(item, name), type(item).model_fields[name].default
        attribute = item.attribute(name)
        if value is not None and value == default:
            same = Attr(attribute).eq(value) | Attr(attribute).not_exists()
            condition = same if condition is None else condition & same
        else:
            present[attribute] = value
    if not present:
        assert condition is not None, "at least one attribute is compared"
        return condition
    return unchanged(present) if condition is None else unchanged(present) & condition


@dataclass(frozen=True)
class ChunkPage:
    """Some chunks of a run in the order of their ids."""

    chunks: list[ChunkItem]
    #: The id after which the next page begins. None: there are no more chunks now.
    after: str | None


class LedgerBase:
    """Reads of run and chunk items, and the transaction that ends a chunk.

    Raises UnavailableError if DynamoDB does not answer, and PermanentError if an item that must exist does not.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table: str,
        *,
        clock: Callable[[], str] = timestamp,
        calls_at_a_time: int = CONCURRENT_CALLS,
    ) -> None:
        self._table = Table(dynamodb, table, calls_at_a_time=calls_at_a_time)
        self._clock = clock

    # ---- reads

    def get_run(self, run_id: str) -> RunItem | None:
        """The run's item, or None. `GetItem(PK=run_id, SK="RUN")`"""
        item = self._table.get(run_key(run_id))
        return None if item is None else RunItem.model_validate(item)

    def run(self, run_id: str) -> RunItem:
        """The run's item. Raises PermanentError if there is none."""
        run = self.get_run(run_id)
        if run is None:
            raise PermanentError(f"There is no run {run_id} in the ledger.")
        return run

    def chunk(self, run_id: str, chunk_id: str) -> ChunkItem:
        """The chunk's item. Raises PermanentError if there is none."""
        item = self._table.get(chunk_key_of(run_id, chunk_id))
        if item is None:
            raise PermanentError(f"There is no {chunk_id} of run {run_id} in the ledger.")
        return ChunkItem.model_validate(item)

    def find(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ChunkItem]:
        """The chunks that exist among `names`, which are pairs of run id and chunk id."""
        keys = [chunk_key_of(*name) for name in sorted(set(names))]
        chunks = [ChunkItem.model_validate(item) for item in self._table.batch_get(keys)]
        return {(chunk.run_id, chunk.chunk_id): chunk for chunk in chunks}

    def find_runs(self, run_ids: Iterable[str]) -> dict[str, RunItem]:
        """The runs that exist among `run_ids`, by id."""
        keys = [run_key(run_id) for run_id in sorted(set(run_ids))]
        return {item["PK"]: RunItem.model_validate(item) for item in self._table.batch_get(keys)}

    def chunks(self, run_id: str, *, status: ChunkStatus | None = None) -> Iterator[ChunkItem]:
        """The run's chunks in the order of their ids. `Query(PK=run_id, SK begins_with "CHUNK#")`"""
        where = None if status is None else Attr("status").eq(status.value)
        for item in self._table.query(_chunks_of(run_id), where=where):
            yield ChunkItem.model_validate(item)

    def page_of_chunks(
        self, run_id: str, *, after: str | None = None, limit: int = 100, status: ChunkStatus | None = None
    ) -> ChunkPage:
        """At most `limit` chunks of the run whose ids come after `after`. One request.

        With `status`, a page may be short, or empty, although more chunks follow: then its `after` is not None.
        """
        page = self._table.page(
            _chunks_of(run_id),
            limit=limit,
            after=None if after is None else chunk_key_of(run_id, after),
            where=None if status is None else Attr("status").eq(status.value),
        )
        last = None if page.last_key is None else page.last_key["SK"].removeprefix(CHUNK_SK_PREFIX)
        return ChunkPage([ChunkItem.model_validate(item) for item in page.items], last)

    def page_of_cells(
        self, run: RunItem, shard: int = 0, *, after: str | None = None, until: str | None = None, limit: int = 1000
    ) -> Page:
        """`CELL_ATTRIBUTES` of at most `limit` of the run's chunks, or of the tasks of a shard. One request.

        after, until: sort keys, the first exclusive, the last inclusive.
        """
        prefix = TASK_SK_PREFIX if run.unit == "task" else CHUNK_SK_PREFIX
        pk = partition(run.run_id, shard, run.shard_count) if run.unit == "task" else run.run_id
        return self._table.page_of(
            CELL_ATTRIBUTES,
            Key("PK").eq(pk) & Key("SK").between(prefix, until or f"{prefix}~"),
            limit=limit,
            after={"PK": pk, "SK": after or prefix},  # no item's key is the prefix, so the first page skips nothing
        )

    def count_chunks(self, run_id: str) -> int:
        """The number of the run's chunk items."""
        return self._table.count(_chunks_of(run_id))

    def items_done(self, run_id: str) -> int:
        """How many items of the chunks in progress are processed, as far as their workers have reported."""
        underway = Attr("status").eq(ChunkStatus.IN_PROGRESS.value) & Attr("n_done").exists()
        return sum(int(item["n_done"]) for item in self._table.query(_chunks_of(run_id), where=underway))

    def runs_of(self, survey: str, *, not_before: str | None = None, limit: int = 20) -> list[RunItem]:
        """The latest runs of the survey, newest first. A query of GSI1."""
        key: ConditionBase = Key("GSI1_PK").eq(survey)
        if not_before is not None:
            key = key & Key("GSI1_SK").gte(not_before)
        found: list[RunItem] = []
        for item in self._table.query(key, index="GSI1", descending=True):
            found.append(RunItem.model_validate(item))
            if len(found) == limit:
                break
        return found

    # ---- shards

    def shards(self, run: RunItem) -> list[ShardItem]:
        """The counters of all shards of a run with several shards, in order. A shard that has no item yet has zeros."""
        keys = [shard_key(run.run_id, shard) for shard in range(run.shard_count)]
        found = {item["PK"]: ShardItem.model_validate(item) for item in self._table.batch_get(keys)}
        return [found.get(key["PK"]) or ShardItem(PK=key["PK"]) for key in keys]

    def counts(self, run: RunItem) -> Counts:
        """How many of the run's chunks or tasks there are, and how many have ended.

        They are those in `run`, or the sums over its shards, which are read now.
        """
        if run.shard_count == 1 or run.drained_at is not None:
            return Counts(run.chunks_total, run.chunks_completed, run.chunks_failed, _costs([run]))
        shards = self.shards(run)
        completed, failed = sum(shard.completed for shard in shards), sum(shard.failed for shard in shards)
        return Counts(run.chunks_total, completed, failed, _costs(shards))

    def counted(self, run: RunItem) -> RunItem:
        """The run with its counts, which its item or its shards hold."""
        counts = self.counts(run)
        return run.model_copy(update={"chunks_completed": counts.completed, "chunks_failed": counts.failed})

    def drain_shard(self, run_id: str, shard: int | None) -> RunItem | None:
        """Drain the run if this shard, and then every other one, is complete. Return the current run.

        shard: None for a run with one shard, whose counters are in the run item.

        None if the shard is not complete; then only its own item is read. Several writers may each end the last chunk
        or task of a shard at the same time. One of them reads after all have written, and drains the run.
        """
        if shard is not None:
            item = self._table.get(shard_key(run_id, shard))
            if item is None or not ShardItem.model_validate(item).complete:
                return None
        return self.drain(run_id)

    # ---- the end of a chunk

    def _end_chunk(
        self,
        chunk: ChunkItem,
        to: ChunkStatus,
        fields: Mapping[str, Any],
        *,
        run_adds: Mapping[str, int] | None = None,
        guard: tuple[str, ...] = (),
        attempt_error: str | None = None,
    ) -> Finished:
        """End `chunk` and change the run's counters and costs in one transaction, unless the chunk has ended.

        attempt_error: why the caller's attempt failed. guard: attributes that the caller's decision depends on. If one
        has changed since `chunk` was read, nothing is written.
        """
        read, duration_ms = chunk, fields.get("duration_ms")
        while chunk.state in ALLOWED_FROM[to] and all(getattr(chunk, name) == getattr(read, name) for name in guard):
            late = chunk.state is ChunkStatus.FAILED
            # The message of a chunk that had FAILED may be gone, so the sweeper repeats the caller's announcement.
            sets = {"status": to.value, "completed_at": self._clock(), **fields} | ({"unsaid": True} if late else {})
            sets["charged_attempts"] = chunk.attempts
            if attempt_error is not None:
                sets["errors"] = with_error(
                    chunk, attempt_error, sets["completed_at"], duration_ms=duration_ms, attempted=read
                )
            removes = ("uncharged_ms", "error", "n_done") if to is ChunkStatus.COMPLETED else ("uncharged_ms",)
            run = self.run(chunk.run_id) if late and chunk.shard is not None else None
            changes = counter_changes(chunk.state, to) | charges(chunk, duration_ms, fields.get("n_bytes"))
            try:
                self._table.transact(
                    self._table.changing(
                        chunk_key_of(chunk.run_id, chunk.chunk_id),
                        Change(sets, removes=removes, condition=as_read(chunk, *ENDED_ON, *guard)),
                    ),
                    *self._counting(chunk.run_id, chunk.shard, changes, run_adds, run=run, late=late),
                )
            except ConditionFailedError:
                chunk = self.chunk(chunk.run_id, chunk.chunk_id)
                continue
            absent = {name: ChunkItem.model_fields[name].default for name in removes}
            ended = ChunkItem.model_validate({**chunk.model_dump(), **sets, **absent})
            return Finished(changed=True, chunk=ended, run=self._after(chunk), late=late)
        return Finished(changed=False, chunk=chunk, run=self._after(chunk))

    def _after(self, chunk: ChunkItem) -> RunItem:
        """The current run after one of its chunks has ended, drained if that was the last one."""
        return self.drain_shard(chunk.run_id, chunk.shard) or self.run(chunk.run_id)

    def _counting(
        self,
        run_id: str,
        shard: int | None,
        changes: Mapping[str, int],
        run_adds: Mapping[str, int] | None = None,
        *,
        run: RunItem | None = None,
        late: bool = False,
    ) -> list[Any]:
        """The writes that count transitions, in the run's item, in the shard's, or in both.

        run_adds: changes of other numbers of the run. run: the run as it was read, for late successes in a shard.
        """
        if shard is None:
            change = Change(
                self._opened() if late else {},
                adds={**changes, **(run_adds or {})},
                removes=END if late else (),
                condition=Attr("PK").exists(),
            )
            return [self._table.changing(run_key(run_id), change)]
        writes = [self._table.changing(shard_key(run_id, shard), Change(adds=shard_counter_changes(changes)))]
        if run is not None:
            writes.append(self._moving(run, changes, run_adds))
        elif run_adds:
            writes.append(self._table.changing(run_key(run_id), Change(adds=run_adds, condition=Attr("PK").exists())))
        return writes

    def _moving(self, run: RunItem, changes: Mapping[str, int], run_adds: Mapping[str, int] | None = None) -> Any:
        """The write of the run's item that belongs to late successes in a run with several shards.

        It increments `moves`, so that a drain that read some shards before them fails its condition. If the run has
        drained, its item holds the sums, and they change with the shards.
        """
        adds = {"moves": 1, **(changes if run.drained_at is not None else {}), **(run_adds or {})}
        condition = Attr("PK").exists() & as_read(run, "drained_at")
        return self._table.changing(
            run_key(run.run_id), Change(self._opened(), adds=adds, removes=END, condition=condition)
        )

    def _uncounting(self, run_id: str, shard: int | None, changes: Mapping[str, int]) -> list[Any]:
        """The writes that belong to the reopening of FAILED chunks or tasks: counters change, the run is not drained.

        shard: the shard that counts them. None: the run's item does. The sums in the item of a run with several shards
        belong to its drain, so they are reset with it.
        """
        sets, adds, exists = self._opened(), dict(changes), Attr("PK").exists()
        writes = []
        if shard is not None:
            sets, adds = sets | {_COMPLETED: 0, _FAILED: 0}, {"moves": 1}
            counters = Change(adds=shard_counter_changes(changes))
            writes.append(self._table.changing(shard_key(run_id, shard), counters))
        reopened = Change(sets, adds=adds, removes=("drained_at", *END), condition=exists)
        return [*writes, self._table.changing(run_key(run_id), reopened)]

    def drain(self, run_id: str) -> RunItem:
        """Mark the run drained if it is latched and all its chunks or tasks have ended. Return the current run.

        The item of a drained run holds its counts, also if shards counted them. A stopped run may have ended, and been
        closed, before its last chunks ended. Its end may now be a different one, so the drain removes the recorded end
        and opens the run again.
        """
        while True:
            run = self.run(run_id)
            if run.drained_at is not None:
                return run
            sets: dict[str, Any] = {"drained_at": self._clock(), **self._opened()}
            if run.shard_count == 1:
                complete, read = run.all_terminal, ["chunks_total", "chunks_completed", "chunks_failed"]
            else:
                shards = self.shards(run)
                complete = run.latched_at is not None and all(shard.complete for shard in shards)
                read = ["chunks_total", "moves"]
                sets[_COMPLETED] = sum(shard.completed for shard in shards)
                sets[_FAILED] = sum(shard.failed for shard in shards)
                if (costs := _costs(shards)) is not None:
                    sets |= {"worked_ms": costs.worked_ms, "n_attempts": costs.attempts, "n_bytes": costs.n_bytes}
            if not complete:
                return run
            condition = as_read(run, "drained_at", "latched_at", *read)
            try:
                change = Change(sets, adds={"drains": 1}, removes=END, condition=condition)
                return RunItem.model_validate(self._table.update(run_key(run_id), change))
            except ConditionFailedError:
                continue

    def _update_run(self, run: RunItem | str, change: Change) -> RunItem | None:
        """Change a run's item and return it. None if the condition does not hold."""
        try:
            key = run_key(run if isinstance(run, str) else run.run_id)
            return RunItem.model_validate(self._table.update(key, change))
        except ConditionFailedError:
            return None

    def _update_chunk(self, run_id: str, chunk_id: str, change: Change) -> ChunkItem | None:
        """Change a chunk's item and return it. None if the condition does not hold."""
        try:
            return ChunkItem.model_validate(self._table.update(chunk_key_of(run_id, chunk_id), change))
        except ConditionFailedError:
            return None

    def _opened(self) -> dict[str, Any]:
        """The attributes that put a run into the index of open runs, which the sweeper reads."""
        return {"GSI2_PK": OPEN_RUNS, "GSI2_SK": self._clock()}


def _costs(items: Sequence[RunItem | ShardItem]) -> Costs | None:
    known = [item for item in items if item.n_attempts is not None]
    if not known:
        return None
    return Costs(
        sum(item.worked_ms or 0 for item in known),
        sum(item.n_attempts or 0 for item in known),
        sum(item.n_bytes or 0 for item in known),
    )


def _chunks_of(run_id: str) -> ConditionBase:
    return Key("PK").eq(run_id) & Key("SK").begins_with(CHUNK_SK_PREFIX)
