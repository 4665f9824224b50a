"""Open jobs: they take tasks in batches until they are closed.

A batch reserves its range of indices in the transaction that writes its item and its `Idempotency-Key`. So batches that
arrive at the same time never share an index, and a repeated batch gets the range that it had.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from random import random
from uuid import uuid4

from prismline_api.dependencies import Dependencies
from prismline_api.manifests import check_urls, common_fields, request_hash
from prismline_api.models import Batch, BatchRequest
from prismline_api.reading import find_job
from prismline_api.submission import (
    add_tasks,
    check_repeated,
    idempotency_item,
    ingest,
    is_started,
    job_run_item,
    open_task_run,
)
from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.jobs import (
    BATCH_SK_PREFIX,
    BatchItem,
    IdempotencyItem,
    JobItem,
    JobRunItem,
    batch_key,
    batch_list_key,
    batches_prefix,
    job_manifest_key,
)
from prismline_contracts.tasks import TaskBatches, UrlsManifest
from prismline_http.auth import Caller
from prismline_http.problems import conflict
from prismline_runtime import TransientError, aws_errors, fault_point

#: Shards of the run of an open job, whose number of tasks is not known in advance.
SHARD_COUNT = 16
#: How long a batch competes with others for its range of indices, in seconds, and the longest wait between two tries.
RESERVE_SECONDS, LONGEST_WAIT_SECONDS = 10.0, 0.1


def add_batch(request: BatchRequest, job_id: str, caller: Caller, key: str | None, deps: Dependencies) -> Batch:
    """Add tasks to an open job, or complete an earlier request with the same key.

    Raises ProblemError (404, 409, 422).
    """
    check_urls(request.urls)
    name = f"{job_id}:{key or uuid4()}"
    operation, digest = f"POST /v1/jobs/{job_id}/tasks", request_hash(request)
    job, first_index = _reserved(request, find_job(caller, job_id, deps), name, operation, digest, deps)
    run = job_run_item(job, job.run_ids[0], job.created_at)
    fault_point("api.batch_reserved", run_id=run.run_id)
    if job.state == "open":
        lines = "".join(json.dumps({"url": url}) + "\n" for url in request.urls)
        deps.bucket.create(batch_list_key(job_id, first_index), lines.encode())
        fault_point("api.batch_stored", run_id=run.run_id)
        # Without manifest_key, because there is no manifest yet: so the sweeper leaves the open job alone.
        opened = open_task_run(job, run, deps, shard_count=SHARD_COUNT, manifest_key=None)
        messages = add_tasks(job, opened, first_index, request.urls, deps)
        deps.transport.send(Queue.TASKS, messages)
    return Batch(
        job_id=job_id, run_id=run.run_id, first_index=first_index, count=len(request.urls), n_tasks=job.n_tasks
    )


def _reserved(
    request: BatchRequest, job: JobItem, name: str, operation: str, digest: str, deps: Dependencies
) -> tuple[JobItem, int]:
    """The job, and the first index of the batch. Raises ProblemError (409) if the job takes no more tasks."""
    deadline = time.monotonic() + RESERVE_SECONDS
    while True:
        known = deps.store.idempotency(job.tenant, name)
        if known is not None:
            check_repeated(known, operation, digest)
            return job, known.first_index or 0
        _check_open(job)
        moment = deps.clock()
        batch, asked = _batch_items(request, job, name, operation, digest, moment)
        if deps.store.reserve(job, batch, asked):
            return job.model_copy(update={"n_tasks": job.n_tasks + batch.count}), batch.first_index
        if time.monotonic() > deadline:
            raise TransientError(f"Job {job.job_id} receives too many batches at the same time.")
        time.sleep(LONGEST_WAIT_SECONDS * random())
        job = deps.store.job(job.tenant, job.job_id) or job


def _check_open(job: JobItem) -> None:
    if job.state != "open":
        raise conflict("job-not-open", f"The job is {job.state} and takes no more tasks. Submit a new job for them.")


def _batch_items(
    request: BatchRequest, job: JobItem, name: str, operation: str, digest: str, moment: datetime
) -> tuple[BatchItem, IdempotencyItem]:
    first_index, run = job.n_tasks, job_run_item(job, job.run_ids[0], job.created_at)
    key = batch_key(job.tenant, job.job_id, first_index)
    batch = BatchItem(
        PK=key["PK"],
        SK=key["SK"],
        idempotency_key=name,
        first_index=first_index,
        count=len(request.urls),
        request_sha256=digest,
        created_at=timestamp(moment),
    )
    return batch, idempotency_item(name, operation, digest, run, moment, first_index=first_index)


def close_job(job: JobItem, deps: Dependencies) -> JobItem:
    """Close an open job: its tasks are final. A repeat completes a request that was cut off.

    Raises ProblemError (409) if the job was never open, is being deleted, or has a batch that was not stored.
    """
    run = job_run_item(job, job.run_ids[0], job.created_at)
    while job.state == "open":
        _check_stored(job, deps)
        _write_manifest(job, run, deps)
        fault_point("api.close_manifest_written", run_id=run.run_id)
        sets = {"state": "closed", "closed_at": timestamp(deps.clock())}
        closed = deps.store.change_job(job, sets, "n_tasks")
        if closed is not None:
            fault_point("api.job_closed", run_id=run.run_id)
            ingest(closed, run, deps.transport)
            return closed
        job = deps.store.job(job.tenant, job.job_id) or job.model_copy(update={"state": "deleting"})
    if job.state == "deleting" or job.closed_at == job.created_at:
        raise conflict("job-not-open", "The job is not open: it cannot be closed.")
    if not is_started(run, deps):
        _write_manifest(job, run, deps)
        ingest(job, run, deps.transport)
    return job


def _check_stored(job: JobItem, deps: Dependencies) -> None:
    """Check that the lists of all batches are stored. Raises ProblemError (409) if a request was cut off before."""
    prefix = batches_prefix(job.job_id)
    with aws_errors(f"list s3://{deps.bucket.name}/{prefix}"):
        pages = deps.s3.get_paginator("list_objects_v2").paginate(Bucket=deps.bucket.name, Prefix=prefix)
        stored = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
    for batch in deps.store.batches(job.tenant, job.job_id):
        if batch_list_key(job.job_id, int(batch.SK.removeprefix(BATCH_SK_PREFIX))) not in stored:
            key = batch.idempotency_key.partition(":")[2]
            raise conflict(
                "batch-incomplete",
                f"The batch with the Idempotency-Key {key} was cut off before it was stored. Send it again with that"
                " key, then close the job.",
            )


def _write_manifest(job: JobItem, run: JobRunItem, deps: Dependencies) -> None:
    manifest = UrlsManifest.model_validate(
        common_fields(job)
        | {
            "params": json.loads(job.params or "{}"),
            "batches": TaskBatches(prefix=batches_prefix(job.job_id), count=job.n_tasks),
        }
    )
    body = manifest.model_dump_json(exclude_none=True, by_alias=True).encode()
    deps.bucket.write(job_manifest_key(job.job_id, run.run_id), body)
