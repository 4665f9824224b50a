"""Submitting jobs: `POST /v1/jobs`, and the tasks that are written and enqueued in a request.

Every id is derived from the tenant and the `Idempotency-Key`, and every step can be repeated. So a repeated request
completes one that was cut off at any step, and twenty repeats at once make one job.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from pydantic import ValidationError

from prismline_api.dependencies import Dependencies
from prismline_api.manifests import (
    Path,
    check_keys,
    check_url,
    check_urls,
    key_reused,
    manifest_of,
    named_keys,
    params_given,
    path_of,
    request_hash,
    uploaded_list,
)
from prismline_api.models import AnyJob, CaptionsJob, FunctionJob, SpectraJob, UrlsJob
from prismline_api.uploads import find_upload, keep_upload
from prismline_api.workloads import check_function, item_source
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.captions import CaptionsManifest
from prismline_contracts.commands import JobIngest, Queue, TasksProcess
from prismline_contracts.envelope import Envelope, traceparent_of
from prismline_contracts.events import RunSubmitted
from prismline_contracts.item_sources import UploadedItems
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import (
    IdempotencyItem,
    JobItem,
    JobRunItem,
    Webhook,
    idempotency_key,
    job_key,
    job_manifest_key,
    job_run_key,
    tenant_key,
    tenant_runs_key,
    upload_key,
)
from prismline_contracts.manifest import Manifest, SpectraManifest
from prismline_contracts.pools import in_pool
from prismline_contracts.tasks import TaskList, UrlParams, UrlsManifest
from prismline_contracts.workloads import FunctionManifest
from prismline_http.auth import Caller
from prismline_http.problems import conflict, invalid
from prismline_ledger import NewRun, Tolerance
from prismline_runtime import Bucket, Transport, batches, describe_invalid, fault_point

#: Tasks in one message if a request enqueues them. Short messages spread a small run over workers.
TASKS_PER_MESSAGE = 25
#: After this many seconds a request has been answered or cut off: functions and gateways allow 30.
LONGEST_REQUEST_SECONDS = 120
#: How long an idempotency key is remembered, in seconds: 90 days.
KEY_SECONDS = 90 * 86_400
#: Random bytes of a webhook's secret.
WEBHOOK_SECRET_BYTES = 32
#: The manifest of each workload that is a part of the services.
MANIFESTS: dict[str, type[Manifest]] = {
    "urls": UrlsManifest,
    "spectra": SpectraManifest,
    "captions": CaptionsManifest,
}
#: The operation of an idempotency key that submitted a job.
SUBMIT = "POST /v1/jobs"


@dataclass(frozen=True)
class Submitted:
    """A job that was submitted, now or by an earlier request with the same key."""

    job: JobItem
    run: JobRunItem
    path: Path
    replayed: bool


def submit(
    request: AnyJob,
    caller: Caller,
    key: str | None,
    traceparent: str | None,
    deps: Dependencies,
) -> Submitted:
    """Create the job and start its run, or complete an earlier request with the same key.

    Raises ProblemError if the key was used for another request or the job cannot be started.
    """
    digest = request_hash(request)
    path = path_of(request, deps.settings.inline_tasks)
    known = deps.store.idempotency(caller.tenant, key) if key else None
    if known is None:
        manifest, job, run = _prepared(request, caller, key, traceparent, deps)
        if key is None and manifest is not None:
            _see_to_its_start(job, run, manifest, deps)
        asked = None if key is None else idempotency_item(key, SUBMIT, digest, run, deps.clock())
        if job.upload_id is not None:
            keep_upload(job.tenant, job.upload_id, deps)
        if deps.store.create_job(job, run, asked):
            fault_point("api.job_created", run_id=run.run_id)
            _start(path, job, run, manifest, deps, stored=key is None)
            return Submitted(job, run, path, replayed=False)
        known = deps.store.idempotency(caller.tenant, key) if key else None
        if known is None:
            _check_sources(request, caller.tenant, deps)  # the upload may have been deleted in the meantime
    check_repeated(known, SUBMIT, digest)
    assert known is not None, "check_repeated refuses a key that is not there"
    return _repeated(known, request, path, caller, deps)


def _prepared(
    request: AnyJob,
    caller: Caller,
    key: str | None,
    traceparent: str | None,
    deps: Dependencies,
) -> tuple[Manifest | None, JobItem, JobRunItem]:
    """The items and the manifest of a new job. Raises ProblemError if the job cannot be started."""
    task_list = _check_sources(request, caller.tenant, deps)
    moment = deps.clock()
    if request.max_concurrency is not None and not deps.with_slots:
        raise invalid(
            "This deployment cannot keep max_concurrency: it has no Valkey server, which counts the slots of a run."
            " Leave max_concurrency out."
        )
    if request.deadline_at is not None and datetime.fromisoformat(request.deadline_at) <= moment:
        raise invalid("deadline_at has passed. Give a later time, or none.")
    pool = request.pool if isinstance(request, FunctionJob) else None
    run_id = in_pool(derived_id("run", caller.tenant, key) if key else str(uuid4()), pool)
    job_id = derived_id("job", caller.tenant, key) if key else str(uuid4())
    created_at = timestamp(moment)
    path = path_of(request, deps.settings.inline_tasks)
    target = request.webhook
    job = JobItem(
        PK=job_key(caller.tenant, job_id)["PK"],
        GSI1_PK=tenant_key(caller.tenant),
        GSI1_SK=f"{created_at}#{job_id}",
        tenant=caller.tenant,
        job_id=job_id,
        survey=request.name,
        workload=request.workload,
        created_at=created_at,
        state="open" if path is Path.OPEN else "closed",
        closed_at=None if path is Path.OPEN else created_at,
        bucket=deps.bucket.name,
        manifest_key=job_manifest_key(job_id, run_id),
        run_ids=[run_id],
        params=json.dumps(params_given(request)),
        upload_id=_managed_upload(request, caller.tenant, deps),
        tolerated_failure_percent=request.tolerated_failure_percent,
        tolerated_failures=request.tolerated_failures,
        max_concurrency=request.max_concurrency,
        priority=request.priority,
        deadline_at=request.deadline_at,
        webhook=Webhook(url=target.url, secret=target.secret or _webhook_secret()) if target else None,
        traceparent=traceparent or traceparent_of(run_id),
    )
    run = job_run_item(job, run_id, created_at, caller.key_id)
    if path is Path.OPEN:
        return None, job, run
    return _manifest_of(job, request, task_list, deps), job, run


def _manifest_of(job: JobItem, request: AnyJob, task_list: TaskList | None, deps: Dependencies) -> Manifest:
    """The manifest of the job's first run. Raises ProblemError (422)."""
    uploaded = _uploaded(request, job.tenant)
    if not isinstance(request, FunctionJob):
        return manifest_of(job, request, upload_key=uploaded, task_list=task_list)
    code = check_function(request, job.tenant, deps).code
    items = item_source(request, job.tenant, deps)
    return manifest_of(job, request, upload_key=None, task_list=None, items=items, code=code)


def _check_sources(request: AnyJob, tenant: str, deps: Dependencies) -> TaskList | None:
    """Check that the objects of the request exist and may be used. Return the uploaded list, if it names one."""
    if request.webhook is not None:
        check_url(request.webhook.url, "webhook.url")
    if isinstance(request, UrlsJob):
        check_urls(request.urls or ())
    elif isinstance(request, SpectraJob | CaptionsJob):
        check_keys(named_keys(request), deps.sources(tenant))
    upload_id = _upload_id(request)
    if upload_id is not None:
        head = find_upload(tenant, upload_id, deps)
        return uploaded_list(upload_key(tenant, upload_id), head) if isinstance(request, UrlsJob) else None
    if isinstance(request, SpectraJob) and request.cube_key and deps.head(request.cube_key) is None:
        raise invalid(f"There is no object {request.cube_key!r} in the bucket. Put the cube there first.")
    return None


def _webhook_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(WEBHOOK_SECRET_BYTES)).decode()}"


def _repeated(
    known: IdempotencyItem,
    request: AnyJob,
    path: Path,
    caller: Caller,
    deps: Dependencies,
) -> Submitted:
    """Complete the first request with the key, in case it was cut off."""
    job = deps.store.job(caller.tenant, known.job_id)
    run = deps.store.run(caller.tenant, known.run_id or "")
    if job is None or run is None or job.state == "deleting":
        raise conflict("job-deleted", "This Idempotency-Key submitted a job that was deleted. Use a new key.")
    if path is not Path.OPEN and not is_started(run, deps):
        _start(path, job, run, _manifest_again(request, job, run, deps), deps)
    return Submitted(job, run, path, replayed=True)


def _manifest_again(request: AnyJob, job: JobItem, run: JobRunItem, deps: Dependencies) -> Manifest:
    """The manifest that the first request wrote, or would have written."""
    if deps.head(job_manifest_key(job.job_id, run.run_id)) is not None:
        return stored_manifest(job, run.run_id, deps.bucket)
    return _manifest_of(job, request, _check_sources(request, job.tenant, deps), deps)


def _uploaded(request: AnyJob, tenant: str) -> str | None:
    """The key of the upload that a request names."""
    upload_id = _upload_id(request)
    return upload_key(tenant, upload_id) if upload_id is not None else None


def _upload_id(request: AnyJob) -> str | None:
    if isinstance(request, FunctionJob):
        return request.source.upload if isinstance(request.source, UploadedItems) else None
    return None if isinstance(request, CaptionsJob) else request.upload


def _managed_upload(request: AnyJob, tenant: str, deps: Dependencies) -> str | None:
    """The id of the upload that the job takes. None for an upload of an earlier release, which has no item."""
    upload_id = _upload_id(request)
    return upload_id if upload_id is not None and deps.store.upload(tenant, upload_id) is not None else None


def is_started(run: JobRunItem, deps: Dependencies) -> bool:
    """Whether the run has a status: then the status service has received its `run.submitted`."""
    return deps.states.get({"run_id": run.run_id}) is not None


def _see_to_its_start(job: JobItem, run: JobRunItem, manifest: Manifest, deps: Dependencies) -> None:
    """Send a delayed `job.ingest`, so that the run starts even if this request is cut off after the job is written.

    A client cannot repeat a request that has no key. If the request is completed, the splitter only announces the run
    once more.
    """
    put_manifest(manifest, run, deps.bucket)
    fault_point("api.manifest_written_first", run_id=run.run_id)
    ingest(job, run, deps.transport, in_advance=True)
    fault_point("api.start_seen_to", run_id=run.run_id)


def _start(
    path: Path,
    job: JobItem,
    run: JobRunItem,
    manifest: Manifest | None,
    deps: Dependencies,
    *,
    stored: bool = False,
) -> None:
    """Start the run. stored: whether its manifest is written already."""
    if manifest is None:
        return
    if not stored:
        manifest = put_manifest(manifest, run, deps.bucket)
    fault_point("api.manifest_written", run_id=run.run_id)
    if path is Path.INLINE and isinstance(manifest, UrlsManifest) and manifest.urls:
        opened = open_task_run(job, run, deps, manifest_key=job_manifest_key(job.job_id, run.run_id))
        if opened.latched_at is None:
            messages = add_tasks(job, opened, 0, manifest.urls, deps, total=len(manifest.urls))
            deps.transport.send(Queue.TASKS, messages)
            fault_point("api.tasks_sent", run_id=run.run_id)
            deps.ledger.latch(run.run_id)
            fault_point("api.latched", run_id=run.run_id)
        announce(job, run, deps)
    else:
        ingest(job, run, deps.transport)
    deps.logger.info("job_submitted", extra={"run_id": run.run_id, "job_id": job.job_id, "path": path})


def put_manifest(manifest: Manifest, run: JobRunItem, bucket: Bucket) -> Manifest:
    """Write the manifest of a run, unless it is there. Return the one that is there."""
    key = job_manifest_key(run.job_id, run.run_id)
    if bucket.create(key, manifest.model_dump_json(exclude_none=True, exclude_unset=True, by_alias=True).encode()):
        return manifest
    return type(manifest).model_validate_json(bucket.read(key))


def stored_manifest(job: JobItem, run_id: str, bucket: Bucket) -> Manifest:
    """The manifest of a run. Raises ProblemError (409) if this release refuses what an older one accepted."""
    body = bucket.read(job_manifest_key(job.job_id, run_id))
    try:
        return MANIFESTS.get(job.workload, FunctionManifest).model_validate_json(body)
    except ValidationError as error:
        raise conflict(
            "manifest-invalid",
            f"This release does not accept the job's manifest: {describe_invalid(error)}. Submit a new job.",
        ) from error


def open_task_run(
    job: JobItem, run: JobRunItem, deps: Dependencies, *, shard_count: int = 1, manifest_key: str | None
) -> RunItem:
    """Open a run of tasks in the ledger, if it is not open. Return the run."""
    return deps.ledger.open_run(
        NewRun(
            run_id=run.run_id,
            survey=job.survey,
            job_id=job.job_id,
            workload=job.workload,
            params=UrlParams.model_validate_json(job.params or "{}").model_dump_json(exclude_none=True),
            params_given=job.params,
            traceparent=job.traceparent,
            manifest_key=manifest_key,
            unit="task",
            shard_count=shard_count,
            tenant=job.tenant,
            priority=job.priority,
            max_concurrency=job.max_concurrency,
            deadline_at=job.deadline_at,
            tolerance=Tolerance(float(job.tolerated_failure_percent), job.tolerated_failures),
        )
    )


def add_tasks(
    job: JobItem, run: RunItem, first_index: int, urls: Sequence[str], deps: Dependencies, *, total: int | None = None
) -> list[Envelope]:
    """Write the items of tasks, and set the run's total if it is known. Return the messages that enqueue them.

    A task at which an attempt has begun was enqueued by an earlier request.
    """
    added = deps.ledger.add_tasks(run, first_index, urls)
    fault_point("api.tasks_added", run_id=run.run_id)
    if total is not None:
        deps.ledger.set_task_total(run.run_id, [total])
        fault_point("api.total_set", run_id=run.run_id)
    return [
        deps.transport.wrap(TasksProcess.of(run, batch, job.bucket), traceparent=job.traceparent, key=(batch[0],))
        for _, ids in sorted(added.to_send.items())
        for batch in batches(ids, TASKS_PER_MESSAGE)
    ]


def ingest(job: JobItem, run: JobRunItem, transport: Transport, *, in_advance: bool = False) -> None:
    """Send `job.ingest`, with which the splitter starts the run. in_advance: delayed until the request must be over."""
    command = JobIngest(
        run_id=run.run_id,
        job_id=job.job_id,
        bucket=job.bucket,
        manifest_key=job_manifest_key(job.job_id, run.run_id),
        in_advance=in_advance,
    )
    message = transport.wrap(command, traceparent=job.traceparent, key=("in advance",) if in_advance else ())
    transport.send(Queue.SPLIT, [message], delay_seconds=LONGEST_REQUEST_SECONDS if in_advance else 0)


def announce(job: JobItem, run: JobRunItem, deps: Dependencies) -> None:
    """Publish `run.submitted`, which starts the run's state machine. A repeat has the same event id."""
    submitted = RunSubmitted(
        run_id=run.run_id,
        job_id=job.job_id,
        bucket=job.bucket,
        manifest_key=job_manifest_key(job.job_id, run.run_id),
        survey=job.survey,
        workload=job.workload,
        tolerated_failure_percent=float(job.tolerated_failure_percent),
        tolerated_failures=job.tolerated_failures,
    )
    deps.transport.publish_event(submitted, traceparent=job.traceparent)


def job_run_item(job: JobItem, run_id: str, created_at: str, submitted_by: str | None = None) -> JobRunItem:
    """The item that names the job and the tenant of a run. submitted_by: the key of whoever submits it now."""
    return JobRunItem(
        PK=job_run_key(run_id)["PK"],
        GSI1_PK=tenant_runs_key(job.tenant),
        GSI1_SK=f"{created_at}#{run_id}",
        tenant=job.tenant,
        job_id=job.job_id,
        survey=job.survey,
        workload=job.workload,
        created_at=created_at,
        submitted_by=submitted_by,
    )


def idempotency_item(
    key: str, operation: str, digest: str, run: JobRunItem, moment: datetime, *, first_index: int | None = None
) -> IdempotencyItem:
    """The item that records the request with a key. run: the run that it made or to which it added."""
    return IdempotencyItem(
        PK=idempotency_key(run.tenant, key)["PK"],
        tenant=run.tenant,
        operation=operation,
        request_sha256=digest,
        job_id=run.job_id,
        run_id=run.run_id,
        first_index=first_index,
        created_at=timestamp(moment),
        expires_at=int(moment.timestamp()) + KEY_SECONDS,
    )


def check_repeated(known: IdempotencyItem | None, operation: str, digest: str) -> None:
    """Check that `known` records the same operation with the same body. Raises ProblemError (409)."""
    if known is None:
        raise key_reused("an older job")
    if known.operation != operation:
        raise key_reused(f"another request, {known.operation}")
    if known.request_sha256 != digest:
        raise key_reused("a request with another body")
