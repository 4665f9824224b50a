"""One cell with everything that the ledger knows about it, and its log lines."""

from __future__ import annotations

from datetime import datetime
from itertools import chain

from prismline_api.cells import insights
from prismline_api.cells.log_files import Subject, find_lines
from prismline_api.cells.models import AttemptErrorView, CellLogsView, CellView
from prismline_api.dependencies import Dependencies
from prismline_api.reading import retry_view
from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.tasks import TaskItem, task_id
from prismline_http.problems import not_found


def cell_view(run_id: str, cell: int, deps: Dependencies) -> CellView:
    """The chunk whose first item has the index `cell`, or the task with this index. Raises ProblemError (404)."""
    run, item = _found(run_id, cell, deps)
    return _task(item, run, deps) if isinstance(item, TaskItem) else _chunk(item, cell, run, deps)


def cell_logs(run_id: str, cell: int, deps: Dependencies) -> CellLogsView:
    """The log lines of the cell if this machine has them, or a link to them on AWS. Raises ProblemError (404)."""
    _, item = _found(run_id, cell, deps)
    since = datetime.fromisoformat(item.created_at)
    subject = (
        Subject(run_id, since, task_id=item.task_id, index=cell)
        if isinstance(item, TaskItem)
        else Subject(run_id, since, chunk_id=item.chunk_id)
    )
    if deps.settings.logs_folder is not None:
        lines, complete = find_lines(deps.settings.logs_folder, subject)
        sentence = None if complete else "There may be older lines: prismline logs shows all of the run."
        return CellLogsView(lines=lines, complete=complete, sentence=sentence)
    if insights.is_aws(deps.s3.meta.endpoint_url):
        workers = chain([item.worker], (error.worker for error in item.errors))
        groups = insights.log_groups(deps.settings.environment, subject, filter(None, workers))
        url = insights.link(deps.s3.meta.region_name, groups, insights.query(subject), since, deps.clock())
        return CellLogsView(lines=[], complete=False, url=url, sentence="CloudWatch has the lines.")
    return CellLogsView(lines=[], complete=False, sentence="This system keeps its lines where its services run.")


def _found(run_id: str, cell: int, deps: Dependencies) -> tuple[RunItem, ChunkItem | TaskItem]:
    run = deps.ledger.get_run(run_id)
    if run is None:
        raise not_found(f"cell {cell} of run {run_id}")
    name = (run_id, f"chunk-{cell:07d}")
    item = deps.ledger.task(run, task_id(run_id, cell)) if run.unit == "task" else deps.ledger.find([name]).get(name)
    if item is None:
        raise not_found(f"{run.unit} {cell} of run {run_id}")
    return run, item


def _chunk(chunk: ChunkItem, cell: int, run: RunItem, deps: Dependencies) -> CellView:
    same = (
        "status reference n_items created_at first_started_at started_at worker attempt_ended_at completed_at"
        " duration_ms attempts n_done interruptions deferrals deferred_at resends error last_error recovery summary"
        " n_blank n_timed_out"
    )
    return CellView(
        cell=cell,
        unit="chunk",
        id=chunk.chunk_id,
        input=chunk.chunk_key,
        output=chunk.output_key,
        length=chunk.n_bytes,
        errors=_errors(chunk),
        retry=retry_view(chunk, run, deps),
        output_url=deps.link(chunk.output_key) if chunk.output_key else None,
        trace_id=run.trace_id,
        **{name: getattr(chunk, name) for name in same.split()},
    )


def _errors(item: ChunkItem | TaskItem) -> list[AttemptErrorView]:
    return [AttemptErrorView.model_validate(each, from_attributes=True) for each in item.errors]


def _task(task: TaskItem, run: RunItem, deps: Dependencies) -> CellView:
    same = (
        "status created_at first_started_at started_at worker completed_at duration_ms attempts interruptions"
        " not_before error last_error recovery"
    )
    result = task.result
    return CellView(
        cell=task.index,
        unit="task",
        id=task.address,
        input=task.source,
        errors=_errors(task),
        retry=retry_view(task, run, deps),
        http_status=result.http_status if result else None,
        content_type=result.content_type if result else None,
        length=result.length if result else None,
        output=result.key if result else None,
        output_url=deps.link(result.key, result.content_type) if result else None,
        trace_id=run.trace_id,
        **{name: getattr(task, name) for name in same.split()},
    )
