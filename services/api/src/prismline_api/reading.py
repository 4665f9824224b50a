"""The views of jobs, runs, tasks and chunks that clients get."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query

from prismline_api import pricing
from prismline_api.archive_counts import Counted
from prismline_api.dependencies import LINK_SECONDS, Dependencies
from prismline_api.models import (
    ActionView,
    ChunkView,
    ConditionView,
    Costs,
    Counts,
    Dollars,
    FinalizationView,
    JobSummary,
    JobView,
    PaceView,
    Page,
    RepeatedErrorView,
    ResultLink,
    RetryView,
    RunPage,
    RunProgress,
    RunSummary,
    RunView,
    TaskResultView,
    TaskView,
)
from prismline_api.parameters import RunStatus, Status, WithRecords
from prismline_api.troubles import trouble
from prismline_api.workloads import latest_registration
from prismline_contracts.base import timestamp
from prismline_contracts.finalization import finalization_of
from prismline_contracts.items import ChunkItem, RunItem, WorkflowStateItem
from prismline_contracts.jobs import JobItem, JobRunItem
from prismline_contracts.manifest import DEFAULT_WORKLOAD
from prismline_contracts.objects import manifest_copy_key
from prismline_contracts.tasks import TaskItem, TaskStatus
from prismline_contracts.workloads import is_function, unit_of
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError, conflict, not_found
from prismline_ledger import Costs as SpentCosts
from prismline_ledger import Counts as LedgerCounts
from prismline_ledger import (
    Observed,
    QueueLook,
    Retries,
    actions_of,
    conditions_of,
    going_on,
    has_ended,
    needs_code,
    pace,
    queue_of,
    retry_of,
    shown_status,
    waiting_for,
    warnings_of,
    works,
)
from prismline_runtime import PermanentError, TransientError

#: Most requests to DynamoDB for one page. If few items pass a filter, the page may end early.
MOST_READS = 20

#: Most runs of a page with all their details. Each takes several requests to DynamoDB.
MOST_DETAILED = 100
#: How long a run is listed that the status service does not know, and the most of them in a list.
UNANNOUNCED, MOST_UNANNOUNCED = timedelta(days=1), 100
#: Longest copy of a manifest that is read for the name of its run, in bytes.
MAX_SHOWN_MANIFEST_BYTES = 2**20

#: Longest time of a chunk without progress that a list can ask for: a year.
MOST_MINUTES = 525_600
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
    cancel_requested_at: None = None

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

    status: RunStatus = None
    workload: Annotated[str | None, Query(max_length=200, description="Only runs of this workload.")] = None
    name: Annotated[
        str | None, Query(max_length=200, description="Only runs whose name has this part, or whose id begins so.")
    ] = None

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

    status: Status = None
    url: Annotated[str | None, Query(max_length=2048, description="Only tasks whose URL begins so.")] = None
    details: WithRecords = False


@dataclass(frozen=True)
class ChunkFilter:
    """Which chunks a list shows."""

    status: Status = None
    stuck_after: Annotated[
        float | None,
        Query(
            ge=0,
            le=MOST_MINUTES,
            description="Only chunks without progress: in progress for more than so many minutes, with attempts that"
            " never ended, or sent again by the sweeper. `why` says which.",
        ),
    ] = None
    details: WithRecords = False
    links: Annotated[bool, Query(description="Give a link to the output of each, in `output_url`.")] = False


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
    found = deps.states.get({"run_id": run_id})
    state = None if found is None else WorkflowStateItem.model_validate(found)
    if item is not None:
        # The run was opened some time after it was announced.
        created_at = state.created_at if state is not None and state.created_at is not None else item.created_at
        return UnownedRun(run_id, item.job_id, item.survey, item.workload, min(created_at, item.created_at))
    if state is not None:
        return UnownedRun.of(state)
    if (accepted := _accepted_run(run_id, deps)) is not None:
        return accepted
    repeated = deps.ledger.repeated_error(run_id)
    return None if repeated is None else UnownedRun(run_id, "", "", "", repeated.item.first_at)


def _accepted_run(run_id: str, deps: Dependencies) -> UnownedRun | None:
    """A run that the splitter has announced, and that the status service does not know yet, by its copied manifest."""
    head = deps.head(manifest_copy_key(run_id))
    if head is None:
        return None
    fields = manifest_copy(run_id, deps)

    def text(name: str, default: str) -> str:
        return value if isinstance(value := fields.get(name), str) else default

    return UnownedRun(
        run_id=run_id,
        job_id=text("job_id", ""),
        survey=text("survey", run_id),
        workload=text("workload", DEFAULT_WORKLOAD),
        created_at=timestamp(head["LastModified"]),
    )


def manifest_copy(run_id: str, deps: Dependencies) -> dict[str, Any]:
    """The run's copy of its manifest. Empty if there is none, or if it is too long or no object."""
    try:
        document = json.loads(deps.bucket.read(manifest_copy_key(run_id), most=MAX_SHOWN_MANIFEST_BYTES))
    except (ValueError, RecursionError, PermanentError):
        return {}
    return document if isinstance(document, dict) else {}


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
    return deps.recent.get_or_load(
        ("runs", whose or caller.tenant, whose, wanted, limit, cursor),
        lambda: (
            _list_all_runs(caller.tenant, wanted, limit, cursor, deps)
            if whose is None
            else _list_runs(whose, wanted, limit, cursor, deps)
        ),
    )


def detailed(page: Page[RunSummary], caller: Caller, deps: Dependencies) -> Page[RunView]:
    """The page with all details of each run."""
    runs = [run_view(find_run(caller, run.run_id, deps), deps) for run in page.items]
    return Page[RunView](items=runs, next_cursor=page.next_cursor)


def _list_runs(tenant: str, wanted: RunFilter, limit: int, cursor: str | None, deps: Dependencies) -> Page[RunSummary]:
    subject = f"runs/{tenant}"
    after = deps.unseal(subject, cursor)
    items: list[RunSummary] = []
    for _ in range(MOST_READS):
        runs, after = deps.store.runs(tenant, limit - len(items), after)
        items += [run for run in _summaries(runs, deps) if wanted.passes(run, run.status)]
        if after is None or len(items) >= limit:
            break
    return Page[RunSummary](items=items, next_cursor=deps.seal(subject, after))


def _list_all_runs(
    tenant: str, wanted: RunFilter, limit: int, cursor: str | None, deps: Dependencies
) -> Page[RunSummary]:
    """All runs. A run that the status service does not know yet is among them if it belongs to the tenant."""
    position = deps.unseal("all-runs", cursor)
    states = deps.all_runs.newest()
    runs: list[tuple[AnyRun, str]] = [(UnownedRun.of(state), state.status) for state in states]
    unknown = _unannounced(tenant, {state.run_id for state in states}, deps)
    if unknown:
        runs = sorted([*runs, *unknown], key=lambda each: (each[0].created_at, each[0].run_id), reverse=True)
    found: list[AnyRun] = []
    for run, announced in runs:
        # A pending run is shown as running once something has ended: its summary decides.
        status = "running" if announced == "pending" and wanted.status == "running" else announced
        if (position is None or [run.created_at, run.run_id] < position) and wanted.passes(run, status):
            found.append(run)
        if len(found) > limit:
            break
    shown = found[:limit]
    last = [shown[-1].created_at, shown[-1].run_id] if len(found) > limit else None
    items = [run for run in _summaries(shown, deps) if wanted.passes(run, run.status)]
    return Page[RunSummary](items=items, next_cursor=deps.seal("all-runs", last))


def _unannounced(tenant: str, known: set[str], deps: Dependencies) -> list[tuple[AnyRun, str]]:
    """The latest runs of the tenant that the status service does not know yet."""
    since = timestamp(deps.clock() - UNANNOUNCED)
    runs, _ = deps.store.runs(tenant, MOST_UNANNOUNCED, None)
    return [(run, "pending") for run in runs if run.run_id not in known and run.created_at > since]


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
        unit=item.unit if item else unit_of(run.workload),
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
        tolerated_failures=job.tolerated_failures,
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
        ended=has_ended(item, state.status if state else "pending"),
        created_at=run.created_at,
        unit=item.unit if item else unit_of(run.workload),
        started_at=state.started_at if state else None,
        completed_at=completed_at,
        trace_id=state.trace_id if state else None,
        error=state.error_message if state and state.status in {"failed", "cancelled"} else None,
        repeated_error=RepeatedErrorView(**repeated.as_document()) if repeated else None,
    )
    progress = _progress(item, deps) if item else RunProgress()
    counts = _counts(progress)
    observed = Observed(
        run.run_id,
        run.created_at,
        state.status if state else None,
        repeated,
        cancel_requested_at=run.cancel_requested_at,
        job_is_open=state is None and _job_is_open(run, deps),
    )
    shown = shown.model_copy(
        update={
            "actions": _actions(run, item, shown.status, counts),
            "conditions": _conditions(observed, item, counts, deps),
        }
    )
    if item is None:
        return shown
    return shown.model_copy(
        update={
            "status": shown_status(shown.status, counts),
            "going_on": going_on(item, shown.status, counts),
            "cancelled_at": item.cancelled_at,
            "code": item.code,
            "counts": progress.counts,
            "costs": progress.costs,
            "n_items": item.n_items,
            "n_blank": item.n_blank,
            "n_timed_out": item.n_timed_out,
            "n_refit_failed": item.n_refit_failed,
            "params": json.loads(item.params) if item.params else {},
            "warnings": warnings_of(item, counts) if counts else [],
            "pace": _pace(item, state, counts, deps),
            "n_rejected": item.n_rejected if item.unit == "task" else None,
            "rejects_url": deps.link(item.rejects_key) if item.rejects_key else None,
            "finalization": _finalization(item, deps),
            "waiting_for": waiting_for(item, deps.clock()),
            "priority": item.priority,
            "max_concurrency": item.max_concurrency,
            "deadline_at": item.deadline_at,
        }
    )


def _finalization(run: RunItem, deps: Dependencies) -> FinalizationView | None:
    found = None if run.cancelled_at is not None else finalization_of(run)
    if found is None:
        return None
    value = found.value
    return FinalizationView(
        status=found.status,
        attempts=found.attempts,
        value=json.loads(value.text) if value is not None and value.text is not None else None,
        value_url=deps.link(value.key, "application/json") if value is not None and value.key is not None else None,
        error=found.error,
        error_type=found.error_type,
    )


def _job_is_open(run: AnyRun, deps: Dependencies) -> bool:
    job = deps.store.job(run.tenant, run.job_id) if run.tenant is not None else None
    return job is not None and job.state == "open"


def _conditions(
    observed: Observed, run: RunItem | None, counts: LedgerCounts | None, deps: Dependencies
) -> list[ConditionView]:
    """What the run does or waits for. Its queue and its retries are looked at only while work is expected."""
    if works(run, observed.status, counts) and (run is None or run.drained_at is None):
        observed = replace(
            observed, queue=_look_at(queue_of(run, observed.status), deps), retries=_retries(run, deps) if run else None
        )
    if run is not None and needs_code(run):
        observed = replace(observed, latest_code=_latest_code(run.workload, deps))
    return [
        ConditionView(name=each.name, sentence=each.sentence)
        for each in conditions_of(observed, run, counts, deps.clock())
    ]


def _latest_code(function: str, deps: Dependencies) -> str | None:
    """The code with which a function was registered last. None if that cannot be read: the run is shown anyway."""
    try:
        return deps.recent.get_or_load(("code", function), lambda: latest_registration(function, deps).code)
    except (ProblemError, TransientError):
        return None


def _look_at(queue: str, deps: Dependencies) -> QueueLook | None:
    """The queue. None if SQS does not answer: the run is shown all the same."""
    try:
        return deps.system.queue(queue)
    except TransientError:
        return None


def _retries(run: RunItem, deps: Dependencies) -> Retries | None:
    return deps.recent.get_or_load(("retries", run.run_id), lambda: deps.ledger.retries(run))


def _pace(
    run: RunItem, state: WorkflowStateItem | None, counts: LedgerCounts | None, deps: Dependencies
) -> PaceView | None:
    """The pace of a run that has not ended. None for a run that is being retried: its counts are of an earlier time."""
    if run.drained_at is not None or run.cancelled_at is not None or run.resumed_at is not None:
        return None
    started_at = (state.started_at if state else None) or run.latched_at or run.created_at
    found = pace(counts, started_at, deps.clock())
    return None if found is None else PaceView(**asdict(found))


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
            costs=None if spent is None else _costs(run.unit, spent),
        )

    seconds = deps.settings.counts_cache_seconds
    if run.shard_count == 1 or run.drained_at is not None or not seconds:
        return read()
    text = deps.cache.read_through(f"progress:{run.run_id}", lambda: read().model_dump_json(), seconds=seconds)
    return RunProgress.model_validate_json(text)


def _costs(unit: str, spent: SpentCosts) -> Costs:
    seconds = spent.worked_ms / 1000
    found = pricing.dollars(unit, seconds, spent.attempts, spent.n_bytes)
    usd = Dollars(least=found.least, most=found.most, prices=pricing.PRICES)
    return Costs(worked_seconds=seconds, attempts=spent.attempts, bytes=spent.n_bytes, usd=usd)


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
    return RunPage(
        items=[_listed_task(task, run, wanted, deps) for task in items],
        next_cursor=deps.seal(subject, following),
        final=final,
    )


def _listed_task(task: TaskItem, run: RunItem, wanted: TaskFilter, deps: Dependencies) -> TaskView:
    view = task_view(task, run, deps)
    return view.model_copy(update={"record": _record(task, task_id=task.task_id)}) if wanted.details else view


def list_chunks(
    caller: Caller, run_id: str, wanted: ChunkFilter, limit: int, cursor: str | None, deps: Dependencies
) -> RunPage[ChunkView]:
    """A page of a run's chunks in order of id.

    The loop differs from that of `list_tasks`: chunks are in one partition, tasks in one for each shard.
    """
    find_run(caller, run_id, deps)
    subject = f"chunks/{run_id}/{wanted.status or ''}"
    position = deps.unseal(subject, cursor)
    run = deps.ledger.get_run(run_id)
    if run is None or run.unit != "chunk":
        return RunPage(items=[], next_cursor=None, final=run is not None)
    after, final = position or (None, run.latched_at is not None)
    items: list[ChunkView] = []
    for _ in range(MOST_READS):
        page = deps.ledger.page_of_chunks(run_id, after=after, limit=limit - len(items), status=_stored(wanted.status))
        items += _chunk_views(page.chunks, run, wanted, deps)
        after = page.after
        if after is None or len(items) >= limit:
            break
    following = None if after is None else [after, final]
    return RunPage(items=items, next_cursor=deps.seal(subject, following), final=final)


def _chunk_views(
    chunks: Iterable[ChunkItem], run: RunItem, wanted: ChunkFilter, deps: Dependencies
) -> Iterator[ChunkView]:
    """The chunks that the list shows."""
    for chunk in chunks:
        minutes = wanted.stuck_after
        why = None if minutes is None else trouble(chunk, now=deps.clock(), after=timedelta(minutes=minutes))
        if minutes is not None and why is None:
            continue
        record = None
        if wanted.details:
            reference = chunk.cube_reference
            given = {"reference": reference.model_dump(exclude_none=True)} if reference is not None else {}
            record = _record(chunk, chunk_id=chunk.chunk_id) | given
        url = deps.link(chunk.output_key) if wanted.links and chunk.output_key is not None else None
        yield chunk_view(chunk, run, deps).model_copy(update={"why": why, "record": record, "output_url": url})


def _record(item: ChunkItem | TaskItem, **name: str) -> dict[str, Any]:
    """All that the ledger has about a chunk or a task, and its name there."""
    document = item.model_dump(exclude={"PK", "SK", "reference"}, exclude_none=True)
    return {"run_id": item.run_id} | name | document


def _stored(status: str | None) -> TaskStatus | None:
    """A status of a chunk or a task as the ledger has it."""
    return None if status is None else TaskStatus(status.upper())


def find_task(caller: Caller, address: str, deps: Dependencies) -> tuple[TaskItem, RunItem]:
    """The caller's task with this address, or with the scope `all` any task, and its run. Raises ProblemError (404)."""
    run_id, _, name = address.rpartition(".")
    known = TASK_ID.fullmatch(name) and (caller.sees_all or deps.store.run(caller.tenant, run_id))
    run = deps.ledger.get_run(run_id) if known else None
    task = deps.ledger.task(run, name) if run is not None else None
    if task is None or run is None:
        raise not_found(f"task {address}")
    return task, run


def show_task(caller: Caller, address: str, deps: Dependencies) -> TaskView:
    """The caller's task with this address. Raises ProblemError (404)."""
    return task_view(*find_task(caller, address, deps), deps)


def task_view(task: TaskItem, run: RunItem, deps: Dependencies) -> TaskView:
    """A task as clients see it."""
    function = is_function(run.workload)
    result, value = task.result, task.value
    return TaskView(
        task_id=task.address,
        index=task.index,
        url=None if function else task.source,
        item=json.loads(task.source) if function else None,
        status=task.status,
        created_at=task.created_at,
        started_at=task.started_at,
        completed_at=task.completed_at,
        duration_ms=task.duration_ms,
        attempts=task.attempts,
        not_before=task.not_before,
        error=task.error,
        error_type=task.error_type,
        last_error=task.last_error,
        retry=retry_view(task, run, deps),
        value=json.loads(value.text) if value is not None and value.text is not None else None,
        code=task.code,
        result=TaskResultView(**result.model_dump(exclude={"key"})) if result else None,
    )


def chunk_view(chunk: ChunkItem, run: RunItem, deps: Dependencies) -> ChunkView:
    """A chunk as clients see it."""
    shown = ChunkView.model_validate(chunk, from_attributes=True)
    return shown.model_copy(update={"retry": retry_view(chunk, run, deps)})


def retry_view(item: ChunkItem | TaskItem, run: RunItem, deps: Dependencies) -> RetryView | None:
    """How the chunk or task is being retried. None: it is not, or the run was stopped."""
    retry = None if run.cancelled_at is not None else retry_of(item, run)
    if retry is None:
        return None
    sentence = retry.sentence(deps.clock())
    return RetryView(attempts=retry.attempts, at_least=retry.at_least, next_at=retry.next_at, sentence=sentence)


def result_link(caller: Caller, address: str, deps: Dependencies) -> ResultLink:
    """A link to the body of a completed task. Raises ProblemError (404, 409)."""
    task, _ = find_task(caller, address, deps)
    result, expires_at = task.result, timestamp(deps.clock() + timedelta(seconds=LINK_SECONDS))
    if task.value is not None and task.value.key is not None:
        return ResultLink(
            url=deps.link(task.value.key, "application/json"), expires_at=expires_at, length=task.value.length
        )
    if result is None:
        why = task.error or task.last_error or "it has not been fetched yet"
        raise conflict("no-result", f"The task is {task.status.lower()} and has no result: {why}. Try again later.")
    return ResultLink(
        url=deps.link(result.key, result.content_type),
        expires_at=expires_at,
        http_status=result.http_status,
        content_type=result.content_type,
        length=result.length,
        sha256=result.sha256,
    )
