"""The worker's writes: begin an attempt, end it with or without a result, and record refits of the slow lane."""

from __future__ import annotations

from typing import Any

from boto3.dynamodb.conditions import Attr

from prismline_contracts.items import MAX_SUMMARY_BYTES, ChunkItem, ChunkStatus, RunItem
from prismline_ledger.base import LedgerBase, as_read, chunk_key_of, run_key
from prismline_ledger.transitions import ALLOWED_FROM, Finished, Outcome, Skipped, Started, truncate, with_error
from prismline_runtime import Change, ConditionFailedError, TransientError

_MAY_START = Attr("status").is_in(sorted(ALLOWED_FROM[ChunkStatus.IN_PROGRESS]))


class Attempts(LedgerBase):
    """Transitions of a chunk from PENDING to its end, and the counts of its timed-out rows."""

    def start_chunk(self, run_id: str, chunk_id: str, *, worker: str | None = None) -> Started | Skipped:
        """Begin an attempt at a chunk, unless the chunk has ended. worker: the process that makes it.

        A chunk that is IN_PROGRESS is started again, because its worker may have died. If both workers finish, only
        one of them ends the chunk.
        """
        moment = self._clock()
        change = Change(
            {"status": ChunkStatus.IN_PROGRESS.value, "started_at": moment} | ({"worker": worker} if worker else {}),
            defaults={"first_started_at": moment},
            adds={"attempts": 1},
            removes=("n_done",) if worker else ("n_done", "worker"),
            condition=_MAY_START,
        )
        chunk = self._update_chunk(run_id, chunk_id, change)
        if chunk is not None:
            return Started(chunk)
        chunk = self.chunk(run_id, chunk_id)
        return Skipped(f"it is {chunk.status} already", chunk)

    def end_attempt(self, chunk: ChunkItem, error: str, *, interrupted: bool, duration_ms: int | None = None) -> bool:
        """Make the chunk PENDING after an attempt without a result. False if another attempt has begun.

        chunk: the chunk that `start_chunk` returned. interrupted: a dependency did not answer, so the attempt does not
        count against the chunk.
        """
        moment, adds = self._clock(), {"interruptions": 1} if interrupted else {}
        if duration_ms:
            adds["uncharged_ms"] = duration_ms
        change = Change(
            {
                "status": ChunkStatus.PENDING.value,
                "last_error": truncate(error),
                "attempt_ended_at": moment,
                "errors": with_error(chunk, error, moment, duration_ms=duration_ms, interrupted=interrupted),
            },
            adds=adds,
            condition=as_read(chunk, "status", "attempts"),
        )
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def report_progress(self, chunk: ChunkItem, n_done: int) -> bool:
        """Record how many items of the chunk the attempt has processed. False if it has ended or been replaced.

        chunk: the chunk that `start_chunk` returned.
        """
        change = Change({"n_done": n_done}, condition=as_read(chunk, "status", "attempts"))
        return self._update_chunk(chunk.run_id, chunk.chunk_id, change) is not None

    def record_waiting(self, run: RunItem, reason: str) -> RunItem | None:
        """Record what the run's work waits for. Return the current run; None if another process has done so since."""
        change = Change(
            {"waiting_for": truncate(reason), "waiting_at": self._clock()},
            condition=Attr("PK").exists() & as_read(run, "waiting_at"),
        )
        return self._update_run(run, change)

    def record_error(self, run_id: str, chunk_id: str, error: str) -> None:
        """Record why no attempt at the chunk can begin now."""
        change = Change({"last_error": truncate(error)}, condition=_MAY_START)
        self._update_chunk(run_id, chunk_id, change)

    def complete_chunk(self, chunk: ChunkItem, outcome: Outcome, *, duration_ms: int) -> Finished:
        """Complete the chunk: its output is stored in full."""
        fields: dict[str, Any] = {"output_key": outcome.output_key, "duration_ms": duration_ms}
        fields["n_timed_out"] = outcome.n_timed_out
        if outcome.n_bytes is not None:
            fields["n_bytes"] = outcome.n_bytes
        if outcome.summary is not None:
            fields["summary"] = truncate(outcome.summary, MAX_SUMMARY_BYTES)
        adds = {"n_timed_out": outcome.n_timed_out} if outcome.n_timed_out else {}
        if outcome.n_blank is not None:
            fields["n_blank"] = outcome.n_blank
            if outcome.n_blank or chunk.shard is None:  # with several shards, the run's item is written only if needed
                adds["n_blank"] = outcome.n_blank
        return self._end_chunk(chunk, ChunkStatus.COMPLETED, fields, run_adds=adds)

    def fail_chunk(self, chunk: ChunkItem, error: str, *, duration_ms: int | None = None) -> Finished:
        """Fail the chunk because of a permanent error, unless a recovery has reopened it since it was read.

        An error from before the recovery says nothing about the attempts after it. duration_ms: the duration of the
        caller's attempt. None: the caller has made no attempt.
        """
        fields: dict[str, Any] = {"error": truncate(error)}
        attempt_error = None
        if duration_ms is not None:
            fields["duration_ms"], attempt_error = duration_ms, error
        return self._end_chunk(chunk, ChunkStatus.FAILED, fields, guard=("recovery",), attempt_error=attempt_error)

    def give_up_chunk(self, chunk: ChunkItem, error: str, *, announcement_pending: bool = False) -> Finished:
        """Fail the chunk because it is exhausted, unless it has changed since it was read.

        announcement_pending: the sweeper publishes `chunk.failed` in every sweep until `mark_announced`.
        """
        fields: dict[str, Any] = {"error": truncate(error)} | ({"unsaid": True} if announcement_pending else {})
        guard = ("status", "attempts", "interruptions", "started_at", "deferred_at", "sent_at")
        return self._end_chunk(chunk, ChunkStatus.FAILED, fields, guard=guard)

    # ---- the slow lane

    def record_refit(self, run_id: str, chunk_id: str, *, remaining: int) -> bool:
        """Record how many rows of a completed chunk are not fitted yet. False if the number has not fallen.

        The number only falls, so a late patch of an older version of the file has no effect. Rows that were given up
        never wait again. Raises TransientError if the chunk is not COMPLETED yet.
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
        """Record that the waiting rows will not be fitted, and why. False if no row waits."""
        while True:
            chunk = self.chunk(run_id, chunk_id)
            if chunk.n_timed_out == 0:
                return False
            if self._set_rows(chunk, waiting=0, given_up=chunk.n_refit_failed + chunk.n_timed_out, error=error):
                return True

    def _set_rows(self, chunk: ChunkItem, *, waiting: int, given_up: int, error: str | None = None) -> bool:
        """Change the counts of the chunk and its run in one transaction. False if the chunk's counts have changed."""
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
        except ConditionFailedError:
            return False
        return True
