"""Operations on existing jobs and runs: cancel, run again, delete, export."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

from prismline_api.dead_letters import recover
from prismline_api.dependencies import LINK_SECONDS, Dependencies
from prismline_api.manifests import check_keys, common_fields, named_keys, request_hash
from prismline_api.models import Accepted, ExportView, RecoverRequest, RerunPreview, RerunRequest
from prismline_api.open_jobs import close_job
from prismline_api.reading import AnyRun, find_job, find_run
from prismline_api.submission import (
    check_repeated,
    idempotency_item,
    ingest,
    is_started,
    job_run_item,
    put_manifest,
    stored_manifest,
)
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.captions import CaptionsManifest
from prismline_contracts.events import ExportRequested, JobDeleteRequested, RunCancelRequested
from prismline_contracts.items import RunItem, WorkflowStateItem
from prismline_contracts.jobs import (
    EXPORT_SK_PREFIX,
    ExportItem,
    JobItem,
    JobRunItem,
    RunRequest,
    export_key,
    job_manifest_key,
    upload_key,
)
from prismline_contracts.manifest import Manifest, SpectraManifest
from prismline_contracts.pools import in_pool, pool_of
from prismline_contracts.tasks import RerunOf, UrlsManifest
from prismline_contracts.workloads import FunctionManifest, is_function, unit_of
from prismline_http.auth import Caller
from prismline_http.problems import conflict, not_found
from prismline_ledger import ActionName, Counts, actions_of
from prismline_runtime import fault_point

#: How often a change of a job is tried while other requests change the job.
TRIES = 10
#: How long the item of an export is kept, in seconds: six days. The bucket deletes the object after seven
#: (`ExportDays`), and a link is valid for one.
EXPORT_SECONDS = 6 * 86_400


def cancel_run(caller: Caller, run_id: str, deps: Dependencies) -> Accepted:
    """Ask for a run to be cancelled. An open job is closed first. Raises ProblemError (404, 409)."""
    run = find_run(caller, run_id, deps)
    found = deps.states.get({"run_id": run_id})
    state = None if found is None else WorkflowStateItem.model_validate(found)
    item = deps.ledger.get_run(run_id)
    goes_on = item is not None and item.goes_on_after_cancel
    _check(ActionName.CANCEL, run, item, state.status if state else "pending", "run-ended", deps)
    job = deps.store.job(run.tenant, run.job_id) if run.tenant else None
    if job is not None and job.state == "open":
        close_job(job, deps)
    deps.store.note_request(run_id, RunRequest(name="cancel", at=timestamp(deps.clock()), by=caller.key_id))
    request = RunCancelRequested(
        run_id=run_id,
        requested_at=timestamp(deps.clock()),
        uncancelled_at=item.uncancelled_at if item is not None and goes_on else None,
    )
    deps.transport.publish_event(request, traceparent=_traceparent(job, item))
    return Accepted(requested="cancel", status_url=f"/v1/runs/{run_id}")


def _check(name: ActionName, run: AnyRun, item: RunItem | None, status: str, problem: str, deps: Dependencies) -> None:
    """Raises ProblemError (409) with the reason if the action is not allowed now."""
    counts = None if item is None else deps.ledger.counts(item)
    action = actions_of(run.run_id, item, status, counts, has_job=run.tenant is not None)[name]
    if action.reason is not None:
        raise conflict(problem, action.reason)


def _traceparent(job: JobItem | None, run: RunItem | None) -> str | None:
    """The trace of the job, or of the run: a run that was submitted without the API has no job."""
    return job.traceparent if job is not None else run.traceparent if run is not None else None


# ---- reruns


def rerun_job(
    request: RerunRequest, caller: Caller, job_id: str, key: str | None, deps: Dependencies
) -> tuple[JobItem, JobRunItem, bool]:
    """Start a new run of the job. The third value says whether an earlier request with the key has started it.

    Failed chunks belong to the output of their run, so they are tried again in that run.

    Raises ProblemError (404, 409, 422).
    """
    job = find_job(caller, job_id, deps)
    if _in_its_run(request, job):
        return job, _retry_chunks(request, caller, job, key, deps), False
    name, operation, digest = f"{job_id}:{key or uuid4()}", f"POST /v1/jobs/{job_id}/rerun", request_hash(request)
    pool = pool_of(job.run_ids[0])
    run_id = in_pool(derived_id("rerun", caller.tenant, job_id, key) if key else str(uuid4()), pool)
    for _ in range(TRIES):
        known = deps.store.idempotency(caller.tenant, name)
        if known is not None:
            check_repeated(known, operation, digest)
            known_run = deps.store.run(caller.tenant, run_id)
            if known_run is None:
                raise not_found(f"run {run_id}")
            run = known_run
            if not is_started(run, deps):
                _start_again(_manifest_again(request, job, deps), job, run, deps)
            return job, run, True
        _check_rerun(request, job, deps)
        manifest = _manifest_again(request, job, deps)
        run = job_run_item(job, run_id, timestamp(deps.clock()), caller.key_id)
        asked = idempotency_item(name, operation, digest, run, deps.clock())
        if deps.store.add_run(job, run, asked):
            fault_point("api.rerun_added", run_id=run_id)
            _start_again(manifest, job, run, deps)
            return job.model_copy(update={"run_ids": [*job.run_ids, run_id]}), run, False
        job = find_job(caller, job_id, deps)
    raise conflict("job-busy", "Other requests are changing the job. Repeat the request.")


def preview_rerun(request: RerunRequest, caller: Caller, job_id: str, deps: Dependencies) -> RerunPreview:
    """What `rerun_job` would do now. Raises ProblemError (404, 409)."""
    job = find_job(caller, job_id, deps)
    _check_rerun(request, job, deps)
    source = _source(request, job)
    run = deps.ledger.get_run(source)
    counts = None if run is None else deps.ledger.counts(run)
    return RerunPreview(
        run_id=source,
        new_run=not _in_its_run(request, job),
        unit=unit_of(job.workload),
        count=None if counts is None else _taken(request, counts),
    )


def _taken(request: RerunRequest, counts: Counts) -> int | None:
    """How many tasks or chunks a rerun takes. None: their total is not known yet."""
    if request.only == "failed":
        return counts.failed
    return counts.total if counts.total is None or request.only == "all" else counts.total - counts.completed


def _in_its_run(request: RerunRequest, job: JobItem) -> bool:
    """Whether chunks are tried again in the run that they belong to. A recovery continues what was skipped too."""
    return request.only != "all" and unit_of(job.workload) == "chunk"


def _retry_chunks(
    request: RerunRequest, caller: Caller, job: JobItem, key: str | None, deps: Dependencies
) -> JobRunItem:
    """Request a recovery that tries the failed chunks of the run again. A repeat with the key requests the same one."""
    _check_rerun(request, job, deps)
    source = _source(request, job)
    run = deps.store.run(caller.tenant, source)
    if run is None:
        raise not_found(f"run {source} of job {job.job_id}")
    recover(RecoverRequest(run_id=source, retry=True), caller, key, deps)
    return run


def _check_rerun(request: RerunRequest, job: JobItem, deps: Dependencies) -> None:
    if job.state != "closed":
        raise conflict(f"job-{job.state}", f"The job is {job.state}. A job can be run again once it is closed.")
    source = _source(request, job)
    if source not in job.run_ids:
        raise not_found(f"run {source} of job {job.job_id}")
    if request.only == "all" and unit_of(job.workload) == "chunk":
        _check_sources_again(job, deps)
        return
    run = deps.ledger.get_run(source)
    if request.only != "failed" and not _in_its_run(request, job):
        if run is None or run.latched_at is None:  # the rerun would miss the tasks that are written later
            raise conflict(
                "run-not-split",
                "Not all tasks of the run are written yet. Wait until they are, then run it again. If the run was"
                " cancelled before, submit the list again. If it failed before, `prismline retry` continues it.",
            )
        if request.only == "all":
            return
    if _in_its_run(request, job):
        if run is None or deps.ledger.counts(run).failed == 0:
            raise conflict("nothing-failed", "No chunk of the run has failed, so there is nothing to run again.")
        if run.cancelled_at is not None and run.stop_reason == "cancelled":
            raise conflict("run-cancelled", "The run was cancelled. Resume it first: `prismline retry --cancelled`.")
        return
    if run is None or (run.drained_at is None and run.ended_at is None):
        raise conflict("run-not-ended", "The run has not ended. Wait for its end, or cancel it, then run it again.")


def _source(request: RerunRequest, job: JobItem) -> str:
    """The run whose tasks are run again. Default: the first run, which had all tasks; for failed tasks the latest."""
    return request.run_id or (job.run_ids[0] if request.only == "all" else job.run_ids[-1])


def _start_again(manifest: Manifest, job: JobItem, run: JobRunItem, deps: Dependencies) -> None:
    put_manifest(manifest, run, deps.bucket)
    fault_point("api.rerun_manifest_written", run_id=run.run_id)
    ingest(job, run, deps.transport)


def _manifest_again(request: RerunRequest, job: JobItem, deps: Dependencies) -> Manifest:
    """The manifest of a rerun. Tasks are taken from the earlier run. A cube or a recording is taken in full.

    It has no deadline, because the job's deadline was for the first run. Raises ProblemError (409).
    """
    if unit_of(job.workload) == "task":
        of = RerunOf(run_id=_source(request, job), only=request.only)
        params = {"params": json.loads(job.params or "{}")}
        fields = common_fields(job) | params | {"rerun": of, "deadline_at": None}
        if not is_function(job.workload):
            return UrlsManifest.model_validate(fields)
        run = deps.ledger.get_run(of.run_id)
        latest = request.code == "latest" or run is None
        code = None if run is None or latest else run.code
        return FunctionManifest.model_validate(fields | {"code": code, "pool": pool_of(job.run_ids[0])})
    return _first_manifest(job, deps).model_copy(update={"deadline_at": None})


def _first_manifest(job: JobItem, deps: Dependencies) -> Manifest:
    """The manifest of the job's first run. Raises ProblemError (409) if that run was not started."""
    key = job_manifest_key(job.job_id, job.run_ids[0])
    if deps.head(key) is None:
        raise conflict("run-not-started", "The job was not started. Repeat the request that submitted it.")
    return stored_manifest(job, job.run_ids[0], deps.bucket)


def _check_sources_again(job: JobItem, deps: Dependencies) -> None:
    """Check that the tenant still owns the sources of a cube or a recording. Raises ProblemError (422).

    An earlier release accepted sources in the folders of other tenants.
    """
    manifest = _first_manifest(job, deps)
    assert isinstance(manifest, SpectraManifest | CaptionsManifest), "MANIFESTS has these for the other workloads"
    own_uploads = upload_key(job.tenant, "")
    keys = (key for key in named_keys(manifest) if not key.startswith(own_uploads))
    check_keys(keys, deps.sources(job.tenant))


# ---- deletion


def delete_job(caller: Caller, job_id: str, deps: Dependencies) -> Accepted:
    """Request the deletion of a job: its runs are cancelled, then its items and objects are removed."""
    for _ in range(TRIES):
        job = find_job(caller, job_id, deps)
        if job.state != "deleting":
            sets = {"state": "deleting", "deleted_at": timestamp(deps.clock())}
            changed = deps.store.change_job(job, sets, "run_ids")
            if changed is None:
                continue
            job = changed
            fault_point("api.job_deleting")
        request = JobDeleteRequested(run_id=job.run_ids[-1], job_id=job_id, run_ids=job.run_ids, tenant=caller.tenant)
        deps.transport.publish_event(request, traceparent=job.traceparent)
        return Accepted(requested="delete", status_url=f"/v1/jobs/{job_id}")
    raise conflict("job-busy", "Other requests are changing the job. Repeat the request.")


# ---- exports


def request_export(caller: Caller, run_id: str, key: str | None, deps: Dependencies) -> ExportView:
    """Request an export: all results of a run in one object. Raises ProblemError (404, 409)."""
    run = find_run(caller, run_id, deps)
    opened = deps.ledger.get_run(run_id)
    _check(ActionName.EXPORT, run, opened, "", "run-not-open", deps)
    export_id = derived_id("export", caller.tenant, run_id, key) if key else str(uuid4())
    moment = deps.clock()
    item = ExportItem(
        PK=export_key(run_id, export_id)["PK"],
        SK=export_key(run_id, export_id)["SK"],
        tenant=caller.tenant,
        requested_by=caller.key_id,
        requested_at=timestamp(moment),
        expires_at=int(moment.timestamp()) + EXPORT_SECONDS,
    )
    deps.store.create_export(item)
    noted = RunRequest(name="export", at=item.requested_at, by=caller.key_id, operation_id=export_id)
    deps.store.note_request(run_id, noted)
    fault_point("api.export_created", run_id=run_id)
    job = deps.store.job(run.tenant, run.job_id) if run.tenant else None
    event = ExportRequested(run_id=run_id, export_id=export_id, tenant=caller.tenant, requested_by=caller.key_id)
    deps.transport.publish_event(event, traceparent=_traceparent(job, opened), key=(export_id,))
    return show_export(caller, run_id, export_id, deps)


def show_export(caller: Caller, run_id: str, export_id: str, deps: Dependencies) -> ExportView:
    """An export of the caller's run. Raises ProblemError (404)."""
    find_run(caller, run_id, deps)
    item = deps.store.export(run_id, export_id)
    if item is None:
        raise not_found(f"export {export_id} of run {run_id}")
    return export_view(item, run_id, deps)


def export_view(item: ExportItem, run_id: str, deps: Dependencies) -> ExportView:
    """An export as clients see it."""
    until = timestamp(deps.clock() + timedelta(seconds=LINK_SECONDS))
    return ExportView(
        export_id=item.SK.removeprefix(EXPORT_SK_PREFIX),
        run_id=run_id,
        status=item.status,
        requested_at=item.requested_at,
        completed_at=item.completed_at,
        entries=item.entries,
        entries_total=item.entries_total,
        bytes=item.bytes,
        error=item.error,
        url=deps.link(item.key) if item.key else None,
        expires_at=until if item.key else None,
    )
