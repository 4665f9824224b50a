"""The sweeper's reads and writes: open runs, messages that are sent again, counters, and runs that are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boto3.dynamodb.conditions import Attr, Key

from prismline_contracts import OPEN_RUNS, ChunkItem, ChunkStatus, RunItem
from prismline_ledger.base import COUNTERS, LedgerBase, as_read
from prismline_ledger.transitions import ALLOWED_FROM, truncate
from prismline_runtime import Change


class Sweeping(LedgerBase):
    """What is done about a run from the outside."""

    def open_runs(self) -> Iterator[RunItem]:
        """Runs that are not done, the one that was swept longest ago first: a query of GSI2."""
        for item in self._table.query(Key("GSI2_PK").eq(OPEN_RUNS), index="GSI2"):
            yield RunItem.model_validate(item)

    def claim_sweep(self, run: RunItem) -> RunItem | None:
        """Take an open run for this sweep; it goes to the end of the queue. None: another sweep has taken it.

        Returns the run as it is now, read consistently.
        """
        same = Attr("GSI2_PK").exists() & as_read(run, "GSI2_SK")
        return self._update_run(run, Change({"GSI2_SK": self._clock()}, condition=same))

    def close_run(self, run: RunItem) -> bool:
        """Have the run swept no more. False: its end has not been heard, rows wait for the slow lane, or it is not as
        it was read. The slow lane skips the rows of a stopped run, so those keep none open.
        """
        if run.ended_at is None or (run.n_timed_out and run.cancelled_at is None):
            return False
        done = Attr("ended_at").exists() & as_read(run, "ended_at", "n_timed_out", "cancelled_at")
        return self._update_run(run, Change(removes=("GSI2_PK", "GSI2_SK"), condition=done)) is not None

    def mark_said(self, chunk: ChunkItem) -> None:
        """Note that the end of a chunk that the sweeper gave up was said."""
        self._update_chunk(
            chunk.run_id, chunk.chunk_id, Change(removes=("unsaid",), condition=as_read(chunk, "completed_at"))
        )

    def record_resend(self, chunk: ChunkItem, reason: str) -> bool:
        """Note that the message of `chunk` was sent again and that it waits for a worker.

        False: the chunk is no longer as it was read, so it went on by itself meanwhile.
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
        """Note that the slow lane was sent the chunk again. False: it is no longer as it was read."""
        change = Change({"refit_sent_at": self._clock()}, condition=as_read(chunk, "n_timed_out", "refit_sent_at"))
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def record_split_resend(self, run: RunItem) -> bool:
        """Note that the run was asked to be split again. False: it has been latched, or asked for, meanwhile."""
        change = Change(
            {"split_sent_at": self._clock()},
            adds={"split_resends": 1},
            condition=as_read(run, "latched_at", "split_sent_at"),
        )
        return self._update_run(run, change) is not None

    def record_check(self, run: RunItem) -> None:
        """Note that the status service was asked to look at the run."""
        self._update_run(run, Change({"checked_at": self._clock()}, condition=Attr("PK").exists()))

    def correct_counters(self, run: RunItem, counted: Mapping[str, int]) -> bool:
        """Set counters to what was `counted` in the items. False: one of them has changed since `run` was read.

        Counters and items change in one transaction, so what was counted between two reads of equal counters is exact.
        """
        return self._update_run(run, Change(counted, condition=as_read(run, *COUNTERS))) is not None
