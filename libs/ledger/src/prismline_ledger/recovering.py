"""The dead-letter consumer's writes: a deferral, and a chunk that is tried again although it had failed."""

from __future__ import annotations

from contextlib import suppress

from boto3.dynamodb.conditions import Attr

from prismline_contracts import STOP_SK, ChunkItem, ChunkStatus, RunItem
from prismline_ledger.base import END, LedgerBase, as_read, chunk_key_of, run_key
from prismline_ledger.transitions import ALLOWED_FROM, counter_changes
from prismline_runtime import Change, RefusedError


class Recovering(LedgerBase):
    """What becomes of a chunk whose message is a dead letter."""

    def record_deferral(self, run_id: str, chunk_id: str) -> ChunkItem | None:
        """Note that the chunk's message was put off. The chunk, or None if it has ended or does not exist."""
        change = Change(
            {"deferred_at": self._clock()},
            adds={"deferrals": 1},
            condition=Attr("status").is_in(sorted(ALLOWED_FROM[ChunkStatus.FAILED])),
        )
        return self._update_chunk(run_id, chunk_id, change)

    def reopen_chunk(self, chunk: ChunkItem, recovery: str) -> bool:
        """Have a chunk tried again for `recovery`, with all its attempts. False: it is not as it was read.

        A FAILED chunk becomes PENDING, and the run's counter falls with it; a run that had drained has not any more.
        One that has not ended only notes the recovery.
        """
        same = as_read(chunk, "status", "attempts", "recovery")
        if chunk.state is ChunkStatus.COMPLETED:
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
                "interruptions": chunk.attempts,  # attempts are numbered on, and those so far count no more
            },
            removes=("error", "completed_at", "first_started_at", "unsaid"),
            condition=same,
        )
        reopened = Change(
            self._opened(),
            adds=counter_changes(ChunkStatus.FAILED, ChunkStatus.PENDING),
            removes=("drained_at", *END),
            condition=Attr("PK").exists(),
        )
        try:
            self._table.transact(
                self._table.changing(chunk_key_of(chunk.run_id, chunk.chunk_id), again),
                self._table.changing(run_key(chunk.run_id), reopened),
            )
        except RefusedError:
            return False
        return True

    def resume_run(self, run: RunItem) -> bool:
        """Take back that the rest of the run is skipped, which was said because it had failed.

        False: it was not, somebody cancelled the run, or it is not as it was read. The sweeper sends the chunks that
        had been skipped. A note that had stopped the run before it was opened counts no more when the run is opened
        again.
        """
        if run.cancelled_at is None or run.stop_reason != "failed":
            return False
        noted = Change({"resumed_at": self._clock()}, condition=Attr("stop_reason").eq("failed"))
        with suppress(RefusedError):
            self._table.update({"PK": run.run_id, "SK": STOP_SK}, noted)
        change = Change(
            {"resumed_at": self._clock(), **self._opened()},
            removes=("cancelled_at", "stop_reason", *END),
            condition=as_read(run, "cancelled_at", "stop_reason"),
        )
        return self._update_run(run, change) is not None
