"""The application: the paths with their parameters and answers.

An operation checks the key's scope, finds the resource of the path among the caller's own, and calls one function. Its
cost does not depend on the size of a job.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Response
from mangum import Mangum

from prismline_api.actions import cancel_run, delete_job, preview_rerun, request_export, rerun_job, show_export
from prismline_api.activity import show_activity, show_causes
from prismline_api.cells.routes import router as cells_router
from prismline_api.console import install as install_console
from prismline_api.dead_letters import Wanted, list_dead_letters, recover, show_dead_letter, show_recovery
from prismline_api.dependencies import Dependencies
from prismline_api.deployment.routes import router as deployment
from prismline_api.estimates import estimate
from prismline_api.events import router as events_router
from prismline_api.manifests import Path as SubmissionPath
from prismline_api.maps.routes import router as maps_router
from prismline_api.models import (
    Accepted,
    ActivityView,
    Asked,
    Batch,
    BatchRequest,
    CausesView,
    ChunkView,
    DeadLetterRecordView,
    DeadLetterView,
    EstimateView,
    ExportView,
    Health,
    JobRequest,
    JobSummary,
    JobView,
    Page,
    RecoverRequest,
    RecoveryView,
    RegistrationRequest,
    RerunPreview,
    RerunRequest,
    ResultLink,
    RunPage,
    RunSummary,
    RunView,
    TaskView,
    Upload,
    UploadRequest,
    WorkloadView,
)
from prismline_api.open_jobs import add_batch, close_job
from prismline_api.parameters import (
    PAGE_ITEMS,
    RUN_ID,
    ArchiveDay,
    Cursor,
    Deps,
    ExportId,
    IdempotencyKey,
    JobId,
    Limit,
    MessageId,
    OperationId,
    RunId,
    TaskAddress,
    TraceParent,
)
from prismline_api.reading import (
    MOST_DETAILED,
    ChunkFilter,
    RunFilter,
    TaskFilter,
    detailed,
    find_job,
    find_run,
    job_view,
    latest_run,
    list_chunks,
    list_jobs,
    list_runs,
    list_tasks,
    result_link,
    run_view,
    show_task,
)
from prismline_api.submission import submit
from prismline_api.uploads import begin_upload
from prismline_contracts.deadletters import RecordKey
from prismline_http import problems
from prismline_http.access import KeyRoute, Operator, Reader, Submitter
from prismline_http.limits import BodyLimit

VERSION = "1.0.0"
DESCRIPTION = """Submit ten URLs or a million, a spectral cube or a recording; see every task; download the results.

Send an API key with every request: `Authorization: Bearer <key>`. Send an `Idempotency-Key` with every request that
changes something. If no answer comes, repeat the request with the same key: it takes effect once. Every error is a
problem document (RFC 9457) whose `detail` says what to do."""

api = APIRouter(prefix="/v1", route_class=KeyRoute, responses=problems.RESPONSES)


def create_app() -> FastAPI:
    """The application, with the settings in the environment."""
    return build_app(Dependencies.from_environment())


def build_app(deps: Dependencies) -> FastAPI:
    """The application with its dependencies."""
    app = FastAPI(
        title="Prismline",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.deps = deps
    deps.access.install(app)
    app.add_middleware(
        BodyLimit, max_bytes=deps.settings.max_body_bytes, advice="Upload a long list with POST /v1/uploads."
    )
    problems.install(app, deps.logger)

    @app.get("/health", tags=["service"])
    async def health() -> Health:
        """Whether the service runs. Needs no key."""
        return Health()

    app.include_router(api)
    app.include_router(maps_router)
    app.include_router(deployment)
    app.include_router(cells_router)
    app.include_router(events_router)
    install_console(app, deps)
    return app


@api.post(
    "/jobs",
    tags=["jobs"],
    status_code=201,
    response_model_exclude_none=True,
    responses={202: {"model": JobView, "description": "The run starts in the background. status_url shows it."}},
)
def submit_job(
    body: JobRequest,
    response: Response,
    caller: Submitter,
    deps: Deps,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
) -> JobView:
    """Submit a job.

    A closed list of at most 1,000 URLs is written and enqueued at once (201). A longer list, an open job, a cube, a
    recording, and every job with `async` is accepted (202).
    """
    submitted = submit(body, caller, idempotency_key, traceparent, deps)
    response.status_code = 201 if submitted.path is SubmissionPath.INLINE else 202
    response.headers["Location"] = f"/v1/jobs/{submitted.job.job_id}"
    if submitted.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return job_view(submitted.job, run_view(submitted.run, deps), secret=True)


@api.get("/estimate", tags=["jobs"])
def get_estimate(asked: Annotated[Asked, Query()], caller: Reader, deps: Deps) -> EstimateView:
    """Estimate what a run would cost on AWS, between two values. Submits nothing."""
    return estimate(asked, caller, deps)


@api.get("/workloads", tags=["jobs"], response_model_exclude_none=True)
def get_workloads(caller: Reader, deps: Deps) -> Page[WorkloadView]:
    """List what may be submitted: the workloads of the services, and the registered functions with their schemas."""
    from prismline_api.workloads import list_workloads  # noqa: PLC0415  few requests need jsonschema

    return Page(items=list_workloads(caller, deps))


@api.post("/workloads", tags=["jobs"], status_code=201, response_model_exclude_none=True)
def register_workload(body: RegistrationRequest, caller: Submitter, deps: Deps) -> WorkloadView:
    """Register a function, or its new code.

    Only a system on a laptop accepts one of the author's machine (`local`). Elsewhere, the function is installed in the
    image of the workers, and the key needs the scope `all`.
    """
    from prismline_api.workloads import register_function  # noqa: PLC0415  few requests need jsonschema

    return register_function(body, caller, deps)


@api.get("/jobs", tags=["jobs"], response_model_exclude_none=True)
def get_jobs(caller: Reader, deps: Deps, limit: Limit = PAGE_ITEMS, cursor: Cursor = None) -> Page[JobSummary]:
    """List your jobs, the newest first."""
    return list_jobs(caller, limit, cursor, deps)


@api.get("/jobs/{job_id}", tags=["jobs"], response_model_exclude_none=True)
def get_job(job_id: JobId, caller: Reader, deps: Deps) -> JobView:
    """Show a job and its latest run."""
    job = find_job(caller, job_id, deps)
    return job_view(job, latest_run(job, deps))


@api.post("/jobs/{job_id}/tasks", tags=["jobs"], status_code=201)
def add_tasks(
    job_id: JobId, body: BatchRequest, caller: Submitter, deps: Deps, idempotency_key: IdempotencyKey = None
) -> Batch:
    """Add at most 1,000 tasks to an open job."""
    return add_batch(body, job_id, caller, idempotency_key, deps)


@api.post(
    "/jobs/{job_id}/close", tags=["jobs"], status_code=202, response_model_exclude_none=True, operation_id="close_job"
)
def close(job_id: JobId, caller: Submitter, deps: Deps) -> JobView:
    """Close an open job, because it has all its tasks."""
    job = close_job(find_job(caller, job_id, deps), deps)
    return job_view(job, latest_run(job, deps))


@api.post(
    "/jobs/{job_id}/rerun", tags=["jobs"], status_code=202, response_model_exclude_none=True, operation_id="rerun_job"
)
def rerun(
    job_id: JobId,
    body: RerunRequest,
    response: Response,
    caller: Submitter,
    deps: Deps,
    idempotency_key: IdempotencyKey = None,
) -> RunView:
    """Start a new run of a job: of all its tasks, or of those that failed.

    Failed chunks are tried again in their own run, because they belong to its output. The answer then shows that run.
    """
    _, run, replayed = rerun_job(body, caller, job_id, idempotency_key, deps)
    response.headers["Location"] = f"/v1/runs/{run.run_id}"
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return run_view(run, deps)


@api.get("/jobs/{job_id}/rerun", tags=["jobs"], response_model_exclude_none=True)
def get_rerun(
    job_id: JobId,
    caller: Reader,
    deps: Deps,
    only: Annotated[Literal["all", "failed", "rest"], Query(description="Which tasks or chunks.")] = "all",
    run_id: Annotated[str | None, Query(pattern=RUN_ID, description="The run whose tasks or chunks are taken.")] = None,
) -> RerunPreview:
    """Show what a rerun would do, without doing it."""
    return preview_rerun(RerunRequest(only=only, run_id=run_id), caller, job_id, deps)


@api.delete("/jobs/{job_id}", tags=["jobs"], status_code=202, operation_id="delete_job")
def delete(job_id: JobId, caller: Operator, deps: Deps) -> Accepted:
    """Delete a job: its runs are cancelled, then its items and objects are removed in the background."""
    return delete_job(caller, job_id, deps)


@api.post("/uploads", tags=["uploads"], status_code=201, response_model_exclude_none=True)
def create_upload(body: UploadRequest, caller: Submitter, deps: Deps, idempotency_key: IdempotencyKey = None) -> Upload:
    """Get a presigned URL for the upload of a list of URLs or a cube. Name its `upload_id` in the job."""
    return begin_upload(body, caller, idempotency_key, deps)


@api.get("/runs", tags=["runs"], response_model_exclude_none=True)
def get_runs(
    caller: Reader,
    deps: Deps,
    shown: Annotated[RunFilter, Depends()],
    limit: Limit = PAGE_ITEMS,
    cursor: Cursor = None,
    details: Annotated[
        bool, Query(description=f"Each run as `GET /v1/runs/{{run_id}}` shows it, at most {MOST_DETAILED} in a part.")
    ] = False,
) -> Page[RunSummary] | Page[RunView]:
    """List the runs of your jobs, the newest first. With a filter, a part of the list may be short or empty."""
    if details:
        return detailed(list_runs(caller, shown, min(limit, MOST_DETAILED), cursor, deps), caller, deps)
    return list_runs(caller, shown, limit, cursor, deps)


@api.get("/runs/{run_id}", tags=["runs"], response_model_exclude_none=True)
def get_run(run_id: RunId, caller: Reader, deps: Deps) -> RunView:
    """Show a run: its status and its progress."""
    return run_view(find_run(caller, run_id, deps), deps)


@api.get("/runs/{run_id}/tasks", tags=["runs"], response_model_exclude_none=True)
def get_tasks(
    run_id: RunId,
    caller: Reader,
    deps: Deps,
    wanted: Annotated[TaskFilter, Depends()],
    limit: Limit = PAGE_ITEMS,
    cursor: Cursor = None,
) -> RunPage[TaskView]:
    """List the tasks of a run of `urls`, in no particular order. A part of the list may be short or empty."""
    return list_tasks(caller, run_id, wanted, limit, cursor, deps)


@api.get("/runs/{run_id}/chunks", tags=["runs"], response_model_exclude_none=True)
def get_chunks(
    run_id: RunId,
    caller: Reader,
    deps: Deps,
    wanted: Annotated[ChunkFilter, Depends()],
    limit: Limit = PAGE_ITEMS,
    cursor: Cursor = None,
) -> RunPage[ChunkView]:
    """List the chunks of a run of `spectra` or `captions`. A part of the list may be short or empty."""
    return list_chunks(caller, run_id, wanted, limit, cursor, deps)


@api.post("/runs/{run_id}/cancel", tags=["runs"], status_code=202, operation_id="cancel_run")
def cancel(run_id: RunId, caller: Operator, deps: Deps) -> Accepted:
    """Cancel a run: chunks or tasks that have not started are skipped. The run of an open job takes no more tasks."""
    return cancel_run(caller, run_id, deps)


@api.post(
    "/runs/{run_id}/export", tags=["runs"], status_code=202, response_model_exclude_none=True, operation_id="export_run"
)
def export(
    run_id: RunId, response: Response, caller: Submitter, deps: Deps, idempotency_key: IdempotencyKey = None
) -> ExportView:
    """Request an export: all results of a run in one object, a ZIP file, or one Parquet file for spectra."""
    view = request_export(caller, run_id, idempotency_key, deps)
    response.headers["Location"] = f"/v1/runs/{run_id}/exports/{view.export_id}"
    return view


@api.get("/runs/{run_id}/activity", tags=["runs"], response_model_exclude_none=True)
def get_activity(run_id: RunId, caller: Reader, deps: Deps) -> ActivityView:
    """Show what happened to a run, and who asked for it: its events, recoveries, exports and webhook posts."""
    return show_activity(caller, run_id, deps)


@api.get("/runs/{run_id}/causes", tags=["runs"])
def get_causes(run_id: RunId, caller: Reader, deps: Deps) -> CausesView:
    """Group the failures of a run by their error, without the numbers and ids in it."""
    return show_causes(caller, run_id, deps)


@api.get("/runs/{run_id}/exports/{export_id}", tags=["runs"], response_model_exclude_none=True)
def get_export(run_id: RunId, export_id: ExportId, caller: Reader, deps: Deps) -> ExportView:
    """Show an export, with a link once it is complete. The link is valid for 24 hours."""
    return show_export(caller, run_id, export_id, deps)


@api.get("/tasks/{task_id}", tags=["tasks"], response_model_exclude_none=True)
def get_task(task_id: TaskAddress, caller: Reader, deps: Deps) -> TaskView:
    """Show a task."""
    return show_task(caller, task_id, deps)


@api.get("/tasks/{task_id}/result", tags=["tasks"], response_model_exclude_none=True)
def get_result(task_id: TaskAddress, caller: Reader, deps: Deps) -> ResultLink:
    """Get a link to the body that a task fetched. It is valid for 24 hours."""
    return result_link(caller, task_id, deps)


@api.get("/dead-letters", tags=["dead letters"], response_model_exclude_none=True)
def get_dead_letters(
    caller: Reader, deps: Deps, wanted: Annotated[Wanted, Depends()], limit: Limit = PAGE_ITEMS, cursor: Cursor = None
) -> Page[DeadLetterView]:
    """List the archived dead letters of your runs, the newest first. A part of the list may be short or empty."""
    return list_dead_letters(caller, wanted, limit, cursor, deps)


@api.get("/dead-letters/{day}/{message_id}", tags=["dead letters"], response_model_exclude_none=True)
def get_dead_letter(
    day: ArchiveDay,
    message_id: MessageId,
    caller: Reader,
    deps: Deps,
    key: Annotated[
        RecordKey | None, Query(description="The `key` in the list, if the message has several dead letters.")
    ] = None,
) -> DeadLetterRecordView:
    """Show a dead letter: its record in the archive, with the message."""
    return show_dead_letter(caller, day, message_id, key, deps)


@api.post("/dead-letters/recover", tags=["dead letters"], status_code=202)
def recover_dead_letters(
    body: RecoverRequest, caller: Operator, deps: Deps, idempotency_key: IdempotencyKey = None
) -> Accepted:
    """Send the dead letters of a run, or of all, back to their queues, or try failed tasks or chunks again."""
    return recover(body, caller, idempotency_key, deps)


@api.get("/recoveries/{operation_id}", tags=["dead letters"])
def get_recovery(operation_id: OperationId, caller: Reader, deps: Deps) -> RecoveryView:
    """Show the progress of a recovery of dead letters."""
    return show_recovery(caller, operation_id, deps)


@cache
def process_handler() -> Mangum:
    """The application as this process's Lambda handler."""
    return Mangum(create_app(), lifespan="off")


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point in Lambda, behind a function URL."""
    return process_handler()(event, context)
