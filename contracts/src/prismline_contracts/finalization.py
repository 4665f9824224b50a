"""The finalization of a run: the call of its function's `finalize`, after all items have ended.

It belongs to one end of the run, which has a number of drains and of failed items. If the run ends otherwise later,
after a recovery or a late success, it is finalized again. The run's item holds it as JSON.
"""

from __future__ import annotations

from prismline_contracts.base import Contract, Count, RunId, Timestamp
from prismline_contracts.items import ChunkStatus, NewerStatus, RunItem, StoredStatus, read_status
from prismline_contracts.prefixes import RESULTS_PREFIX
from prismline_contracts.tasks import TaskValue


def final_value_key(run_id: RunId, drains: int, attempt: int) -> str:
    """S3 key of a long value that an attempt of a finalization stored."""
    return f"{RESULTS_PREFIX}{run_id}/final.{drains}.{attempt}.json"


class Finalization(Contract):
    """How far the finalization of a run has come. It has the states of an item."""

    status: StoredStatus = ChunkStatus.PENDING.value
    #: The end of the run that it belongs to.
    drains: Count = 0
    failed: Count = 0
    #: Attempts that have begun.
    attempts: Count = 0
    #: When the latest attempt began or ended.
    at: Timestamp | None = None
    #: Why the latest attempt failed, and the class of the error.
    error: str | None = None
    error_type: str | None = None
    #: What the function returned.
    value: TaskValue | None = None

    @property
    def state(self) -> ChunkStatus | NewerStatus:
        return read_status(self.status)

    def as_json(self) -> str:
        """The text in the run's item."""
        return self.model_dump_json(exclude_defaults=True)


def finalization_of(run: RunItem) -> Finalization | None:
    """The finalization of the run as it has ended. None: its function has none.

    It is PENDING, without an attempt, until the run ends; and again if the run has ended otherwise since.
    """
    if run.finalization is None:
        return None
    found = Finalization.model_validate_json(run.finalization)
    if (found.drains, found.failed) == (run.drains, run.chunks_failed) and run.drained_at is not None:
        return found
    return Finalization(drains=run.drains, failed=run.chunks_failed)


def due_finalization(run: RunItem) -> Finalization | None:
    """The finalization that is to be carried out now. None: there is none, or its items have not ended."""
    if run.drained_at is None or run.cancelled_at is not None:
        return None
    found = finalization_of(run)
    return None if found is None or found.state.terminal else found
