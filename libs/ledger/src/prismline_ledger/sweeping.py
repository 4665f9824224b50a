"""The sweeper's reads and writes: open runs, resends of lost messages, corrected counters, closed runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boto3.dynamodb.conditions import Attr, Key

from prismline_contracts.items import OPEN_RUNS, ChunkItem, ChunkStatus, RunItem
from prismline_contracts.tasks import ShardItem
from prismline_ledger.base import COUNTERS, LedgerBase, as_read
from prismline_ledger.transitions import ALLOWED_FROM, truncate
from prismline_runtime import Change, ConditionFailedError


class Sweeping(LedgerBase):
    """Reads and writes of the sweeper."""

    def open_runs(self) -> Iterator[RunItem]:
        """The open runs. The run that was swept longest ago comes first. A query of GSI2."""
        for item in self._table.query(Key("GSI2_PK").eq(OPEN_RUNS), index="GSI2"):
            yield RunItem.model_validate(item)

    def claim_sweep(self, run: RunItem) -> RunItem | None:
        """Take an open run for this sweep, and move it to the end of `open_runs`. None if another sweep has taken it.

        Returns the current run.
        """
        same = Attr("GSI2_PK").exists() & as_read(run, "GSI2_SK")
        return self._update_run(run, Change({"GSI2_SK": self._clock()}, condition=same))

    def close_run(self, run: RunItem) -> bool:
        """Close the run, so that it is no longer swept.

        False if its end is not recorded, if rows wait for the slow lane, or if the run has changed since it was read.
        Waiting rows of a stopped run do not matter, because the slow lane skips them.
        """
        if run.ended_at is None or (run.n_timed_out and run.cancelled_at is None):
            return False
        done = Attr("ended_at").exists() & as_read(run, "ended_at", "n_timed_out", "cancelled_at", "finalization")
        return self._update_run(run, Change(removes=("GSI2_PK", "GSI2_SK"), condition=done)) is not None

    def mark_announced(self, chunk: ChunkItem) -> None:
        """Record that the end of a chunk whose announcement was pending is published."""
        self._update_chunk(
            chunk.run_id, chunk.chunk_id, Change(removes=("unsaid",), condition=as_read(chunk, "completed_at"))
        )

    def record_resend(self, chunk: ChunkItem, reason: str) -> bool:
        """Record that the message of `chunk` is sent again, and make the chunk PENDING.

        False if the chunk has changed since it was read, because its message is then not lost.
        """
        if chunk.state not in ALLOWED_FROM[ChunkStatus.PENDING]:
            return False
        change = Change(
            {"status": ChunkStatus.PENDING.value, "sent_at": self._clock(), "last_error": truncate(reason)},
            adds={"resends": 1},
            condition=as_read(chunk, "status", "started_at", "sent_at"),
        )
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def record_refit_resend(self, chunk: ChunkItem) -> bool:
        """Record that `spectra.refit` is sent again. False if the chunk has changed since it was read."""
        change = Change({"refit_sent_at": self._clock()}, condition=as_read(chunk, "n_timed_out", "refit_sent_at"))
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def record_split_resend(self, run: RunItem) -> bool:
        """Record that `run.split` is sent again. False if the run has been latched, or another resend was recorded."""
        change = Change(
            {"split_sent_at": self._clock()},
            adds={"split_resends": 1},
            condition=as_read(run, "latched_at", "split_sent_at"),
        )
        return self._update_run(run, change) is not None

    def record_progress(self, run: RunItem, ended: int, *, resent: bool) -> None:
        """Record that `ended` tasks of the run have ended by now, unless another sweep was faster.

        resent: whether the others were just sent again.
        """
        change = Change(
            {"progress_ended": ended, "progress_at": self._clock(), **({} if resent else {"task_resends": 0})},
            adds={"task_resends": 1} if resent else {},
            condition=as_read(run, "progress_at"),
        )
        self._update_run(run, change)

    def record_check(self, run: RunItem) -> None:
        """Record that the status service was asked to check the run."""
        self._update_run(run, Change({"checked_at": self._clock()}, condition=Attr("PK").exists()))

    def correct_counters(self, run: RunItem, counted: Mapping[str, int]) -> bool:
        """Set the counters to the numbers `counted` in the items. False if a counter has changed since `run` was read.

        counted: by field, as in `COUNTERS`. Counters and items change in one transaction. A count is therefore exact if
        the counters are equal before and after it.
        """
        sets = {run.attribute(name): number for name, number in counted.items()}
        return self._update_run(run, Change(sets, condition=as_read(run, *COUNTERS))) is not None

    def correct_shard(self, shard: ShardItem, *, completed: int, failed: int) -> bool:
        """Set the counters of a shard to the numbers in its items. False if one has changed since `shard` was read."""
        change = Change({"completed": completed, "failed": failed}, condition=as_read(shard, "completed", "failed"))
        try:
            self._table.update({"PK": shard.PK, "SK": shard.SK}, change)
        except ConditionFailedError:
            return False
        return True
