"""A run as both tables have it, for tests of systems that run without the api."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prismline_cli.connection import Connection
from prismline_contracts.items import RunItem, WorkflowStateItem
from prismline_ledger import ENDED, Counts, RepeatedError, has_ended, shown_status, waiting_for
from prismline_runtime import decode


@dataclass(frozen=True)
class RunView:
    """A run. State and item may be missing while the run is being submitted, or if it was refused."""

    run_id: str
    state: WorkflowStateItem | None
    item: RunItem | None
    #: The unexpected error that a message of the run repeats.
    repeated_error: RepeatedError | None = None

    @property
    def status(self) -> str:
        """`pending`, `running`, `completed`, `failed` or `cancelled`."""
        return shown_status(self.state.status if self.state else "pending", self._counts)

    @property
    def error(self) -> str | None:
        """Why the run failed or was cancelled. None for a run that completed after it was resumed."""
        return self.state.error_message if self.state and self.status in {"failed", "cancelled"} else None

    @property
    def ended(self) -> bool:
        """Whether the status is final and nothing is left in the slow lane."""
        return has_ended(self.item, self.status)

    @property
    def total(self) -> int:
        """The number of chunks. 0 while it is unknown."""
        return (self.item and self.item.chunks_total) or 0

    @property
    def completed(self) -> int:
        """The number of completed chunks."""
        return self.item.chunks_completed if self.item else 0

    @property
    def failed(self) -> int:
        """The number of failed chunks."""
        return self.item.chunks_failed if self.item else 0

    @property
    def unit(self) -> str:
        """What the run consists of: `chunk` or `task`."""
        return self.item.unit if self.item else "chunk"

    @property
    def ok(self) -> bool:
        """Whether nothing has failed."""
        return self.failed == 0 and self.status != "failed"

    @property
    def params(self) -> dict[str, Any]:
        """The parameters in force. Runs of an older splitter have only the submitted parameters."""
        params: dict[str, Any] = json.loads(self.item.params) if self.item and self.item.params else {}
        return params

    @property
    def waiting_for(self) -> str | None:
        """What the run's work waits for. None: a worker has lately begun some, or the run has ended."""
        return waiting_for(self.item, datetime.now(UTC)) if self.item else None

    @property
    def _counts(self) -> Counts | None:
        return Counts(self.item.chunks_total, self.completed, self.failed) if self.item else None

    @property
    def seconds(self) -> float:
        """Time from the submission of the run to its end, or until now."""
        if self.state is None or self.state.created_at is None:
            return 0.0
        end = self.state.completed_at if self.status in ENDED else None
        until = datetime.fromisoformat(end) if end else datetime.now(UTC)
        return max(0.0, (until - datetime.fromisoformat(self.state.created_at)).total_seconds())

    def as_json(self) -> dict[str, Any]:
        """The view as a JSON document. Counts are null while they are unknown."""
        state, item = self.state, self.item
        return {
            "run_id": self.run_id,
            "job_id": state.job_id if state else None,
            "survey": (state and state.survey) or (item and item.survey),
            "status": self.status,
            "error": self.error,
            "n_spectra": item.n_items if item else None,
            "n_blank": item.n_blank if item else None,
            "n_timed_out": item.n_timed_out if item else None,
            "n_refit_failed": item.n_refit_failed if item else None,
            "chunks_total": item.chunks_total if item else None,
            "chunks_completed": self.completed,
            "chunks_failed": self.failed,
            "unit": self.unit,
            "n_rejected": item.n_rejected if item else 0,
            "waiting_for": self.waiting_for,
            "repeated_error": self.repeated_error.as_document() if self.repeated_error else None,
            "params": self.params,
            "created_at": state.created_at if state else (item and item.created_at),
            "started_at": state.started_at if state else None,
            "completed_at": state.completed_at if state else None,
            "seconds": round(self.seconds, 3),
            "trace_id": state.trace_id if state else None,
        }


def load_run(connection: Connection, run_id: str) -> RunView | None:
    """The run with this id, or None if there is none."""
    answer = connection.dynamodb.get_item(
        TableName=connection.workflow_state_table, Key={"run_id": {"S": run_id}}, ConsistentRead=True
    )
    state = _state(answer["Item"]) if "Item" in answer else None
    view = _with_item(connection, run_id, state)
    return view if view.state or view.item or view.repeated_error else None


def _with_item(connection: Connection, run_id: str, state: WorkflowStateItem | None) -> RunView:
    repeated = connection.ledger.repeated_error(run_id, after=state.completed_at if state else None)
    return RunView(run_id, state, _counted(connection, run_id), repeated_error=repeated)


def _counted(connection: Connection, run_id: str) -> RunItem | None:
    """The run's item with its counts, also if shards count its chunks or tasks."""
    item = connection.ledger.get_run(run_id)
    return None if item is None else connection.ledger.counted(item)


def _state(item: dict[str, Any]) -> WorkflowStateItem:
    return WorkflowStateItem.model_validate(decode(item))
