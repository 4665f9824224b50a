"""Export items in the jobs table: the lease, the uploaded parts, and the end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, ConditionBase

from prismline_contracts.base import now, timestamp
from prismline_contracts.events import ExportRequested
from prismline_contracts.jobs import ExportItem, export_key
from prismline_runtime import Change, ConditionFailedError, Table, TransientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: States of an export that has ended.
ENDED = ("COMPLETED", "FAILED")


class LeaseLostError(TransientError):
    """Another process works on the export."""


class Exports:
    """Reads export items, and writes them conditionally. Raises TransientError if DynamoDB does not answer."""

    def __init__(
        self, dynamodb: DynamoDBClient, table: str, lease: timedelta, *, clock: Callable[[], datetime] = now
    ) -> None:
        self._table = Table(dynamodb, table)
        self._lease = lease
        self._clock = clock

    def get(self, run_id: str, export_id: str) -> ExportItem | None:
        """The export, or None."""
        item = self._table.get(export_key(run_id, export_id))
        return None if item is None else ExportItem.model_validate(item)

    def claim(self, request: ExportRequested, owner: str, *, create: bool = True) -> ExportItem | None:
        """Take the lease of an export for `owner`. If there is no item, create it, or without `create` return None.

        An export that has ended is returned unchanged. Raises LeaseLostError, with the seconds to wait, while the lease
        of another owner lasts.
        """
        moment = self._clock()
        free = Attr("leased_until").not_exists() | Attr("leased_until").lt(timestamp(moment))
        going: ConditionBase = Attr("status").is_in(["PENDING", "RUNNING"]) & (Attr("owner").eq(owner) | free)
        if create:
            going = Attr("PK").not_exists() | going
        given = {"tenant": request.tenant, "requested_by": request.requested_by}
        change = Change(
            {"status": "RUNNING", "owner": owner, **self._renewal()},
            defaults={
                "requested_at": timestamp(moment),
                "started_at": timestamp(moment),
                "entries": 0,
                "etags": [],
                **{name: value for name, value in given.items() if value is not None},
            },
            condition=going,
        )
        try:
            return self._write(request.run_id, request.export_id, change)
        except ConditionFailedError:
            found = self.get(request.run_id, request.export_id)
            if (found is None and not create) or (found is not None and found.status in ENDED):
                return found
            until = (found and found.leased_until) or timestamp(moment)
            left = (datetime.fromisoformat(until) - moment).total_seconds()
            raise LeaseLostError(
                f"Export {request.export_id} is being written.", retry_after=max(1, round(left) + 1)
            ) from None

    def begin(self, item: ExportItem, *, upload_id: str, entries_total: int) -> ExportItem:
        """Record a new upload, without any part."""
        sets = {"upload_id": upload_id, "etags": [], "entries": 0, "entries_total": entries_total, "bytes": 0}
        return self._change(item, sets, removes=("writer",))

    def commit(self, item: ExportItem, *, etag: str, writer: str, entries: int, size: int) -> ExportItem:
        """Record a part that is uploaded, with the state of the writer after it. Renews the lease."""
        sets = {"etags": [*item.etags, etag], "writer": writer, "entries": entries, "bytes": size}
        return self._change(item, sets)

    def renew(self, item: ExportItem) -> ExportItem:
        """Renew the lease."""
        return self._change(item, {})

    def release(self, item: ExportItem) -> None:
        """Give up the lease, so that another process can continue at once."""
        self._change(item, {"leased_until": timestamp(self._clock() - timedelta(seconds=1))})

    def complete(self, item: ExportItem, key: str) -> ExportItem:
        """Record that the object is complete."""
        moment = timestamp(self._clock())
        sets = {"status": "COMPLETED", "key": key, "completed_at": moment}
        return self._change(item, sets, removes=("upload_id", "etags", "writer"))

    def fail(self, item: ExportItem, error: str) -> ExportItem:
        """Record that there will be no object, and why."""
        sets = {"status": "FAILED", "error": error, "completed_at": timestamp(self._clock())}
        return self._change(item, sets, removes=("upload_id", "etags", "writer"))

    def _renewal(self) -> dict[str, str]:
        moment = self._clock()
        return {"updated_at": timestamp(moment), "leased_until": timestamp(moment + self._lease)}

    def _change(self, item: ExportItem, sets: dict[str, Any], *, removes: tuple[str, ...] = ()) -> ExportItem:
        change = Change(self._renewal() | sets, removes=removes, condition=_owned_by(item))
        try:
            return self._write(run_id_of_export(item), export_id_of(item), change)
        except ConditionFailedError as error:
            raise LeaseLostError(f"Another process writes export {export_id_of(item)} now.") from error

    def _write(self, run_id: str, export_id: str, change: Change) -> ExportItem:
        return ExportItem.model_validate(self._table.update(export_key(run_id, export_id), change))


def run_id_of_export(item: ExportItem) -> str:
    """The run whose results are exported."""
    return item.PK.removeprefix("RUN#")


def export_id_of(item: ExportItem) -> str:
    """The id of the export."""
    return item.SK.removeprefix("EXPORT#")


def _owned_by(item: ExportItem) -> ConditionBase:
    return Attr("owner").eq(item.owner) & Attr("status").eq("RUNNING")
