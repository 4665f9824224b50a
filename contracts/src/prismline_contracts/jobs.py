"""Jobs: what people submit over HTTP, and the items of the table `prismline-<environment>-jobs`.

The `api` service owns the table. The exporter writes export items, and the webhooks service writes webhook items. Every
key begins with the tenant, the run or the hash of an API key, so a reader that knows one tenant cannot name another
one's item.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, StringConstraints

from prismline_contracts.base import Contract, Count, Key, Name, Open, RunId, Survey, Tenant, Timestamp
from prismline_contracts.prefixes import EXPORTS_PREFIX, JOBS_PREFIX, UPLOADS_PREFIX

#: Sort keys of the items.
JOB_SK = "JOB"
JOB_RUN_SK = "RUN"
IDEMPOTENCY_SK = "IDEMPOTENCY"
API_KEY_SK = "APIKEY"
UPLOAD_SK = "UPLOAD"
#: Partition key of the tenants.
TENANTS_PK = "TENANTS"
#: Prefixes of sort keys. The index of the first task, the export's id, or the event's id follows.
BATCH_SK_PREFIX = "BATCH#"
EXPORT_SK_PREFIX = "EXPORT#"
WEBHOOK_SK_PREFIX = "WEBHOOK#"
#: A webhook's secret: a prefix, and base64 of 24 to 96 bytes with or without its padding.
_WEBHOOK_SECRET = re.compile(r"whsec_([A-Za-z0-9+/]{32,128})={0,2}")
#: What every API key begins with, so that a scanner for leaked secrets finds it.
API_KEY_PREFIX = "prismline_"
#: The tenant of a deployment with one tenant. It owns all sources that are not in the folder of another tenant.
DEFAULT_TENANT = "local"

#: SHA-256 in hexadecimal digits.
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: Seconds since 1970, for DynamoDB's time to live.
EpochSeconds = Annotated[int, Field(ge=0)]
#: `read`, `submit` and `operate` apply to the key's tenant. `all` extends them to the runs of all tenants, and to runs
#: that were submitted without the API and belong to no tenant.
Scope = Literal["read", "submit", "operate", "all"]


def jobs_table_name(environment: str) -> str:
    """The full name of the jobs table."""
    return f"prismline-{environment}-jobs"


def new_api_key(
    tenant: str, name: str, scopes: Sequence[Scope], created_at: str, *, key: str | None = None
) -> tuple[str, ApiKeyItem]:
    """An API key, and the item that makes it valid. The item holds only the key's hash: the key is shown once.

    key: an existing key, to write its item again.
    """
    key = key or f"{API_KEY_PREFIX}{secrets.token_urlsafe(32)}"
    digest = api_key_sha256(key)
    item = ApiKeyItem(
        PK=api_key_key(digest)["PK"],
        tenant=tenant,
        key_id=digest[:12],
        name=name,
        scopes=sorted(set(scopes)),
        created_at=created_at,
    )
    return key, item


def api_key_sha256(key: str) -> str:
    """The hash under which an API key is stored. A key has 256 random bits, so a fast hash without salt is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def tenant_key(tenant: str) -> str:
    """`GSI1_PK` of the tenant's jobs."""
    return f"TENANT#{tenant}"


def job_key(tenant: str, job_id: str) -> dict[str, str]:
    """The key of a job's item."""
    return {"PK": f"TENANT#{tenant}#JOB#{job_id}", "SK": JOB_SK}


def tenant_runs_key(tenant: str) -> str:
    """`GSI1_PK` of the runs of the tenant's jobs."""
    return f"TENANT#{tenant}#RUNS"


def job_run_key(run_id: str) -> dict[str, str]:
    """The key of the item that says which tenant a run belongs to."""
    return {"PK": f"RUN#{run_id}", "SK": JOB_RUN_SK}


def batch_key(tenant: str, job_id: str, first_index: int) -> dict[str, str]:
    """The key of the item of a batch of an open job, whose first task has this index."""
    return {"PK": f"TENANT#{tenant}#JOB#{job_id}", "SK": f"{BATCH_SK_PREFIX}{first_index:012d}"}


def idempotency_key(tenant: str, key: str) -> dict[str, str]:
    """The key of the item of a request with an `Idempotency-Key`."""
    return {"PK": f"TENANT#{tenant}#IDEMPOTENCY#{key}", "SK": IDEMPOTENCY_SK}


def api_key_key(sha256: str) -> dict[str, str]:
    """The key of the item of the API key with this hash."""
    return {"PK": f"APIKEY#{sha256}", "SK": API_KEY_SK}


def export_key(run_id: str, export_id: str) -> dict[str, str]:
    """The key of an export's item."""
    return {"PK": f"RUN#{run_id}", "SK": f"{EXPORT_SK_PREFIX}{export_id}"}


def webhook_key(run_id: str, event_id: str) -> dict[str, str]:
    """The key of the item of a webhook's delivery."""
    return {"PK": f"RUN#{run_id}", "SK": f"{WEBHOOK_SK_PREFIX}{event_id}"}


def job_manifest_key(job_id: str, run_id: str) -> str:
    """S3 key of the manifest of a job's run. Creating it submits nothing, unlike an object under `manifests/`."""
    return f"{JOBS_PREFIX}{job_id}/manifest-{run_id}.json"


def batches_prefix(job_id: str) -> str:
    """Prefix of the lists of an open job."""
    return f"{JOBS_PREFIX}{job_id}/batches/"


def batch_list_key(job_id: str, first_index: int) -> str:
    """S3 key of the list of a batch. The keys sort in the order of the indices."""
    return f"{batches_prefix(job_id)}{first_index:012d}.jsonl"


def rejects_key(job_id: str, run_id: str) -> str:
    """S3 key of the lines that ingestion rejected, as JSON Lines with line number and reason."""
    return f"{JOBS_PREFIX}{job_id}/rejects-{run_id}.jsonl"


def upload_key(tenant: str, upload_id: str) -> str:
    """S3 key of a list or a cube that a tenant uploads."""
    return f"{UPLOADS_PREFIX}{tenant}/{upload_id}"


def upload_item_key(tenant: str, upload_id: str) -> dict[str, str]:
    """The key of the item of an upload."""
    return {"PK": f"TENANT#{tenant}#UPLOAD#{upload_id}", "SK": UPLOAD_SK}


def export_object_key(run_id: str, export_id: str, suffix: Literal["zip", "parquet"]) -> str:
    """S3 key of an export."""
    return f"{EXPORTS_PREFIX}{run_id}/{export_id}.{suffix}"


#: How many of the latest requests about a run its item keeps.
MAX_RUN_REQUESTS = 20


class WebhookSecretError(ValueError):
    """A webhook's secret cannot sign."""


def signing_key(secret: str) -> bytes:
    """The bytes that a webhook's secret stands for. Raises WebhookSecretError."""
    found = _WEBHOOK_SECRET.fullmatch(secret)
    if found is None or len(found[1]) % 4 == 1:  # no number of bytes has so many letters
        raise WebhookSecretError("it is not whsec_ and base64 of 24 to 96 bytes")
    return b64decode(found[1] + "=" * (-len(found[1]) % 4))


class Webhook(Contract):
    """Where the end of a job's runs is posted to, and the secret that signs it."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    #: `whsec_` and base64, as in the Standard Webhooks specification.
    secret: Annotated[str, StringConstraints(pattern=r"^whsec_[A-Za-z0-9+/]{32,128}={0,2}$")]


class JobItem(Contract):
    """The item of a job."""

    PK: Name
    SK: Literal["JOB"] = "JOB"
    #: `TENANT#<tenant>` and `<created_at>#<job_id>`: the index of a tenant's jobs.
    GSI1_PK: Name
    GSI1_SK: Name
    tenant: Tenant
    job_id: RunId
    #: The job's name. Its runs are listed by it.
    survey: Survey
    workload: Name
    created_at: Timestamp
    #: `open`: takes batches; `closed`: its tasks are final; `deleting`: its items and objects are being removed.
    state: Annotated[str, Open("open", "closed", "deleting")] = "closed"
    closed_at: Timestamp | None = None
    deleted_at: Timestamp | None = None
    bucket: Name
    manifest_key: Key | None = None
    #: The runs of the job, the first one first.
    run_ids: list[RunId] = Field(default_factory=list)
    #: Tasks that batches have reserved. The next batch begins with this index.
    n_tasks: Count = 0
    n_batches: Count = 0
    #: Parameters of the workload, as JSON.
    params: str | None = None
    #: The upload that the job has taken, and that is deleted with the last job that has taken it.
    upload_id: Name | None = None
    tolerated_failure_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    tolerated_failures: Count | None = None
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    priority: Annotated[int, Field(ge=1, le=9)] | None = None
    deadline_at: Timestamp | None = None
    webhook: Webhook | None = None
    traceparent: str | None = None


class RunRequest(Contract):
    """Something that a person asked of a run over HTTP. Another service carries it out."""

    name: Annotated[str, Open("cancel", "recover", "export")]
    at: Timestamp
    #: Id of the API key.
    by: Name
    #: The recovery or the export.
    operation_id: Name | None = None


class JobRunItem(Contract):
    """The item that says which job and tenant a run belongs to. Written before anything else of the run."""

    PK: Annotated[str, StringConstraints(pattern=r"^RUN#[A-Za-z0-9_-]{1,80}$")]
    SK: Literal["RUN"] = "RUN"
    #: `TENANT#<tenant>#RUNS` and `<created_at>#<run_id>`: the index of a tenant's runs.
    GSI1_PK: Name
    GSI1_SK: Name
    tenant: Tenant
    job_id: RunId
    #: The job's name.
    survey: Survey
    workload: Name
    created_at: Timestamp
    #: Id of the API key of whoever submitted it.
    submitted_by: Name | None = None
    #: What people asked for over HTTP, the earliest first. At most MAX_RUN_REQUESTS.
    requests: list[RunRequest] = Field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.PK.removeprefix("RUN#")

    @property
    def cancel_requested_at(self) -> str | None:
        """When its cancellation was last requested over HTTP."""
        return max((each.at for each in self.requests if each.name == "cancel"), default=None)


class BatchItem(Contract):
    """The item of a batch of an open job. Written in the transaction that reserves its indices."""

    PK: Name
    SK: Annotated[str, StringConstraints(pattern=r"^BATCH#[0-9]{12}$")]
    idempotency_key: Name
    first_index: Count
    count: Annotated[int, Field(ge=1, le=1000)]
    #: Hash of the request's body.
    request_sha256: Sha256
    created_at: Timestamp


class IdempotencyItem(Contract):
    """The item of a request with an `Idempotency-Key`. The same key with another body is a conflict."""

    PK: Name
    SK: Literal["IDEMPOTENCY"] = "IDEMPOTENCY"
    tenant: Tenant
    #: Method and path of the request.
    operation: Name
    #: Hash of the request's body.
    request_sha256: Sha256
    job_id: RunId
    run_id: RunId | None = None
    #: The first index of a batch.
    first_index: Count | None = None
    created_at: Timestamp
    expires_at: EpochSeconds | None = None


class ApiKeyItem(Contract):
    """The item of an API key, under the hash of the key. The key itself is stored nowhere."""

    PK: Annotated[str, StringConstraints(pattern=r"^APIKEY#[0-9a-f]{64}$")]
    SK: Literal["APIKEY"] = "APIKEY"
    tenant: Tenant
    #: Identifies the key in lists and logs.
    key_id: Name
    name: Name
    scopes: Annotated[list[Annotated[str, Open(*get_args(Scope))]], Field(min_length=1)]
    created_at: Timestamp
    revoked_at: Timestamp | None = None


class UploadItem(Contract):
    """The item of an upload. Absent for an upload of an earlier release, which no deletion removes."""

    PK: Name
    SK: Literal["UPLOAD"] = "UPLOAD"
    #: The jobs that have taken the upload and were not deleted. Absent: none.
    job_ids: Annotated[frozenset[RunId], Field(strict=False)] | None = None
    #: The upload is being deleted, and no job may take it.
    deleted_at: Timestamp | None = None
    #: Absent once a job has taken the upload.
    expires_at: EpochSeconds | None = None


class TenantItem(Contract):
    """The item of a tenant, from its first key on. Its folder below each prefix of sources belongs to it alone."""

    PK: Literal["TENANTS"] = "TENANTS"
    SK: Tenant

    @property
    def tenant(self) -> str:
        return self.SK


class ExportItem(Contract):
    """The item of an export: its request, its progress, and what a resumed upload needs."""

    PK: Name
    SK: Name
    status: Annotated[str, Open("PENDING", "RUNNING", "COMPLETED", "FAILED")] = "PENDING"
    tenant: Tenant | None = None
    requested_by: Name | None = None
    requested_at: Timestamp
    started_at: Timestamp | None = None
    updated_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    error: str | None = None
    #: Key of the export's object, once the export is complete.
    key: Key | None = None
    bytes: Count | None = None
    #: Entries to write, and those that the finished parts hold.
    entries_total: Count | None = None
    entries: Count = 0
    #: The multipart upload, and the ETags of its finished parts in order.
    upload_id: str | None = None
    etags: list[str] = Field(default_factory=list)
    #: The state of the writer after the last finished part, as JSON or as the key of an object.
    writer: str | None = None
    #: The process that holds the lease of the export, and the end of the lease.
    owner: str | None = None
    leased_until: Timestamp | None = None
    expires_at: EpochSeconds | None = None


class WebhookItem(Contract):
    """The item of a webhook's delivery: one event to one target."""

    PK: Name
    SK: Name
    status: Annotated[str, Open("PENDING", "DELIVERED", "FAILED")] = "PENDING"
    job_id: RunId
    tenant: Tenant
    event_type: Name
    attempts: Count = 0
    first_attempt_at: Timestamp | None = None
    last_attempt_at: Timestamp | None = None
    delivered_at: Timestamp | None = None
    #: Status of the target's latest answer, and why the latest attempt failed.
    http_status: Annotated[int, Field(ge=100, le=599)] | None = None
    last_error: str | None = None
    expires_at: EpochSeconds | None = None
