"""The status service's writes: stop a run, and record its end."""

from __future__ import annotations

from functools import partial
from typing import Literal

from boto3.dynamodb.conditions import Attr

from prismline_contracts.items import STOP_SK, RunItem
from prismline_ledger.base import as_read
from prismline_ledger.splitting import Splitting
from prismline_runtime import Change


class Stopping(Splitting):
    """Writes that stop a run or record its end."""

    def stop_run(
        self,
        run_id: str,
        reason: Literal["cancelled", "failed"],
        *,
        resumed_at: str | None = None,
        uncancelled_at: str | None = None,
        drains: int | None = None,
    ) -> None:
        """Stop a run, so that its remaining chunks are skipped, unless it has drained.

        With the reason `failed`, the run is not stopped if it has ever drained or was resumed, because its chunks then
        belong to a recovery. A caller that stops a resumed run gives the `resumed_at` that it read. With the reason
        `cancelled`, a run that continued after an earlier cancellation is stopped only by a caller that gives the
        `uncancelled_at` that it read. Such a caller also gives the `drains` that it read: a run that has drained since
        is not stopped, because its chunks may belong to a recovery.

        A run without an item gets a stop item, and stops when the splitter opens it. This method reads the run again
        after it has written the stop item, and the splitter reads the stop item after it has created the run. So at
        least one of the two sees the other's write.
        """
        stop = partial(self._stop, run_id, reason, resumed_at=resumed_at, uncancelled_at=uncancelled_at, drains=drains)
        if stop() is not None:
            return
        if self.get_run(run_id) is None:
            self._table.create({"PK": run_id, "SK": STOP_SK, "stop_reason": reason, "at": self._clock()}, key="PK")
        stop()

    def record_end(self, run: RunItem, status: str) -> bool:
        """Record that the terminal status of `run` is written and announced, so that it is not announced again.

        False if the run has changed since it was read, because its end may now be a different one.
        """
        read = ("drained_at", "cancelled_at", "drains", "chunks_completed", "chunks_failed")
        over = Attr("drained_at").exists() | Attr("cancelled_at").exists()
        change = Change({"ended_at": self._clock(), "ended_status": status}, condition=as_read(run, *read) & over)
        return self._update_run(run, change) is not None
