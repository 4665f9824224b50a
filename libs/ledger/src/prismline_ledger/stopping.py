"""The status service's writes: the rest of a run is skipped, and a run's end has been heard."""

from __future__ import annotations

from typing import Literal

from boto3.dynamodb.conditions import Attr

from prismline_contracts import STOP_SK, RunItem
from prismline_ledger.base import as_read
from prismline_ledger.splitting import Splitting
from prismline_runtime import Change


class Stopping(Splitting):
    """What the outside decides about a run."""

    def stop_run(self, run_id: str, reason: Literal["cancelled", "failed"]) -> None:
        """Have the rest of a run skipped, unless it has drained. A run that is not open yet is stopped when it opens.

        The run's item is looked for again after the note was left, because the splitter looks for the note after it
        created the item: one of the two sees the other.
        """
        if self._stop(run_id, reason) is not None:
            return
        if self.get_run(run_id) is None:
            self._table.create({"PK": run_id, "SK": STOP_SK, "stop_reason": reason, "at": self._clock()}, key="PK")
        self._stop(run_id, reason)

    def record_end(self, run: RunItem, status: str) -> bool:
        """Note that the status that follows from `run` is written and announced: nobody has to say its end again.

        False: the run is no longer as it was read, so its end may be another one by now.
        """
        read = ("drained_at", "cancelled_at", "drains", "jobs_completed", "jobs_failed")
        over = Attr("drained_at").exists() | Attr("cancelled_at").exists()
        change = Change({"ended_at": self._clock(), "ended_status": status}, condition=as_read(run, *read) & over)
        return self._update_run(run, change) is not None
