"""The workflow-state table: one item for each run, keyed by `run_id`. Only this service writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr

from prismline_contracts.base import timestamp
from prismline_contracts.commands import RunStatus, StatusUpdate
from prismline_contracts.items import WorkflowStateItem
from prismline_ledger import Tolerance
from prismline_runtime import Change, ConditionFailedError, Table, unchanged
from prismline_status.transitions import TERMINAL, build_change, error_message, stored_status

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TERMINAL = frozenset(map(stored_status, TERMINAL))


class RunState(WorkflowStateItem):
    """A run's item, with the attributes that only this service reads."""

    #: The status that was published last.
    announced: str | None = None
    #: Tokens of the state machine's tasks that wait for the drain.
    waiting_tokens: set[str] | None = None
    #: The single waiting token that version 1.0 stored.
    waiting_token: str | None = None
    #: Percentage of chunks that may fail. It is stored as text, because DynamoDB's client takes no float.
    tolerated_failure_percent: str | None = None
    #: Number of chunks or tasks that may fail.
    tolerated_failures: int | None = None

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in _TERMINAL

    @property
    def tokens(self) -> list[str]:
        """The tokens of all waiting tasks."""
        return sorted((self.waiting_tokens or set()) | ({self.waiting_token} if self.waiting_token else set()))

    @property
    def tolerance(self) -> Tolerance:
        """The chunks or tasks that may fail."""
        return Tolerance(float(self.tolerated_failure_percent or 0), self.tolerated_failures)


@dataclass(frozen=True)
class Applied:
    """An applied update: the item before and after it."""

    before: RunState
    after: RunState


class WorkflowStateTable:
    """Reads and conditional writes of the table. Raises UnavailableError if DynamoDB does not answer."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._table = Table(dynamodb, table)
        self._clock = clock

    def create(self, run: WorkflowStateItem) -> bool:
        """Put the item of a new run. False if the run has an item, which stays unchanged."""
        return self._table.create(run.model_dump(exclude_none=True), key="run_id")

    def get(self, run_id: str) -> RunState | None:
        """The run's item, or None. A consistent read."""
        item = self._table.get({"run_id": run_id})
        return None if item is None else RunState.model_validate(item)

    def apply(self, update: StatusUpdate) -> Applied | None:
        """Apply `update` if the run's status and execution allow it. None if not, or if there is no such run."""
        change = build_change(update, self._clock())
        before = self._change(update.run_id, change, returns="ALL_OLD")
        if before is None:
            return None
        first = {name: getattr(before, name) or value for name, value in change.defaults.items()}
        return Applied(before, before.model_copy(update={**first, **change.sets}))

    def complete_recovered(self, run_id: str) -> RunState | None:
        """Complete a failed run whose chunks were recovered. None if the run is not failed."""
        now = self._clock()
        sets = {"status": stored_status(RunStatus.COMPLETED), "updated_at": now, "completed_at": now}
        condition = Attr("status").eq(stored_status(RunStatus.FAILED))
        return self._change(run_id, Change(sets, removes=("error_message",), condition=condition))

    def end_after_cancel(self, read: RunState, update: StatusUpdate) -> RunState | None:
        """Complete or fail a cancelled run that a person continued. None if its item has changed since it was read."""
        now = self._clock()
        sets = {"status": stored_status(RunStatus(update.status)), "updated_at": now, "completed_at": now}
        if update.error is not None:
            sets["error_message"] = error_message(update.error)
        removes = () if update.error is not None else ("error_message",)
        condition = unchanged({"status": read.status, "updated_at": read.updated_at})
        return self._change(read.run_id, Change(sets, removes=removes, condition=condition))

    def add_waiting(self, run_id: str, token: str) -> bool:
        """Add the token of a task that waits for the drain. False if the run is not running."""
        running = Attr("status").eq(stored_status(RunStatus.RUNNING))
        return self._change(run_id, Change(includes={"waiting_tokens": {token}}, condition=running)) is not None

    def forget_waiting(self, run: RunState) -> None:
        """Remove the tokens that `run` had when it was read. Tokens that were added since stay."""
        legacy = ("waiting_token",) if run.waiting_token else ()
        tokens = {"waiting_tokens": run.waiting_tokens} if run.waiting_tokens else {}
        self._change(run.run_id, Change(excludes=tokens, removes=legacy, condition=Attr("run_id").exists()))

    def mark_announced(self, run: RunState) -> None:
        """Record that the run's status was published."""
        self._change(run.run_id, Change({"announced": run.status}, condition=Attr("status").eq(run.status)))

    def _change(self, run_id: str, change: Change, *, returns: str = "ALL_NEW") -> RunState | None:
        """Change the run's item and return it. None if the condition does not hold."""
        try:
            return RunState.model_validate(self._table.update({"run_id": run_id}, change, returns=returns))
        except ConditionFailedError:
            return None
