"""Webhook items in the jobs table: how often an event was posted to its target, and with what result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr

from prismline_contracts.base import now, timestamp
from prismline_contracts.jobs import JobItem, JobRunItem, WebhookItem, job_key, job_run_key, webhook_key
from prismline_runtime import Change, ConditionFailedError, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

#: How long an item is kept after its last attempt.
KEPT = timedelta(days=30)


class Deliveries:
    """Reads jobs and writes webhook items. Raises UnavailableError if DynamoDB does not answer."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], datetime] = now) -> None:
        self._table = Table(dynamodb, table)
        self._clock = clock

    def job_of(self, run_id: str) -> JobItem | None:
        """The job of a run. None if the run was not submitted over HTTP, or its job is deleted."""
        item = self._table.get(job_run_key(run_id))
        if item is None:
            return None
        run = JobRunItem.model_validate(item)
        job = self._table.get(job_key(run.tenant, run.job_id))
        return None if job is None else JobItem.model_validate(job)

    def begin(self, run_id: str, event_id: str, job: JobItem, event_type: str) -> WebhookItem | None:
        """Count an attempt. None if the event was already delivered.

        An event that was given up starts again at its first attempt: a person has sent its dead letter back.
        """
        moment = self._clock()
        key = webhook_key(run_id, event_id)
        about = {"job_id": job.job_id, "tenant": job.tenant, "event_type": event_type}
        attempt = {"last_attempt_at": timestamp(moment), "expires_at": int((moment + KEPT).timestamp())}
        going = Change(
            {**attempt, "status": "PENDING"},
            defaults={**about, "first_attempt_at": timestamp(moment)},
            adds={"attempts": 1},
            condition=Attr("PK").not_exists() | Attr("status").eq("PENDING"),
        )
        anew = Change(
            {**attempt, "status": "PENDING", "first_attempt_at": timestamp(moment), "attempts": 1},
            condition=Attr("status").eq("FAILED"),
        )
        for change in (going, anew):
            try:
                return WebhookItem.model_validate(self._table.update(key, change))
            except ConditionFailedError:
                continue
        return None

    def note(self, item: WebhookItem, **fields: Any) -> None:
        """Record the result of an attempt. Does nothing if another attempt has delivered the event."""
        key = {"PK": item.PK, "SK": item.SK}
        sets = {name: value for name, value in fields.items() if value is not None}
        try:
            self._table.update(key, Change(sets, condition=Attr("status").eq("PENDING")))
        except ConditionFailedError:
            return

    def delivered(self, item: WebhookItem, http_status: int) -> None:
        """Record that the target has accepted the event."""
        self.note(item, status="DELIVERED", delivered_at=timestamp(self._clock()), http_status=http_status)
