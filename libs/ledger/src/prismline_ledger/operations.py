"""Recovery operations in the ledger's table: the lease, the progress, and the records that remain to be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr

from prismline_contracts.base import now, timestamp
from prismline_contracts.deadletters import OPERATION_SK, DeadlettersRecover, RecoveryCounts, RecoveryOperationItem
from prismline_runtime import Change, ConditionFailedError, Table, TransientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class LeaseLostError(TransientError):
    """Another process holds the lease of the operation."""


class Operations:
    """Reads and conditional writes of operation items. Raises TransientError if DynamoDB does not answer."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], datetime] = now) -> None:
        self._table = Table(dynamodb, table)
        self._clock = clock

    def get(self, operation_id: str) -> RecoveryOperationItem | None:
        """The operation, or None."""
        item = self._table.get(_key(operation_id))
        return None if item is None else RecoveryOperationItem.model_validate(item)

    def claim(self, request: DeadlettersRecover, owner: str, lease: timedelta) -> RecoveryOperationItem:
        """Take the lease of an operation for `owner`, and create the operation if it is new.

        An operation that has ended is returned unchanged. Raises LeaseLostError, with the seconds to wait, while the
        lease of another owner lasts.
        """
        moment = self._clock()
        free = Attr("owner").eq(owner) | Attr("leased_until").not_exists() | Attr("leased_until").lt(timestamp(moment))
        change = Change(
            {"owner": owner, "leased_until": timestamp(moment + lease), "updated_at": timestamp(moment)},
            defaults={
                "status": "RUNNING",
                "prefix": request.prefix,
                "dry_run": request.dry_run,
                "requested_at": request.requested_at,
                "started_at": timestamp(moment),
                "to_delete": [],
            }
            | ({"only_run": request.only_run} if request.only_run else {})
            | ({"record_keys": request.record_keys} if request.record_keys is not None else {})
            | ({"retry": True} if request.retry else {})
            | ({"chunk_ids": request.chunk_ids} if request.chunk_ids is not None else {})
            | ({"cancelled_at": request.cancelled_at} if request.cancelled_at is not None else {})
            | ({"code": request.code} if request.code is not None else {}),
            condition=Attr("PK").not_exists() | (Attr("status").eq("RUNNING") & free),
        )
        try:
            return self._update(request.operation_id, change)
        except LeaseLostError:
            operation = self.get(request.operation_id)
            if operation is not None and operation.status == "COMPLETED":
                return operation
            until = (operation and operation.leased_until) or timestamp(moment)
            left = (datetime.fromisoformat(until) - moment).total_seconds()
            raise LeaseLostError(
                f"Another process works on recovery {request.operation_id}.", retry_after=max(1, round(left) + 1)
            ) from None

    def commit(
        self,
        operation: RecoveryOperationItem,
        counts: RecoveryCounts,
        *,
        cursor: str | None = None,
        to_delete: Iterable[str] = (),
        lease: timedelta,
    ) -> RecoveryOperationItem:
        """Add `counts`, move the cursor, and record which counted records remain to be deleted. Renews the lease."""
        moment = self._clock()
        fields = {
            "to_delete": list(to_delete),
            "updated_at": timestamp(moment),
            "leased_until": timestamp(moment + lease),
        } | ({"cursor": cursor} if cursor is not None else {})
        adds = {name: value for name, value in counts.model_dump().items() if value}
        return self._update(operation.operation_id, Change(fields, adds=adds, condition=_owned_by(operation)))

    def await_endings(self, operation: RecoveryOperationItem) -> RecoveryOperationItem:
        """Record that all records are listed, and count one more round of waiting for the chunks that were sent."""
        change = Change({"listed": True}, adds={"rounds": 1}, condition=_owned_by(operation))
        return self._update(operation.operation_id, change)

    def release(self, operation: RecoveryOperationItem) -> None:
        """Give up the lease, so that another process can continue at once."""
        past = timestamp(self._clock() - timedelta(seconds=1))
        self._update(operation.operation_id, Change({"leased_until": past}, condition=_owned_by(operation)))

    def finish(self, operation: RecoveryOperationItem) -> RecoveryOperationItem:
        """Mark the operation COMPLETED."""
        moment = timestamp(self._clock())
        fields = {"status": "COMPLETED", "finished_at": moment, "updated_at": moment}
        return self._update(operation.operation_id, Change(fields, condition=_owned_by(operation)))

    def _update(self, operation_id: str, change: Change) -> RecoveryOperationItem:
        try:
            return RecoveryOperationItem.model_validate(self._table.update(_key(operation_id), change))
        except ConditionFailedError as error:
            raise LeaseLostError(f"Another process now works on recovery {operation_id}.") from error


def _key(operation_id: str) -> dict[str, Any]:
    return {"PK": operation_id, "SK": OPERATION_SK}


def _owned_by(operation: RecoveryOperationItem) -> Any:
    return Attr("owner").eq(operation.owner)
