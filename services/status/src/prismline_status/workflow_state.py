"""The workflow-state table: one item a run, keyed by `run_id`. This service alone writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from prismline_contracts import RunStatus, StatusUpdate, WorkflowStateItem, timestamp
from prismline_runtime import aws_errors, error_code
from prismline_status.transitions import (
    Expression,
    build_transition_condition,
    build_update,
    changed_fields,
    stored_status,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: Statuses that a run never leaves.
TERMINAL = frozenset({"completed", "failed", "cancelled"})


class RunState(WorkflowStateItem):
    """A run's item, with what only this service reads of it."""

    #: The status that was published last.
    announced: str | None = None
    #: Token of the state machine's task that waits until the run has drained.
    waiting_token: str | None = None
    #: Percentage of chunks that may fail, as text: DynamoDB's client takes no float.
    tolerated_failure_percent: str | None = None

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL


@dataclass(frozen=True)
class Applied:
    """An update that was allowed: the item before and after it."""

    before: RunState
    after: RunState


class WorkflowStateTable:
    """Reads and conditional writes of the table. Raises TransientError when DynamoDB cannot be reached."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._clock = clock

    def create(self, run: WorkflowStateItem) -> bool:
        """Put the item of a new run. False: the run has one, which stays as it is."""
        with aws_errors(f"write the status of run {run.run_id}"):
            try:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item=_serialized(run.model_dump(exclude_none=True)),
                    ConditionExpression="attribute_not_exists(run_id)",
                )
            except ClientError as error:
                if error_code(error) == "ConditionalCheckFailedException":
                    return False
                raise
        return True

    def get(self, run_id: str) -> RunState | None:
        """The run's item, or None. The read is consistent."""
        with aws_errors(f"read the status of run {run_id}"):
            answer = self._dynamodb.get_item(
                TableName=self._table, Key=_serialized({"run_id": run_id}), ConsistentRead=True
            )
        return _run_state(answer["Item"]) if "Item" in answer else None

    def apply(self, update: StatusUpdate) -> Applied | None:
        """Carry out `update` if the run's status and execution allow it. None: they do not, or there is no such run."""
        fields = changed_fields(update, self._clock())
        condition = build_transition_condition(RunStatus(update.status), update.execution_arn)
        before = self._update(update.run_id, fields, condition)
        return None if before is None else Applied(before, before.model_copy(update=fields))

    def complete_recovered(self, run_id: str) -> RunState | None:
        """Turn a failed run into a completed one: its failed chunks were recovered. None: it is not failed."""
        now = self._clock()
        fields = {"status": stored_status(RunStatus.COMPLETED), "updated_at": now, "completed_at": now}
        change = build_update(fields)
        condition = Expression("#status = :while", {}, {":while": stored_status(RunStatus.FAILED)})
        before = self._write(run_id, replace(change, text=f"{change.text} REMOVE error_message"), condition)
        return None if before is None else before.model_copy(update={**fields, "error_message": None})

    def remember_waiting(self, run_id: str, token: str) -> bool:
        """Note that a task waits for the run to drain. False: the run is not running."""
        return self._set_while(run_id, stored_status(RunStatus.RUNNING), {"waiting_token": token})

    def mark_announced(self, run: RunState) -> None:
        """Note that the run's status has been published."""
        self._set_while(run.run_id, run.status, {"announced": run.status})

    def _set_while(self, run_id: str, status: str, fields: Mapping[str, str]) -> bool:
        condition = Expression("#status = :while", {"#status": "status"}, {":while": status})
        return self._update(run_id, fields, condition) is not None

    def _update(self, run_id: str, fields: Mapping[str, str], condition: Expression) -> RunState | None:
        """Set `fields` and return the item as it was before; None if `condition` does not hold."""
        return self._write(run_id, build_update(fields), condition)

    def _write(self, run_id: str, change: Expression, condition: Expression) -> RunState | None:
        with aws_errors(f"write the status of run {run_id}"):
            try:
                answer = self._dynamodb.update_item(
                    TableName=self._table,
                    Key=_serialized({"run_id": run_id}),
                    UpdateExpression=change.text,
                    ConditionExpression=condition.text,
                    ExpressionAttributeNames={**change.names, **condition.names},
                    ExpressionAttributeValues=_serialized({**change.values, **condition.values}),
                    ReturnValues="ALL_OLD",
                )
            except ClientError as error:
                if error_code(error) == "ConditionalCheckFailedException":
                    return None
                raise
        return _run_state(answer["Attributes"])


def _serialized(values: Mapping[str, Any]) -> dict[str, Any]:
    serialize = TypeSerializer().serialize
    return {name: serialize(value) for name, value in values.items()}


def _run_state(item: Mapping[str, Any]) -> RunState:
    deserialize = TypeDeserializer().deserialize
    return RunState.model_validate({name: deserialize(value) for name, value in item.items()})
