"""A run as a user sees it: its status, the counts of its chunks and its slow lane, from both tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prismline_cli.connection import Connection
from prismline_contracts.items import RunItem, WorkflowStateItem
from prismline_ledger import ENDED, ActionName, Counts, RepeatedError, actions_of, going_on, shown_status, waiting_for
from prismline_runtime import decode

#: What a workload calls the items of its chunks.
_ITEM_WORDS = {"spectra": "spectra", "captions": "windows", "urls": "URLs"}


@dataclass(frozen=True)
class RunView:
    """A run. State and item may be missing while the run is being submitted, or if it was refused."""

    run_id: str
    state: WorkflowStateItem | None
    item: RunItem | None
    #: Finished items of chunks that are in progress. 0 unless `watching.follow` has counted them.
    underway: int = 0
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
        if self.goes_on:
            return False
        waiting = self.item is not None and self.item.n_timed_out > 0
        return self.status in ENDED and not (self.status == "completed" and waiting)

    @property
    def goes_on(self) -> bool:
        """Whether the run was continued after it was cancelled. Its status stays `cancelled` until it ends."""
        item = self.item
        return self.status == "cancelled" and item is not None and item.goes_on_after_cancel

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
    def items_word(self) -> str:
        """What the items of the run's chunks are called, for several of them."""
        return _ITEM_WORDS.get(self.item.workload if self.item else "", "items")

    @property
    def ok(self) -> bool:
        """Whether nothing has failed."""
        return self.failed == 0 and self.status != "failed"

    @property
    def spectra_done(self) -> int:
        """Estimated number of finished spectra, in ended chunks and in chunks in progress. The last may hold fewer."""
        if not self.item or not self.item.n_items or not self.total:
            return 0
        per_chunk = math.ceil(self.item.n_items / self.total)
        return min(self.item.n_items, per_chunk * (self.completed + self.failed) + self.underway)

    @property
    def parts_done(self) -> float:
        """The work done in chunks that are in progress, as a number of whole chunks."""
        n_items = (self.item and self.item.n_items) or 0
        return min(self.underway * self.total / n_items, self.total - self.completed - self.failed) if n_items else 0.0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters in force. Runs of an older splitter have only the submitted parameters."""
        params: dict[str, Any] = json.loads(self.item.params) if self.item and self.item.params else {}
        return params

    @property
    def retried(self) -> str | None:
        """That a message of the run is retried, and after which error. None if no message repeats an error."""
        if self.repeated_error is None:
            return None
        return f"Being retried after an unexpected error: {self.repeated_error.sentence}"

    def refusal(self, name: ActionName) -> str | None:
        """Why the action is not possible now. None: it is."""
        return actions_of(self.run_id, self.item, self.status, self._counts, has_job=False)[name].reason

    @property
    def going_on(self) -> str | None:
        """Why work continues although the run has failed or was cancelled."""
        return going_on(self.item, self.status, self._counts)

    @property
    def _counts(self) -> Counts | None:
        return Counts(self.item.chunks_total, self.completed, self.failed) if self.item else None

    @property
    def warnings(self) -> list[str]:
        """Warnings for readers of the results, one sentence each."""
        item, found = self.item, []
        if item and item.n_items and item.n_blank == item.n_items:
            found.append(f"All {item.n_items:,} spectra of the cube are blank: nothing was fitted.")
        if item and self.total and self.completed < self.total:
            left = self.total - self.completed - self.failed
            parts = [f"{self.failed:,} failed" if self.failed else "", f"{left:,} not finished" if left else ""]
            why = ", ".join(filter(None, parts))
            found.append(f"Partial: {self.completed:,} of {self.total:,} {self.unit}s completed ({why}).")
        if item and item.n_rejected:
            where = f" The object {item.rejects_key} gives the reasons." if item.rejects_key else ""
            found.append(f"{item.n_rejected:,} lines of the list are not valid tasks.{where}")
        if item and item.n_timed_out:
            found.append(f"{item.n_timed_out:,} spectra ran out of time and wait to be fitted again.")
        if item and item.n_refit_failed:
            found.append(f"{item.n_refit_failed:,} spectra ran out of time and could not be fitted again.")
        return found

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
            "waiting_for": waiting_for(item, datetime.now(UTC)) if item else None,
            "repeated_error": self.repeated_error.as_document() if self.repeated_error else None,
            "params": self.params,
            "warnings": self.warnings,
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


def list_runs(connection: Connection, survey: str | None, limit: int) -> list[RunView]:
    """The latest runs, newest first: of one survey from the ledger's index, or of all from the workflow-state table."""
    if survey is not None:
        views = [load_run(connection, run.run_id) for run in connection.ledger.runs_of(survey, limit=limit)]
        return [view for view in views if view is not None]
    pages = connection.dynamodb.get_paginator("scan").paginate(TableName=connection.workflow_state_table)
    states = [_state(item) for page in pages for item in page["Items"]]
    return [_with_item(connection, state.run_id, state) for state in _newest(states, limit)]


def run_ids(connection: Connection) -> Iterator[str]:
    """The ids of all runs, by a scan of the workflow-state table, which has one small item for each run."""
    pages = connection.dynamodb.get_paginator("scan").paginate(
        TableName=connection.workflow_state_table, ProjectionExpression="run_id"
    )
    for page in pages:
        for item in page["Items"]:
            yield item["run_id"]["S"]


def surveys(connection: Connection) -> Iterator[str]:
    """The survey of each run, by the same scan. A survey with several runs is repeated."""
    pages = connection.dynamodb.get_paginator("scan").paginate(
        TableName=connection.workflow_state_table, ProjectionExpression="survey"
    )
    for page in pages:
        for item in page["Items"]:
            if "survey" in item:
                yield item["survey"]["S"]


def _newest(states: Iterable[WorkflowStateItem], limit: int) -> list[WorkflowStateItem]:
    return sorted(states, key=lambda state: state.created_at or "", reverse=True)[:limit]


def _with_item(connection: Connection, run_id: str, state: WorkflowStateItem | None) -> RunView:
    repeated = connection.ledger.repeated_error(run_id, after=state.completed_at if state else None)
    return RunView(run_id, state, _counted(connection, run_id), repeated_error=repeated)


def _counted(connection: Connection, run_id: str) -> RunItem | None:
    """The run's item with its counts, also if shards count its chunks or tasks."""
    item = connection.ledger.get_run(run_id)
    return None if item is None else connection.ledger.counted(item)


def _state(item: dict[str, Any]) -> WorkflowStateItem:
    return WorkflowStateItem.model_validate(decode(item))
