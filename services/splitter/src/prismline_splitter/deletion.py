"""Deletes a job in the background: cancels its runs, waits for their end, then deletes items and objects.

Every step may be repeated: it deletes what is left. The job's item is deleted last, so the job is shown as `deleting`
until nothing else of it is left. Its upload is deleted unless another job has taken it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from boto3.dynamodb.conditions import Attr, Key

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.events import JobDeleteRequested, RunCancelRequested
from prismline_contracts.items import RunItem
from prismline_contracts.jobs import JOB_SK, job_key, job_run_key, upload_item_key, upload_key
from prismline_contracts.objects import manifest_copy_key, output_prefix
from prismline_contracts.prefixes import CAPTIONS_PREFIX, EXPORTS_PREFIX, JOBS_PREFIX, RESULTS_PREFIX
from prismline_ledger import seconds_since
from prismline_runtime import Change, ConditionFailedError, Message, batches, fault_point
from prismline_splitter.dependencies import Dependencies

#: Seconds until a deletion checks again whether its runs have ended.
LOOK_AGAIN_SECONDS = 15
#: After this time, in seconds, a deletion no longer waits for the end of its runs.
PATIENCE_SECONDS = 3600.0
#: Number of times that a deletion is made, and the seconds between two of them. Processes that were busy when their run
#: was cancelled, or that stood still, may have written since.
PASSES, PASS_SECONDS = 5, 900
#: Seconds of an invocation that are reserved for sending the deletion's message again.
MARGIN_SECONDS = 60.0
#: How long the item of a deleted upload is kept, in seconds: a day. Its presigned URL is valid for an hour.
DELETED_UPLOAD_SECONDS = 86_400
#: Objects that are deleted together.
OBJECTS_BATCH = 1000

#: Attribute of a message: how often the deletion has been made.
_PASSES = "passes"


def on_job_delete(request: JobDeleteRequested, message: Message, deps: Dependencies) -> None:
    """Cancel the job's runs, and delete them when they have ended. A redelivery deletes what is left."""
    deadline = message.delivery.deadline(MARGIN_SECONDS)
    runs = deps.ledger.find_runs(request.run_ids)
    unannounced = [run_id for run_id, run in runs.items() if _is_unannounced(run)]
    for run_id in unannounced:
        deps.ledger.stop_run(run_id, "cancelled")
    going = [run_id for run_id, run in runs.items() if run.ended_at is None and run_id not in unannounced]
    for run_id in going:
        _cancel(run_id, message, deps)
    fault_point("delete.cancelled", job_id=request.job_id)
    waited = seconds_since(message.envelope.time, now())
    if going and waited < PATIENCE_SECONDS:
        deps.transport.send(Queue.SPLIT, [message.envelope], delay_seconds=LOOK_AGAIN_SECONDS)
        return
    for run_id in request.run_ids:
        if run_id not in runs:  # it may be opened later: it is then stopped already, and its manifest is gone
            deps.ledger.stop_run(run_id, "cancelled")
    n_deleted = 0
    for count in _deletions(request, runs, deps):
        n_deleted += count
        if time.monotonic() >= deadline:
            deps.transport.send(Queue.SPLIT, [message.envelope])
            return
    deps.logger.info("job_deleted", extra={"job_id": request.job_id, "deleted": n_deleted})
    passes = int(message.delivery.attributes.get(_PASSES, "0")) + 1
    if passes < PASSES:
        again = (message.envelope.to_json(), {_PASSES: str(passes)})
        deps.transport.send_back(Queue.SPLIT, [again], delay_seconds=PASS_SECONDS)


def _is_unannounced(run: RunItem) -> bool:
    """Whether no status service knows the run: that of an open job is announced when the job is closed."""
    return run.unit == "task" and run.manifest_key is None and run.ended_at is None


def _cancel(run_id: str, message: Message, deps: Dependencies) -> None:
    """Ask the status service to cancel the run. The service ignores the request if the run is cancelled already."""
    request = RunCancelRequested(run_id=run_id, requested_at=timestamp())
    deps.transport.publish_event(request, traceparent=message.envelope.traceparent, key=("delete",))


def _deletions(request: JobDeleteRequested, runs: dict[str, RunItem], deps: Dependencies) -> Iterator[int]:
    """Delete everything of the job, page by page. Yields the number of items or objects of each page."""
    for run_id in request.run_ids:
        surveys = [runs[run_id].survey] if run_id in runs else []
        yield from _objects(run_prefixes(run_id, surveys), deps)
        fault_point("delete.objects_deleted", run_id=run_id)
        if run_id in runs:
            yield from deps.ledger.delete_run(runs[run_id])
        else:  # an ingestion that was busy when the run was deleted may have written tasks since
            yield from deps.ledger.delete_leftovers(run_id)
        fault_point("delete.items_deleted", run_id=run_id)
    yield from _objects([f"{JOBS_PREFIX}{request.job_id}/"], deps)
    fault_point("delete.job_objects_deleted", job_id=request.job_id)
    yield from _upload(request.tenant, request.job_id, deps)
    for run_id in request.run_ids:  # the api does not show a job whose latest run has no item
        yield from _jobs_items(job_run_key(run_id)["PK"], deps)
    yield from _jobs_items(job_key(request.tenant, request.job_id)["PK"], deps)


def _upload(tenant: str, job_id: str, deps: Dependencies) -> Iterator[int]:
    """Delete the upload of the job, unless another job has taken it. An upload of an earlier release has no item.

    The item of the upload stays for a while, so that no job takes a file that is sent again under the same key.
    """
    upload_id = (deps.jobs.get(job_key(tenant, job_id)) or {}).get("upload_id")
    if upload_id is None:
        return
    key = upload_item_key(tenant, upload_id)
    try:
        deps.jobs.update(key, Change(excludes={"job_ids": {job_id}}, condition=Attr("PK").exists()))
        fault_point("delete.upload_released", job_id=job_id)
        deleted = {"deleted_at": timestamp(), "expires_at": int(now().timestamp()) + DELETED_UPLOAD_SECONDS}
        deps.jobs.update(key, Change(deleted, condition=Attr("job_ids").not_exists()))
    except ConditionFailedError:  # another job has taken it
        return
    fault_point("delete.upload_marked", job_id=job_id)
    yield deps.bucket.delete([upload_key(tenant, upload_id)])
    fault_point("delete.upload_deleted", job_id=job_id)


def run_prefixes(run_id: str, surveys: Iterable[str]) -> Iterator[str]:
    """The prefixes of all objects that belong only to this run. surveys: the run's survey, if it is known."""
    yield manifest_copy_key(run_id).removesuffix("manifest.json")
    yield f"{RESULTS_PREFIX}{run_id}/"
    yield f"{EXPORTS_PREFIX}{run_id}/"
    for survey in surveys:
        yield output_prefix(survey, run_id)
        yield f"{CAPTIONS_PREFIX}session={survey}/run={run_id}/"


def _objects(prefixes: Iterable[str], deps: Dependencies) -> Iterator[int]:
    for prefix in prefixes:
        for page in batches(deps.bucket.list(prefix), OBJECTS_BATCH):
            yield deps.bucket.delete(page)


def _jobs_items(pk: str, deps: Dependencies) -> Iterator[int]:
    """Delete a partition of the jobs table, the item of the job itself last."""
    keys = [{"PK": item["PK"], "SK": item["SK"]} for item in deps.jobs.query(Key("PK").eq(pk))]
    keys.sort(key=lambda key: key["SK"] == JOB_SK)
    for page in batches(keys, 25):
        yield deps.jobs.delete_each(page)
