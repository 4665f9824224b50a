"""Jobs, the owners of runs, idempotency keys, batches, uploads and exports; only this service writes jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from prismline_contracts.base import Contract, timestamp
from prismline_contracts.jobs import (
    BATCH_SK_PREFIX,
    EXPORT_SK_PREFIX,
    MAX_RUN_REQUESTS,
    WEBHOOK_SK_PREFIX,
    BatchItem,
    ExportItem,
    IdempotencyItem,
    JobItem,
    JobRunItem,
    RunRequest,
    UploadItem,
    WebhookItem,
    export_key,
    idempotency_key,
    job_key,
    job_run_key,
    tenant_key,
    tenant_runs_key,
    upload_item_key,
)
from prismline_runtime import Change, ConditionFailedError, Table, unchanged

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

M = TypeVar("M", bound=Contract)

#: How often it is tried to record a request about a run while others do.
NOTE_TRIES = 5


class JobStore:
    """Reads the jobs table, and writes it conditionally. Raises UnavailableError if DynamoDB does not answer."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, clock: Callable[[], str] = timestamp) -> None:
        self._table = Table(dynamodb, table)
        self._clock = clock

    # ---- jobs and runs

    def job(self, tenant: str, job_id: str) -> JobItem | None:
        """The tenant's job, or None."""
        return self._get(JobItem, job_key(tenant, job_id))

    def run(self, tenant: str | None, run_id: str) -> JobRunItem | None:
        """The run, or None if it does not exist or belongs to another tenant. tenant: None for any tenant."""
        run = self._get(JobRunItem, job_run_key(run_id))
        return run if run is not None and tenant in (None, run.tenant) else None

    def jobs(self, tenant: str, limit: int, after: Mapping[str, Any] | None) -> tuple[list[JobItem], Any]:
        """A page of the tenant's jobs, the newest first, and where the next page begins."""
        key = Key("GSI1_PK").eq(tenant_key(tenant))
        page = self._table.page(key, limit=limit, after=after, index="GSI1", descending=True)
        return [JobItem.model_validate(item) for item in page.items], page.last_key

    def runs(self, tenant: str, limit: int, after: Mapping[str, Any] | None) -> tuple[list[JobRunItem], Any]:
        """A page of the tenant's runs, the newest first, and where the next page begins."""
        key = Key("GSI1_PK").eq(tenant_runs_key(tenant))
        page = self._table.page(key, limit=limit, after=after, index="GSI1", descending=True)
        return [JobRunItem.model_validate(item) for item in page.items], page.last_key

    def idempotency(self, tenant: str, key: str) -> IdempotencyItem | None:
        """The record of the request with this key, or None."""
        return self._get(IdempotencyItem, idempotency_key(tenant, key))

    def create_job(self, job: JobItem, run: JobRunItem, request: IdempotencyItem | None) -> bool:
        """Write a job, its run's owner, and the idempotency key in one transaction, in which the job takes its upload.

        False if one of them exists, or if the upload is being deleted.
        """
        takes = [] if job.upload_id is None else [self._taking(job, job.upload_id)]
        return self._create([job, run, *filter(None, [request])], *takes)

    def _taking(self, job: JobItem, upload_id: str) -> Any:
        there = Attr("PK").exists() & Attr("deleted_at").not_exists()
        change = Change(includes={"job_ids": {job.job_id}}, removes=("expires_at",), condition=there)
        return self._table.changing(upload_item_key(job.tenant, upload_id), change)

    def add_run(self, job: JobItem, run: JobRunItem, request: IdempotencyItem | None) -> bool:
        """Add a run to the job as it was read. False if the job has changed since, or the run or the key exists."""
        same = Attr("run_ids").eq(job.run_ids) & Attr("state").eq(job.state)
        change = Change({"run_ids": [*job.run_ids, run.run_id]}, condition=same)
        return self._create([run, *filter(None, [request])], self._changing(job, change))

    def reserve(self, job: JobItem, batch: BatchItem, request: IdempotencyItem) -> bool:
        """Reserve the indices of a batch of an open job. False if the job has changed since, or the key exists."""
        same = Attr("state").eq("open") & Attr("n_tasks").eq(batch.first_index)
        change = Change({"n_tasks": batch.first_index + batch.count}, adds={"n_batches": 1}, condition=same)
        return self._create([batch, request], self._changing(job, change))

    def batches(self, tenant: str, job_id: str) -> list[BatchItem]:
        """The batches of an open job in the order of their indices."""
        key: ConditionBase = Key("PK").eq(job_key(tenant, job_id)["PK"]) & Key("SK").begins_with(BATCH_SK_PREFIX)
        return [BatchItem.model_validate(item) for item in self._table.query(key)]

    def change_job(self, job: JobItem, sets: Mapping[str, Any], *same: str) -> JobItem | None:
        """Set attributes of a job if its state and the attributes `same` are as they were read, else return None."""
        read = unchanged({name: getattr(job, name) for name in ("state", *same)})
        try:
            item = self._table.update(_key_of(job), Change(sets, condition=read))
        except ConditionFailedError:
            return None
        return JobItem.model_validate(item)

    def note_request(self, run_id: str, request: RunRequest) -> None:
        """Record what a person asked of a run. Nothing if the run has no job or is deleted."""
        for _ in range(NOTE_TRIES):
            run = self.run(None, run_id)
            if run is None:
                return
            known = [each.model_dump(exclude_none=True) for each in run.requests]
            same: ConditionBase = Attr("requests").eq(known)
            if not known:
                same = Attr("PK").exists() & (Attr("requests").not_exists() | same)
            sets = {"requests": [*known[1 - MAX_RUN_REQUESTS :], request.model_dump(exclude_none=True)]}
            with suppress(ConditionFailedError):  # another request was recorded
                self._table.update(_key_of(run), Change(sets, condition=same))
                return

    def of_run(self, run_id: str) -> tuple[list[ExportItem], list[WebhookItem]]:
        """The exports of a run, and the deliveries of its webhook."""
        pk = Key("PK").eq(job_run_key(run_id)["PK"])
        exports = self._table.query(pk & Key("SK").begins_with(EXPORT_SK_PREFIX))
        webhooks = self._table.query(pk & Key("SK").begins_with(WEBHOOK_SK_PREFIX))
        return [ExportItem.model_validate(each) for each in exports], [
            WebhookItem.model_validate(each) for each in webhooks
        ]

    # ---- uploads and exports

    def upload(self, tenant: str, upload_id: str) -> UploadItem | None:
        """The item of the tenant's upload, or None."""
        return self._get(UploadItem, upload_item_key(tenant, upload_id))

    def create_upload(self, item: UploadItem) -> None:
        """Write the item of an upload, unless it exists."""
        self._create([item])

    def export(self, run_id: str, export_id: str) -> ExportItem | None:
        """An export of the run, or None."""
        return self._get(ExportItem, export_key(run_id, export_id))

    def create_export(self, item: ExportItem) -> bool:
        """Record the request for an export. False if it exists."""
        return self._create([item])

    # ----

    def _get(self, model: type[M], key: Mapping[str, str]) -> M | None:
        item = self._table.get(key)
        return None if item is None else model.model_validate(item)

    def _create(self, items: list[Any], *more: Any) -> bool:
        creations = [self._table.creation(encoded(item), key="PK") for item in items]
        try:
            self._table.transact(*creations, *more)
        except ConditionFailedError:
            return False
        return True

    def _changing(self, job: JobItem, change: Change) -> Any:
        return self._table.changing(_key_of(job), change)


def _key_of(item: JobItem | JobRunItem) -> dict[str, str]:
    return {"PK": item.PK, "SK": item.SK}


def encoded(item: Contract) -> dict[str, Any]:
    """The attributes of an item in DynamoDB's types: without absent ones, and with decimals for fractions."""
    fields = item.model_dump(exclude_none=True)
    return {name: Decimal(str(value)) if isinstance(value, float) else value for name, value in fields.items()}
