"""The views of jobs, runs, tasks and chunks that clients get."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from prismline_api.archive_counts import Counted
from prismline_api.dependencies import LINK_SECONDS, Dependencies
from prismline_api.models import (
    ActionView,
    ChunkView,
    Costs,
    Counts,
    JobSummary,
    JobView,
    Page,
    RepeatedErrorView,
    ResultLink,
    RunPage,
    RunProgress,
    RunSummary,
    RunView,
    TaskResultView,
    TaskView,
)
from prismline_contracts.base import timestamp
from prismline_contracts.items import ChunkItem, RunItem, WorkflowStateItem
from prismline_contracts.jobs import JobItem, JobRunItem
from prismline_contracts.tasks import TaskItem, TaskStatus
from prismline_http.auth import Caller
from prismline_http.problems import conflict, not_found
from prismline_ledger import Counts as LedgerCounts
from prismline_ledger import actions_of, going_on, shown_status, waiting_for

#: Most requests to DynamoDB for one page. If few items pass a filter, the page may end early.
MOST_READS = 20

#: A task's own id.
TASK_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class UnownedRun:
    """A run that was submitted without the API: it belongs to no tenant, and only the scope `all` shows it."""

    run_id: str
    job_id: str
    survey: str
    workload: str
    created_at: str
    tenant: None = None

    @classmethod
    def of(cls, state: WorkflowStateItem) -> UnownedRun:
        """The run as the status service knows it. It may not be open yet."""
        return cls(
            run_id=state.run_id,
            job_id=state.job_id or "",
            survey=state.survey or "",
            workload=state.workload or "",
            created_at=state.created_at or "",
        )


AnyRun = JobRunItem | UnownedRun


@dataclass(frozen=True)
class RunFilter:
    """Which runs a list shows."""

    status: str | None = None
    workload: str | None = None
    #: A part of the name, in upper or lower case, or the beginning of the run's id.
    name: str | None = None

    def passes(self, run: AnyRun | RunSummary, status: str) -> bool:
        """Whether the list shows the run, which has this status."""
        name = run.name if isinstance(run, RunSummary) else run.survey
        return (
            self.status in (None, status)
            and self.workload in (None, run.workload)
            and ((self.name or "").casefold() in name.casefold() or run.run_id.startswith((self.name or "").lower()))
        )


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks a list shows."""

    status: str | None = None
    #: The beginning of the URL.
    url: str | None = None


def find_job(caller: Caller, job_id: str, deps: Dependencies) -> JobItem:
    """The caller's job. Raises ProblemError (404)."""
    job = deps.store.job(caller.tenant, job_id)
    if job is None:
        raise not_found(f"job {job_id}")
    return job


def find_run(caller: Caller, run_id: str, deps: Dependencies) -> AnyRun:
    """The caller's run, or with the scope `all` any run. Raises ProblemError (404)."""
    run = deps.store.run(None if caller.sees_all else caller.tenant, run_id)
    found = run or (_run_without_job(run_id, deps) if caller.sees_all else None)
    if found is None:
        raise not_found(f"run {run_id}")
    return found


def _run_without_job(run_id: str, deps: Dependencies) -> UnownedRun | None:
    item = deps.ledger.get_run(run_id)
    if item is not None:
        return UnownedRun(run_id, item.job_id, item.survey, item.workload, item.created_at)
    found = deps.states.get({"run_id": run_id})
    return None if found is None else UnownedRun.of(WorkflowStateItem.model_validate(found))


def list_jobs(caller: Caller, limit: int, cursor: str | None, deps: Dependencies) -> Page[JobSummary]:
    """A page of the caller's jobs, the newest first."""
    subject = f"jobs/{caller.tenant}"
    jobs, last = deps.store.jobs(caller.tenant, limit, deps.unseal(subject, cursor))
    return Page(items=[_job_summary(job) for job in jobs], next_cursor=deps.seal(subject, last))


def list_runs(
    caller: Caller, wanted: RunFilter, limit: int, cursor: str | None, deps: Dependencies
) -> Page[RunSummary]:
    """A page of the caller's runs, or with the scope `all` of all runs, the newest first. At most a second old."""
    whose = None if caller.sees_all else caller.tenant
    return deps.recent.share(
        ("runs", whose, wanted, limit, cursor), lambda: _list_runs(whose, wanted, limit, cursor, deps)
    )


def _list_runs(
    tenant: str | None, wanted: RunFilter, limit: int, cursor: str | None, deps: Dependencies
) -> Page[RunSummary]:
    if tenant is None:
        return _list_all_runs(wanted, limit, cursor, deps)
    subject = f"runs/{tenant}"
    after = deps.unseal(subject, cursor)
    items: list[RunSummary] = []
    for _ in range(MOST_READS):
        runs, after = deps.store.runs(tenant, limit - len(items), after)
        items += [run for run in _summaries(runs, deps) if wanted.passes(run, run.status)]
        if after is None or len(items) >= limit:
            break
    return Page(items=items, next_cursor=deps.seal(subject, after))


def _list_all_runs(wanted: RunFilter, limit: int, cursor: str | None, deps: Dependencies) -> Page[RunSummary]:
    position = deps.unseal("all-runs", cursor)
    found = []
    for state in deps.all_runs.newest():
        run = UnownedRun.of(state)
        # A pending run is shown as running once something has ended: its summary decides.
        status = "running" if state.status == "pending" and wanted.status == "running" else state.status
        if (position is None or [run.created_at, run.run_id] < position) and wanted.passes(run, status):
            found.append(run)
        if len(found) > limit:
            break
    shown = found[:limit]
    last = [shown[-1].created_at, shown[-1].run_id] if len(found) > limit else None
    items = [run for run in _summaries(shown, deps) if wanted.passes(run, run.status)]
    return Page(items=items, next_cursor=deps.seal("all-runs", last))


def _summaries(runs: Sequence[AnyRun], deps: Dependencies) -> list[RunSummary]:
    """The runs with their present status and counts, from the status service and the ledger."""
    ids = [run.run_id for run in runs]
    found = map(WorkflowStateItem.model_validate, deps.states.batch_get({"run_id": run_id} for run_id in ids))
    states = {state.run_id: state for state in found}
    items = deps.ledger.find_runs(ids)
    letters = deps.archive_counts.now() if runs else None
    return [_summary(run, states.get(run.run_id), items.get(run.run_id), letters, deps) for run in runs]


def _summary(
    run: AnyRun, state: WorkflowStateItem | None, item: RunItem | None, letters: Counted | None, deps: Dependencies
) -> RunSummary:
    progress = _progress(item, deps) if item else RunProgress()
    counts = _counts(progress)
    return RunSummary(
        run_id=run.run_id,
        job_id=run.job_id,
        name=run.survey,
        workload=run.workload,
        created_at=run.created_at,
        status=shown_status(state.status if state else "pending", counts),
        unit=item.unit if item else "task" if run.workload == "urls" else "chunk",
        counts=progress.counts,
        costs=progress.costs,
        dead_letters=letters.of(run.run_id, run.created_at) if letters else None,
        n_items=item.n_items if item else None,
        started_at=state.started_at if state else None,
        completed_at=state.completed_at if state else None,
        error=state.error_message if state else None,
    )


def job_view(job: JobItem, run: RunView, *, secret: bool = False) -> JobView:
    """A job with its latest run. secret: whether to include the secret of its webhook."""
    webhook = job.webhook
    return JobView(
        **_job_summary(job).model_dump(),
        closed_at=job.closed_at,
        deleted_at=job.deleted_at,
        n_tasks=job.n_tasks if job.n_batches else None,
        tolerated_failure_percent=job.tolerated_failure_percent,
        params=json.loads(job.params or "{}"),
        webhook_url=webhook.url if webhook else None,
        webhook_secret=webhook.secret if webhook and secret else None,
        run=run,
        status_url=f"/v1/runs/{run.run_id}",
    )


def latest_run(job: JobItem, deps: Dependencies) -> RunView:
    """The job's latest run."""
    run = deps.store.run(job.tenant, job.run_ids[-1])
    if run is None:
        raise not_found(f"job {job.job_id}")  # it is being deleted
    return run_view(run, deps)


def _job_summary(job: JobItem) -> JobSummary:
    return JobSummary(
        job_id=job.job_id,
        name=job.survey,
        workload=job.workload,
        state=job.state,
        created_at=job.created_at,
        run_ids=job.run_ids,
    )


def run_view(run: AnyRun, deps: Dependencies) -> RunView:
    """A run with its present state in the ledger and the status service."""
    found = deps.states.get({"run_id": run.run_id})
    state = None if found is None else WorkflowStateItem.model_validate(found)
    item = deps.ledger.get_run(run.run_id)
    completed_at = state.completed_at if state else None
    repeated = deps.ledger.repeated_error(run.run_id, after=completed_at)
    shown = RunView(
        run_id=run.run_id,
        job_id=run.job_id,
        name=run.survey,
        workload=run.workload,
        status=state.status if state else "pending",
        created_at=run.created_at,
        unit=item.unit if item else "task" if run.workload == "urls" else "chunk",
        started_at=state.started_at if state else None,
        completed_at=completed_at,
        error=state.error_message if state else None,
        repeated_error=RepeatedErrorView(**repeated.as_document()) if repeated else None,
    )
    if item is None:
        return shown.model_copy(update={"actions": _actions(run, None, shown.status, None)})
    progress = _progress(item, deps)
    counts = _counts(progress)
    return shown.model_copy(
        update={
            "status": shown_status(shown.status, counts),
            "going_on": going_on(item, shown.status, counts),
            "cancelled_at": item.cancelled_at,
            "actions": _actions(run, item, shown.status, counts),
            "counts": progress.counts,
            "costs": progress.costs,
            "n_rejected": item.n_rejected if item.unit == "task" else None,
            "rejects_url": deps.link(item.rejects_key) if item.rejects_key else None,
            "waiting_for": waiting_for(item, deps.clock()),
            "priority": item.priority,
            "max_concurrency": item.max_concurrency,
            "deadline_at": item.deadline_at,
        }
    )


def _counts(progress: RunProgress) -> LedgerCounts | None:
    known = progress.counts
    return None if known is None else LedgerCounts(known.total, known.completed, known.failed)


def _actions(run: AnyRun, item: RunItem | None, status: str, counts: LedgerCounts | None) -> list[ActionView]:
    found = actions_of(run.run_id, item, status, counts, has_job=run.tenant is not None)
    return [ActionView(name=each.name, allowed=each.allowed, reason=each.reason) for each in found.values()]


def _progress(run: RunItem, deps: Dependencies) -> RunProgress:
    """The counts and costs of a run. With several shards, which must all be read, they may be a second old."""

    def read() -> RunProgress:
        counts = deps.ledger.counts(run)
        spent = counts.costs
        return RunProgress(
            counts=Counts(total=counts.total, completed=counts.completed, failed=counts.failed),
            costs=None
            if spent is None
            else Costs(worked_seconds=spent.worked_ms / 1000, attempts=spent.attempts, bytes=spent.n_bytes),
        )

    seconds = deps.settings.counts_cache_seconds
    if run.shard_count == 1 or run.drained_at is not None or not seconds:
        return read()
    text = deps.cache.read_through(f"progress:{run.run_id}", lambda: read().model_dump_json(), seconds=seconds)
    return RunProgress.model_validate_json(text)


# ---- tasks and chunks


def list_tasks(
    caller: Caller, run_id: str, wanted: TaskFilter, limit: int, cursor: str | None, deps: Dependencies
) -> RunPage[TaskView]:
    """A page of a run's tasks, shard by shard, in order of id. This order never changes, so no task is shown twice."""
    find_run(caller, run_id, deps)
    subject = f"tasks/{run_id}/{wanted.status or ''}/{wanted.url or ''}"
    position = deps.unseal(subject, cursor)
    run = deps.ledger.get_run(run_id)
    if run is None or run.unit != "task":
        return RunPage(items=[], next_cursor=None, final=run is not None)
    shard, after, final = position or (0, None, run.latched_at is not None)
    items: list[TaskItem] = []
    for _ in range(max(MOST_READS, run.shard_count)):
        page = deps.ledger.page_of_tasks(
            run, shard, after=after, limit=limit - len(items), status=_stored(wanted.status), begins=wanted.url
        )
        items += page.tasks
        shard, after = (shard, page.after) if page.after is not None else (shard + 1, None)
        if len(items) >= limit or shard >= run.shard_count:
            break
    following = None if shard >= run.shard_count else [shard, after, final]
    return RunPage(items=[task_view(task) for task in items], next_cursor=deps.seal(subject, following), final=final)


def list_chunks(
    caller: Caller, run_id: str, status: str | None, limit: int, cursor: str | None, deps: Dependencies
) -> RunPage[ChunkView]:
    """A page of a run's chunks in order of id.

    The loop differs from that of `list_tasks`: chunks are in one partition, tasks in one for each shard.
    """
    find_run(caller, run_id, deps)
    subject = f"chunks/{run_id}/{status or ''}"
    position = deps.unseal(subject, cursor)
    run = deps.ledger.get_run(run_id)
    if run is None or run.unit != "chunk":
        return RunPage(items=[], next_cursor=None, final=run is not None)
    after, final = position or (None, run.latched_at is not None)
    items: list[ChunkItem] = []
    for _ in range(MOST_READS):
        page = deps.ledger.page_of_chunks(run_id, after=after, limit=limit - len(items), status=_stored(status))
        items += page.chunks
        after = page.after
        if after is None or len(items) >= limit:
            break
    following = None if after is None else [after, final]
    return RunPage(items=[chunk_view(chunk) for chunk in items], next_cursor=deps.seal(subject, following), final=final)


def _stored(status: str | None) -> TaskStatus | None:
    """A status of a chunk or a task as the ledger has it."""
    return None if status is None else TaskStatus(status.upper())


def find_task(caller: Caller, address: str, deps: Dependencies) -> TaskItem:
    """The caller's task with this address. Raises ProblemError (404)."""
    run_id, _, name = address.rpartition(".")
    known = TASK_ID.fullmatch(name) and deps.store.run(caller.tenant, run_id)
    run = deps.ledger.get_run(run_id) if known else None
    task = deps.ledger.task(run, name) if run is not None else None
    if task is None:
        raise not_found(f"task {address}")
    return task


def task_view(task: TaskItem) -> TaskView:
    """A task as clients see it."""
    result = task.result
    return TaskView(
        task_id=task.address,
        index=task.index,
        url=task.source,
        status=task.status,
        created_at=task.created_at,
        started_at=task.started_at,
        completed_at=task.completed_at,
        duration_ms=task.duration_ms,
        attempts=task.attempts,
        not_before=task.not_before,
        error=task.error,
        last_error=task.last_error,
        result=TaskResultView(**result.model_dump(exclude={"key"})) if result else None,
    )


def chunk_view(chunk: ChunkItem) -> ChunkView:
    """A chunk as clients see it."""
    return ChunkView.model_validate(chunk, from_attributes=True)


def result_link(caller: Caller, address: str, deps: Dependencies) -> ResultLink:
    """A link to the body of a completed task. Raises ProblemError (404, 409)."""
    task = find_task(caller, address, deps)
    result = task.result
    if result is None:
        why = task.error or task.last_error or "it has not been fetched yet"
        raise conflict("no-result", f"The task is {task.status.lower()} and has no result: {why}. Try again later.")
    return ResultLink(
        url=deps.link(result.key, result.content_type),
        expires_at=timestamp(deps.clock() + timedelta(seconds=LINK_SECONDS)),
        http_status=result.http_status,
        content_type=result.content_type,
        length=result.length,
        sha256=result.sha256,
    )
