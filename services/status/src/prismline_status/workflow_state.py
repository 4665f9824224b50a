"""The workflow-state table: one item a run, keyed by `run_id`. This service alone writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr

from prismline_contracts import RunStatus, StatusUpdate, WorkflowStateItem, timestamp
from prismline_runtime import Change, RefusedError, Table
from prismline_status.transitions import TERMINAL, build_change, stored_status

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TERMINAL = frozenset(map(stored_status, TERMINAL))


class RunState(WorkflowStateItem):
    """A run's item, with what only this service reads of it."""

    #: The status that was published last.
    announced: str | None = None
    #: Tokens of the state machine's tasks that wait until the run has drained.
    waiting_tokens: set[str] | None = None
    #: The one token that version 1.0 remembered.
    waiting_token: str | None = None
    #: Percentage of chunks that may fail, as text: DynamoDB's client takes no float.
    tolerated_failure_percent: str | None = None

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in _TERMINAL

    @property
    def tokens(self) -> list[str]:
        """The tokens of all tasks that wait."""
        return sorted((self.waiting_tokens or set()) | ({self.waiting_token} if self.waiting_token else set()))

    @property
    def tolerated(self) -> float:
        """Percentage of chunks that may fail."""
        return float(self.tolerated_failure_percent or 0)


@dataclass(frozen=True)
class Applied:
    """An update that was allowed: the item before and after it."""

    before: RunState
    after: RunState


class WorkflowStateTable:
    """Reads and conditional writes of the table. Raises UnavailableError when DynamoDB cannot be reached."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._table = Table(dynamodb, table)
        self._clock = clock

    def create(self, run: WorkflowStateItem) -> bool:
        """Put the item of a new run. False: the run has one, which stays as it is."""
        return self._table.create(run.model_dump(exclude_none=True), key="run_id")

    def get(self, run_id: str) -> RunState | None:
        """The run's item, or None. The read is consistent."""
        item = self._table.get({"run_id": run_id})
        return None if item is None else RunState.model_validate(item)

    def apply(self, update: StatusUpdate) -> Applied | None:
        """Carry out `update` if the run's status and execution allow it. None: they do not, or there is no such run."""
        change = build_change(update, self._clock())
        before = self._change(update.run_id, change, returns="ALL_OLD")
        if before is None:
            return None
        first = {name: getattr(before, name) or value for name, value in change.defaults.items()}
        return Applied(before, before.model_copy(update={**first, **change.sets}))

    def complete_recovered(self, run_id: str) -> RunState | None:
        """Turn a failed run into a completed one: its failed chunks were recovered. None: it is not failed."""
        now = self._clock()
        sets = {"status": stored_status(RunStatus.COMPLETED), "updated_at": now, "completed_at": now}
        condition = Attr("status").eq(stored_status(RunStatus.FAILED))
        return self._change(run_id, Change(sets, removes=("error_message",), condition=condition))

    def add_waiting(self, run_id: str, token: str) -> bool:
        """Note that one more task waits for the run to drain. False: the run is not running."""
        running = Attr("status").eq(stored_status(RunStatus.RUNNING))
        return self._change(run_id, Change(includes={"waiting_tokens": {token}}, condition=running)) is not None

    def forget_waiting(self, run: RunState) -> None:
        """Note that the tasks that waited when `run` was read wait no longer; those that came since still do."""
        legacy = ("waiting_token",) if run.waiting_token else ()
        tokens = {"waiting_tokens": run.waiting_tokens} if run.waiting_tokens else {}
        self._change(run.run_id, Change(excludes=tokens, removes=legacy, condition=Attr("run_id").exists()))

    def mark_announced(self, run: RunState) -> None:
        """Note that the run's status has been published."""
        self._change(run.run_id, Change({"announced": run.status}, condition=Attr("status").eq(run.status)))

    def _change(self, run_id: str, change: Change, *, returns: str = "ALL_NEW") -> RunState | None:
        """Change the run's item and return it; None if the condition does not hold."""
        try:
            return RunState.model_validate(self._table.update({"run_id": run_id}, change, returns=returns))
        except RefusedError:
            return None
