"""Writes of the dead-letter consumer and of recoveries: count a deferral, reopen a chunk, resume a stopped run."""

from __future__ import annotations

from contextlib import suppress

from boto3.dynamodb.conditions import Attr

from prismline_contracts.items import STOP_SK, ChunkItem, ChunkStatus, NewerStatus, RunItem
from prismline_ledger.base import END, LedgerBase, as_read, chunk_key_of
from prismline_ledger.transitions import ALLOWED_FROM, counter_changes
from prismline_runtime import Change, ConditionFailedError


class Recovering(LedgerBase):
    """Writes about chunks whose messages are dead letters."""

    def record_deferral(self, run_id: str, chunk_id: str) -> ChunkItem | None:
        """Count a deferral of the chunk's message. Return the chunk, or None if it has ended or does not exist."""
        change = Change(
            {"deferred_at": self._clock()},
            adds={"deferrals": 1},
            condition=Attr("status").is_in(sorted(ALLOWED_FROM[ChunkStatus.FAILED])),
        )
        return self._update_chunk(run_id, chunk_id, change)

    def reopen_chunk(self, chunk: ChunkItem, recovery: str) -> bool:
        """Reopen a chunk for `recovery`, with all its attempts available again. False if it has changed since the read.

        A FAILED chunk becomes PENDING in one transaction with the run's counter, and the run is no longer drained. For
        a chunk that has not ended, only the recovery is recorded.
        """
        same = as_read(chunk, "status", "attempts", "recovery")
        if chunk.state in (ChunkStatus.COMPLETED, NewerStatus.NEWER):
            return False
        if chunk.state is not ChunkStatus.FAILED:
            noted = Change({"recovery": recovery}, condition=same)
            return self._update_chunk(chunk.run_id, chunk.chunk_id, noted) is not None
        again = Change(
            {
                "status": ChunkStatus.PENDING.value,
                "recovery": recovery,
                "sent_at": self._clock(),
                "last_error": chunk.error or "",
                "interruptions": chunk.attempts,  # so that the attempts so far no longer count against the chunk
            },
            removes=("error", "completed_at", "first_started_at", "unsaid"),
            condition=same,
        )
        changes = counter_changes(ChunkStatus.FAILED, ChunkStatus.PENDING)
        try:
            self._table.transact(
                self._table.changing(chunk_key_of(chunk.run_id, chunk.chunk_id), again),
                *self._uncounting(chunk.run_id, chunk.shard, changes),
            )
        except ConditionFailedError:
            return False
        return True

    def resume_run(self, run: RunItem, *, cancelled_at: str | None = None) -> bool:
        """Take back the stop of a run that failed, so that its remaining chunks are processed.

        cancelled_at: given if a person wants to continue a cancelled run. It is the moment of the stop that the person
        saw. Such a run is resumed only after its end is recorded, that is, its cancellation was announced.

        False if the run was not stopped, if it was cancelled and `cancelled_at` is not given, or if it has changed
        since it was read. The sweeper sends the chunks that had been skipped. A stop item, written before the run was
        opened, has no effect from now on.
        """
        if run.cancelled_at is None or not _may_go_on(run, cancelled_at):
            return False
        noted = Change({"resumed_at": self._clock()}, condition=Attr("stop_reason").eq(run.stop_reason))
        with suppress(ConditionFailedError):
            self._table.update({"PK": run.run_id, "SK": STOP_SK}, noted)
        moment = self._clock()
        change = Change(
            {"resumed_at": moment, **({"uncancelled_at": moment} if cancelled_at else {}), **self._opened()},
            removes=("cancelled_at", "stop_reason", *END),
            condition=as_read(run, "cancelled_at", "stop_reason"),
        )
        return self._update_run(run, change) is not None

    def move_to_code(self, run: RunItem, code: str) -> RunItem | None:
        """Have the tasks of a function's run processed with other code from now on. Return the current run.

        An attempt that has begun ends with the code that it began with. None if the run has other code than was read.
        """
        return self._update_run(run, Change({"code": code}, condition=Attr("PK").exists() & as_read(run, "code")))


def _may_go_on(run: RunItem, cancelled_at: str | None) -> bool:
    if cancelled_at is None:
        return run.stop_reason == "failed"
    return run.cancelled_at == cancelled_at and run.ended_status == "cancelled"
