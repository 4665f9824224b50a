"""The worker's writes: an attempt begins, ends without a result, or ends the chunk; the slow lane makes up for rows."""

from __future__ import annotations

from typing import Any

from boto3.dynamodb.conditions import Attr

from prismline_contracts import MAX_SUMMARY_BYTES, ChunkItem, ChunkStatus
from prismline_ledger.base import LedgerBase, as_read, chunk_key_of, run_key
from prismline_ledger.transitions import ALLOWED_FROM, Finished, Skipped, Started, truncate
from prismline_runtime import Change, RefusedError, TransientError

_MAY_START = Attr("status").is_in(sorted(ALLOWED_FROM[ChunkStatus.IN_PROGRESS]))


class Attempts(LedgerBase):
    """From PENDING to an end."""

    def start_chunk(self, run_id: str, chunk_id: str) -> Started | Skipped:
        """Begin an attempt at a chunk, unless the chunk has ended.

        A chunk that is IN_PROGRESS may be started again: its worker may have died, and of two that finish, one counts.
        """
        moment = self._clock()
        change = Change(
            {"status": ChunkStatus.IN_PROGRESS.value, "started_at": moment},
            defaults={"first_started_at": moment},
            adds={"attempts": 1},
            condition=_MAY_START,
        )
        chunk = self._update_chunk(run_id, chunk_id, change)
        if chunk is not None:
            return Started(chunk)
        chunk = self.chunk(run_id, chunk_id)
        return Skipped(f"it is {chunk.status} already", chunk)

    def end_attempt(self, chunk: ChunkItem, error: str, *, interrupted: bool) -> bool:
        """Give the chunk back to its queue after an attempt without a result. False: another attempt has begun.

        chunk: as `start_chunk` returned it. interrupted: something that the work depends on did not answer, so that
        the attempt says nothing about the chunk.
        """
        change = Change(
            {
                "status": ChunkStatus.PENDING.value,
                "last_error": truncate(error),
                "attempt_ended_at": self._clock(),
            },
            adds={"interruptions": 1} if interrupted else {},
            condition=as_read(chunk, "status", "attempts"),
        )
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def record_error(self, run_id: str, chunk_id: str, error: str) -> None:
        """Note why no attempt at the chunk begins at the moment."""
        change = Change({"last_error": truncate(error)}, condition=_MAY_START)
        self._update_chunk(run_id, chunk_id, change)

    def complete_chunk(
        self,
        chunk: ChunkItem,
        *,
        output_key: str,
        duration_ms: int,
        n_timed_out: int = 0,
        summary: str | None = None,
    ) -> Finished:
        """Record that the chunk's output is there, whole; `n_timed_out` of its items wait for the slow lane."""
        fields: dict[str, Any] = {"output_key": output_key, "duration_ms": duration_ms, "n_timed_out": n_timed_out}
        if summary is not None:
            fields["summary"] = truncate(summary, MAX_SUMMARY_BYTES)
        adds = {"n_timed_out": n_timed_out} if n_timed_out else {}
        return self._end_chunk(chunk, ChunkStatus.COMPLETED, fields, run_adds=adds)

    def fail_chunk(self, chunk: ChunkItem, error: str, *, duration_ms: int | None = None) -> Finished:
        """Record that the chunk can never be done, and why."""
        fields: dict[str, Any] = {"error": truncate(error)}
        if duration_ms is not None:
            fields["duration_ms"] = duration_ms
        return self._end_chunk(chunk, ChunkStatus.FAILED, fields)

    def give_up_chunk(self, chunk: ChunkItem, error: str, *, unsaid: bool = False) -> Finished:
        """Fail the chunk because it is exhausted, unless anything has happened to it since it was read.

        unsaid: have the sweeper say so, until `mark_said`.
        """
        fields: dict[str, Any] = {"error": truncate(error)} | ({"unsaid": True} if unsaid else {})
        guard = ("status", "attempts", "interruptions", "started_at", "deferred_at", "sent_at")
        return self._end_chunk(chunk, ChunkStatus.FAILED, fields, guard=guard)

    # ---- the slow lane

    def record_refit(self, run_id: str, chunk_id: str, *, remaining: int) -> bool:
        """Note how many rows of a completed chunk's output have not been fitted. False: nothing has changed.

        The number only falls, so a slower patch of an older state of the file changes nothing. Rows that were given up
        do not wait again. Raises TransientError if the chunk is not COMPLETED yet.
        """
        while True:
            chunk = self.chunk(run_id, chunk_id)
            if chunk.state is not ChunkStatus.COMPLETED:
                raise TransientError(f"{chunk_id} is {chunk.status}; its refit has to wait until it is COMPLETED.")
            if remaining >= chunk.n_timed_out + chunk.n_refit_failed:
                return False
            given_up = chunk.n_refit_failed > 0
            if self._set_rows(chunk, waiting=0 if given_up else remaining, given_up=remaining if given_up else 0):
                return True

    def give_up_refit(self, run_id: str, chunk_id: str, error: str) -> bool:
        """Note that the rows that wait will not be fitted, and why. False: none waits."""
        while True:
            chunk = self.chunk(run_id, chunk_id)
            if chunk.n_timed_out == 0:
                return False
            if self._set_rows(chunk, waiting=0, given_up=chunk.n_refit_failed + chunk.n_timed_out, error=error):
                return True

    def _set_rows(self, chunk: ChunkItem, *, waiting: int, given_up: int, error: str | None = None) -> bool:
        """Change the numbers of the chunk and of its run together. False: the chunk's were not as they were read."""
        rows = {"n_timed_out": waiting, "n_refit_failed": given_up}
        adds = {name: change for name, value in rows.items() if (change := value - getattr(chunk, name))}
        try:
            self._table.transact(
                self._table.changing(
                    chunk_key_of(chunk.run_id, chunk.chunk_id),
                    Change(
                        rows | ({"refit_error": truncate(error)} if error else {}),
                        removes=() if given_up else ("refit_error",),
                        condition=as_read(chunk, *rows),
                    ),
                ),
                self._table.changing(run_key(chunk.run_id), Change(adds=adds, condition=Attr("PK").exists())),
            )
        except RefusedError:
            return False
        return True
