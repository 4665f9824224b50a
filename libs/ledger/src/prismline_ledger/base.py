"""The base of the ledger: its table, all reads, the transaction that ends a chunk, and the drain of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from prismline_contracts import (
    CHUNK_SK_PREFIX,
    OPEN_RUNS,
    RUN_SK,
    ChunkItem,
    ChunkStatus,
    RunItem,
    timestamp,
)
from prismline_ledger.transitions import ALLOWED_FROM, Finished, counter_changes
from prismline_runtime import Change, PermanentError, RefusedError, Table, unchanged

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: The fields of a run that are counters. Each is a sum over its chunk items.
COUNTERS = ("chunks_completed", "chunks_failed", "n_timed_out", "n_refit_failed")
#: A chunk that is IN_PROGRESS for longer than this is shown as stuck. It is Lambda's longest timeout.
STUCK_AFTER = timedelta(minutes=15)
#: Attributes to remove from a run when its end may have to be announced again.
END = ("ended_at", "ended_status")


def run_key(run_id: str) -> dict[str, str]:
    """The key of a run's item."""
    return {"PK": run_id, "SK": RUN_SK}


def chunk_key_of(run_id: str, chunk_id: str) -> dict[str, str]:
    """The key of a chunk's item."""
    return {"PK": run_id, "SK": CHUNK_SK_PREFIX + chunk_id}


def as_read(item: RunItem | ChunkItem, *names: str) -> ConditionBase:
    """The condition that the fields `names` still have the values in `item`.

    An absent attribute equals its field's default.
    """
    present = {}
    condition: ConditionBase | None = None
    for name in names:
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


class LedgerBase:
    """Reads of run and chunk items, and the transaction that ends a chunk.

    Raises UnavailableError if DynamoDB does not answer, and PermanentError if an item that must exist does not.
    """

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._table = Table(dynamodb, table)
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

    def count_chunks(self, run_id: str) -> int:
        """The number of the run's chunk items."""
        return self._table.count(_chunks_of(run_id))

    def stuck_chunks(self, run_id: str, *, now: datetime, after: timedelta = STUCK_AFTER) -> Iterator[ChunkItem]:
        """Chunks that have been IN_PROGRESS for longer than `after`."""
        limit = timestamp(now - after)
        for chunk in self.chunks(run_id, status=ChunkStatus.IN_PROGRESS):
            if chunk.started_at is not None and chunk.started_at < limit:
                yield chunk

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

    # ---- the end of a chunk

    def _end_chunk(
        self,
        chunk: ChunkItem,
        to: ChunkStatus,
        fields: Mapping[str, Any],
        *,
        run_adds: Mapping[str, int] | None = None,
        guard: tuple[str, ...] = (),
    ) -> Finished:
        """End `chunk` and change the run's counter in one transaction, unless the chunk has ended.

        guard: attributes that the caller's decision depends on. If one has changed since `chunk` was read, nothing is
        written.
        """
        read = chunk
        while chunk.state in ALLOWED_FROM[to] and all(getattr(chunk, name) == getattr(read, name) for name in guard):
            late = chunk.state is ChunkStatus.FAILED
            # The message of a chunk that had FAILED may be gone, so the sweeper repeats what the caller has to say.
            sets = {"status": to.value, "completed_at": self._clock(), **fields} | ({"unsaid": True} if late else {})
            removes = ("error",) if to is ChunkStatus.COMPLETED else ()
            try:
                self._table.transact(
                    self._table.changing(
                        chunk_key_of(chunk.run_id, chunk.chunk_id),
                        Change(sets, removes=removes, condition=as_read(chunk, "status", *guard)),
                    ),
                    self._table.changing(
                        run_key(chunk.run_id),
                        Change(
                            self._opened() if late else {},
                            adds={**counter_changes(chunk.state, to), **(run_adds or {})},
                            removes=END if late else (),
                            condition=Attr("PK").exists(),
                        ),
                    ),
                )
            except RefusedError:
                chunk = self.chunk(chunk.run_id, chunk.chunk_id)
                continue
            absent = {name: ChunkItem.model_fields[name].default for name in removes}
            ended = chunk.model_copy(update={**sets, **absent})
            return Finished(changed=True, chunk=ended, run=self.drain(chunk.run_id), late=late)
        return Finished(changed=False, chunk=chunk, run=self.drain(chunk.run_id))

    def drain(self, run_id: str) -> RunItem:
        """Mark the run drained if it is latched and all its chunks have ended. Return the current run.

        A stopped run may have ended, and have been closed, before its last chunks ended. Its end may be a different one
        now, so the drain removes the recorded end and the run is open again.
        """
        while True:
            run = self.run(run_id)
            if run.drained_at is not None or not run.all_terminal:
                return run
            condition = as_read(run, "drained_at", "latched_at", "chunks_total", "chunks_completed", "chunks_failed")
            sets = {"drained_at": self._clock(), **self._opened()}
            change = Change(sets, adds={"drains": 1}, removes=END, condition=condition)
            try:
                return RunItem.model_validate(self._table.update(run_key(run_id), change))
            except RefusedError:
                continue

    def _update_run(self, run: RunItem | str, change: Change) -> RunItem | None:
        """Change a run's item and return it. None if the condition does not hold."""
        try:
            key = run_key(run if isinstance(run, str) else run.run_id)
            return RunItem.model_validate(self._table.update(key, change))
        except RefusedError:
            return None

    def _update_chunk(self, run_id: str, chunk_id: str, change: Change) -> ChunkItem | None:
        """Change a chunk's item and return it. None if the condition does not hold."""
        try:
            return ChunkItem.model_validate(self._table.update(chunk_key_of(run_id, chunk_id), change))
        except RefusedError:
            return None

    def _opened(self) -> dict[str, Any]:
        """The attributes that put a run into the index of open runs, which the sweeper reads."""
        return {"GSI2_PK": OPEN_RUNS, "GSI2_SK": self._clock()}


def _chunks_of(run_id: str) -> ConditionBase:
    return Key("PK").eq(run_id) & Key("SK").begins_with(CHUNK_SK_PREFIX)
