"""The splitter's writes, in this order: open the run, add chunks, set the total, latch. All of them are idempotent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

from boto3.dynamodb.conditions import Attr, ConditionBase

from prismline_contracts.items import CHUNK_SK_PREFIX, DEFAULT_PRIORITY, STOP_SK, ChunkItem, ChunkStatus, RunItem
from prismline_contracts.references import CubeReference
from prismline_ledger.base import LedgerBase, as_read, shard_key
from prismline_ledger.tolerance import DEFAULT_TOLERANCE, Tolerance
from prismline_runtime import Change, ConditionFailedError, PermanentError, batches, call_concurrently, unchanged

_TOTAL = RunItem.attribute("chunks_total")


@dataclass(frozen=True)
class NewRun:
    """What is known of a run when it is opened."""

    run_id: str
    survey: str
    job_id: str
    workload: str
    #: Digest of the code of a workload that is a function.
    code: str | None = None
    #: The `Finalization` of a function that has one, as JSON.
    finalization: str | None = None
    #: The parameters of the workload, complete, as JSON.
    params: str | None = None
    #: Those that the submitter gave, as JSON.
    params_given: str | None = None
    traceparent: str | None = None
    #: The sweeper uses it and `split_token`, the token of the task that waits for the split, to send `run.split` again.
    manifest_key: str | None = None
    split_token: str | None = None
    unit: Literal["chunk", "task"] = "chunk"
    shard_count: int = 1
    tenant: str | None = None
    #: None: the default.
    priority: int | None = None
    max_concurrency: int | None = None
    deadline_at: str | None = None
    tolerance: Tolerance = DEFAULT_TOLERANCE

    @property
    def attributes(self) -> dict[str, Any]:
        """The fields of the run's item that have these values."""
        priority = DEFAULT_PRIORITY if self.priority is None else self.priority
        given = {name: value for name, value in vars(self).items() if name not in ("run_id", "tolerance")}
        return given | {"priority": priority} | self.tolerance.attributes


@dataclass(frozen=True)
class NewChunk:
    """A chunk whose input exists: a file that the splitter wrote, or a part of the source that `reference` names."""

    chunk_id: str
    chunk_key: str
    n_items: int
    reference: CubeReference | None = None


class Splitting(LedgerBase):
    """Writes that create a run, from its item to the latch."""

    def open_run(self, new: NewRun) -> RunItem:
        """Create the run's item if it does not exist. Return the item in the table.

        The number of shards never changes after the first chunk or task is added, so a caller uses the number in the
        returned item. If the run was stopped before it was opened, it is stopped now.
        """
        created_at = self._clock()
        item = RunItem(
            PK=new.run_id,
            GSI1_PK=new.survey,
            GSI1_SK=created_at,
            **self._opened(),
            created_at=created_at,
            trace_id=new.traceparent.split("-")[1] if new.traceparent else None,
            **new.attributes,
        )
        created = self._table.create(item.model_dump(exclude_none=True), key="PK")
        stop = self._table.get({"PK": new.run_id, "SK": STOP_SK})
        if stop is not None and "resumed_at" not in stop:
            self._stop(new.run_id, stop["stop_reason"])
        return item if created and stop is None else self.run(new.run_id)

    def note_manifest(self, run_id: str, manifest_key: str) -> None:
        """Record the manifest of a run that has none: the run of an open job was opened before there was one."""
        change = Change(
            {"manifest_key": manifest_key}, condition=Attr("PK").exists() & Attr("manifest_key").not_exists()
        )
        self._update_run(run_id, change)

    def set_plan(self, run: RunItem, plan: str) -> RunItem:
        """Record the plan (JSON: the source's version and its division) if the plan is still the one in `run`.

        Return the current run. If two deliveries make different plans, both use the one that was recorded first.
        """
        same = Attr("PK").exists() & as_read(run, "plan")
        return self._update_run(run, Change({"plan": plan}, condition=same)) or self.run(run.run_id)

    def _stop(
        self,
        run_id: str,
        reason: str,
        *,
        resumed_at: str | None = None,
        uncancelled_at: str | None = None,
        drains: int | None = None,
    ) -> RunItem | None:
        """Stop the run. None if it has no item, is already stopped, or has drained.

        With the reason `failed`, also None if the run has ever drained, or if `resumed_at` is not the one that was
        read: then its chunks belong to a recovery. With the reason `cancelled`, also None if `uncancelled_at` is not
        the one that was read: then a person has continued the run since. With `drains`, also None if the run has
        drained since that was read.
        """
        unless = Attr("PK").exists() & Attr("cancelled_at").not_exists() & Attr("drained_at").not_exists()
        if reason == "failed":
            unless = unless & _drained(0) & unchanged({"resumed_at": resumed_at})
        else:
            unless = unless & unchanged({"uncancelled_at": uncancelled_at})
        if drains is not None:
            unless = unless & _drained(drains)
        sets = {"cancelled_at": self._clock(), "stop_reason": reason}
        return self._update_run(run_id, Change(sets, condition=unless))

    def set_shard_count(self, run: RunItem, shard_count: int) -> RunItem:
        """Give a run this number of shards, before its first chunk is added. Return the current run.

        A run that was divided before keeps its number.
        """
        if shard_count == 1 or run.shard_count > 1:
            return run
        undivided = as_read(run, "shard_count") & Attr(_TOTAL).not_exists()
        change = Change({"shard_count": shard_count}, condition=Attr("PK").exists() & undivided)
        return self._update_run(run, change) or self.run(run.run_id)

    def add_chunks(self, run_id: str, chunks: Iterable[NewChunk], *, shard_count: int = 1) -> None:
        """Create the items of chunks, PENDING. Existing items stay unchanged, whatever their status is.

        shard_count: the run's. With more than one, each chunk is counted by one shard, in turn.
        """
        shards = [None] if shard_count == 1 else list(range(shard_count))
        for batch in batches(zip(chunks, cycle(shards)), self._table.writes_at_a_time):
            created_at = self._clock()
            items = [
                ChunkItem(
                    PK=run_id,
                    SK=CHUNK_SK_PREFIX + chunk.chunk_id,
                    status=ChunkStatus.PENDING.value,
                    chunk_key=chunk.chunk_key,
                    reference=_as_text(chunk.reference),
                    shard=shard,
                    reference_n_items=chunk.n_items,
                    n_items=chunk.n_items,
                    created_at=created_at,
                )
                for chunk, shard in batch
            ]
            self._table.create_each((item.model_dump(exclude_defaults=True) for item in items), key="PK")

    def set_total(self, run_id: str, *, n_chunks: int, n_items: int, n_blank: int | None, shard_count: int = 1) -> None:
        """Set the total of chunks, after their items are written. They hold `n_items`, of which `n_blank` are blank.

        n_blank: None if the workers count the blank items.

        Raises PermanentError if the run is latched with another total. Also if the ledger holds another number of
        items, or items of other shards, because the source was then cut in two different ways.
        """
        if shard_count == 1:
            written, divided = self.count_chunks(run_id), True
        else:
            shards = Counter(chunk.shard for chunk in self.chunks(run_id))
            written, divided = shards.total(), shards.keys() <= set(range(shard_count))
        if written != n_chunks or not divided:
            raise PermanentError(
                f"Run {run_id} was cut into {n_chunks} chunks, but the ledger holds {written}: submit it again."
                if divided
                else f"Run {run_id} was cut into {shard_count} shards, but the ledger holds others: submit it again."
            )
        if shard_count > 1:
            self._set_shard_totals(run_id, [shards[shard] for shard in range(shard_count)])
        others = {"n_chunks": n_chunks, RunItem.attribute("n_items"): n_items}
        if n_blank is not None:
            others["n_blank"] = n_blank
        self._set_run_total(run_id, n_chunks, "chunks", others)

    def _set_shard_totals(self, run_id: str, totals: Sequence[int]) -> None:
        """Set the total of each shard, even if it is zero: a shard without a total is never complete."""

        def set_one(shard: int) -> None:
            total = totals[shard]
            same = Attr("total").not_exists() | Attr("total").eq(total)
            try:
                self._table.update(shard_key(run_id, shard), Change({"total": total}, condition=same))
            except ConditionFailedError:
                raise PermanentError(f"Shard {shard} of run {run_id} has a total other than {total}.") from None

        call_concurrently(set_one, range(len(totals)))

    def _set_run_total(self, run_id: str, total: int, unit: str, others: Mapping[str, int]) -> None:
        sets = {_TOTAL: total, **others}
        same = Attr("latched_at").not_exists() | Attr(_TOTAL).eq(total)
        if self._update_run(run_id, Change(sets, condition=Attr("PK").exists() & same)) is None:
            raise PermanentError(f"Run {run_id} does not exist, or is latched with a total other than {total} {unit}.")

    def latch(self, run_id: str) -> RunItem:
        """Declare the total final, and drain the run if all its chunks or tasks have ended. Return the current run."""
        due = Attr(_TOTAL).exists() & Attr("latched_at").not_exists()
        self._update_run(run_id, Change({"latched_at": self._clock()}, condition=due))
        return self.drain(run_id)


def _as_text(reference: CubeReference | None) -> str | None:
    return None if reference is None else reference.model_dump_json(exclude_defaults=True)


def _drained(times: int) -> ConditionBase:
    """The condition that the run has drained `times` times. A run that never drained may lack the attribute."""
    same = Attr("drains").eq(times)
    return same if times else same | Attr("drains").not_exists()
