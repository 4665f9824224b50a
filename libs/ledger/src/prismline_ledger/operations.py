"""Items of recoveries in the ledger's table: who works on one, how far it is, and what it still has to delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from prismline_contracts import (
    OPERATION_SK,
    DeadlettersRecover,
    RecoveryCounts,
    RecoveryOperationItem,
    now,
    timestamp,
)
from prismline_runtime import TransientError, aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class LeaseLostError(TransientError):
    """Somebody else works on the operation."""


class Operations:
    """Reads and guarded writes of operation items. Raises TransientError when DynamoDB cannot be reached."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], datetime] = now) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._clock = clock

    def get(self, operation_id: str) -> RecoveryOperationItem | None:
        """The operation, or None."""
        with aws_errors(f"read the operation {operation_id}"):
            answer = self._dynamodb.get_item(TableName=self._table, Key=_key(operation_id), ConsistentRead=True)
        return _operation(answer["Item"]) if "Item" in answer else None

    def claim(self, request: DeadlettersRecover, owner: str, lease: timedelta) -> RecoveryOperationItem:
        """The operation, begun if it is new, for `owner` to work on until the lease ends.

        One that has ended is returned as it is. Raises LeaseLostError, with the seconds to wait, while another owner's
        lease lasts.
        """
        moment = self._clock()
        fields = {"owner": owner, "leased_until": timestamp(moment + lease), "updated_at": timestamp(moment)}
        initial = {
            "status": "RUNNING",
            "prefix": request.prefix,
            "dry_run": request.dry_run,
            "requested_at": request.requested_at,
            "started_at": timestamp(moment),
            "to_delete": [],
        } | ({"only_run": request.only_run} if request.only_run else {})
        sets = [f"#{name} = :{name}" for name in fields]
        sets += [f"#{name} = if_not_exists(#{name}, :{name})" for name in initial]
        try:
            return self._update(
                request.operation_id,
                f"SET {', '.join(sets)}",
                "attribute_not_exists(PK) OR (#status = :status AND"
                " (#owner = :owner OR attribute_not_exists(#leased_until) OR #leased_until < :updated_at))",
                fields | initial,
            )
        except LeaseLostError:
            operation = self.get(request.operation_id)
            if operation is not None and operation.status == "COMPLETED":
                return operation
            until = (operation and operation.leased_until) or timestamp(moment)
            left = (datetime.fromisoformat(until) - moment).total_seconds()
            raise LeaseLostError(
                f"Recovery {request.operation_id} is being worked on.", retry_after=max(1, round(left) + 1)
            ) from None

    def commit(
        self,
        operation: RecoveryOperationItem,
        counts: RecoveryCounts,
        *,
        cursor: str,
        to_delete: Iterable[str],
        lease: timedelta,
    ) -> RecoveryOperationItem:
        """Count what was done up to `cursor`, and note which records must still be deleted for it."""
        moment = self._clock()
        fields = {
            "owner": operation.owner,
            "cursor": cursor,
            "to_delete": list(to_delete),
            "updated_at": timestamp(moment),
            "leased_until": timestamp(moment + lease),
        }
        adds = {name: value for name, value in counts.model_dump().items() if value}
        sets = [f"#{name} = :{name}" for name in fields if name != "owner"]
        text = f"SET {', '.join(sets)}"
        if adds:
            text += f" ADD {', '.join(f'#{name} :{name}' for name in adds)}"
        return self._update(operation.operation_id, text, "#owner = :owner", fields | adds)

    def release(self, operation: RecoveryOperationItem) -> None:
        """Let somebody else go on at once."""
        fields = {"owner": operation.owner, "leased_until": timestamp(self._clock() - timedelta(seconds=1))}
        self._update(operation.operation_id, "SET #leased_until = :leased_until", "#owner = :owner", fields)

    def finish(self, operation: RecoveryOperationItem) -> RecoveryOperationItem:
        """Declare the operation done."""
        moment = timestamp(self._clock())
        fields = {"owner": operation.owner, "status": "COMPLETED", "finished_at": moment, "updated_at": moment}
        sets = ", ".join(f"#{name} = :{name}" for name in fields if name != "owner")
        return self._update(operation.operation_id, f"SET {sets}", "#owner = :owner", fields)

    def _update(self, operation_id: str, text: str, condition: str, values: dict[str, Any]) -> RecoveryOperationItem:
        serialize = TypeSerializer().serialize
        with aws_errors(f"write the operation {operation_id}"):
            try:
                answer = self._dynamodb.update_item(
                    TableName=self._table,
                    Key=_key(operation_id),
                    UpdateExpression=text,
                    ConditionExpression=condition,
                    ExpressionAttributeNames={f"#{name}": name for name in values},
                    ExpressionAttributeValues={f":{name}": serialize(value) for name, value in values.items()},
                    ReturnValues="ALL_NEW",
                )
            except ClientError as error:
                if error_code(error) == "ConditionalCheckFailedException":
                    raise LeaseLostError(f"Somebody else works on recovery {operation_id} now.") from error
                raise
        return _operation(answer["Attributes"])


def _key(operation_id: str) -> dict[str, Any]:
    return {"PK": {"S": operation_id}, "SK": {"S": OPERATION_SK}}


def _operation(item: dict[str, Any]) -> RecoveryOperationItem:
    deserialize = TypeDeserializer().deserialize
    plain = {name: deserialize(value) for name, value in item.items()}
    return RecoveryOperationItem.model_validate(
        {name: int(value) if hasattr(value, "as_tuple") else value for name, value in plain.items()}
    )
