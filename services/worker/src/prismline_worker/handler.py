"""The worker's Lambda handler: which function takes which message of the queues `chunks`, `refits` and `tasks`."""

from __future__ import annotations

from functools import partial
from typing import Any

from prismline_contracts.commands import (
    ChunkProcess,
    FunctionTasksProcess,
    ReferencedChunkProcess,
    ReferencedSpectraRefit,
    SpectraRefit,
    TasksProcess,
)
from prismline_runtime import queue_handler
from prismline_runtime.once import once
from prismline_runtime.routing import LambdaHandler
from prismline_worker.dependencies import Dependencies
from prismline_worker.function_tasks import FunctionTasks
from prismline_worker.processing import on_chunk_process
from prismline_worker.run_state_cache import RunStateCache
from prismline_worker.slow_lane import on_spectra_refit
from prismline_worker.task_processing import TaskKinds, on_tasks_process
from prismline_worker.url_tasks import UrlTasks
from prismline_worker.workload import connect_workloads


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The worker's handler with its dependencies."""
    run_states = RunStateCache(deps.ledger, deps.logger)
    process = partial(on_chunk_process, deps=deps, workloads=connect_workloads(deps), run_states=run_states)
    kinds = TaskKinds(urls=UrlTasks.connect(deps), functions=FunctionTasks(deps))
    on_tasks = partial(on_tasks_process, deps=deps, kinds=kinds, run_states=run_states)
    refit = partial(on_spectra_refit, deps=deps)
    return queue_handler(
        deps.transport,
        deps.logger,
        {
            ChunkProcess: process,
            ReferencedChunkProcess: process,
            SpectraRefit: refit,
            ReferencedSpectraRefit: refit,
            TasksProcess: on_tasks,
            FunctionTasksProcess: on_tasks,
        },
        errors=deps.ledger,
    )


@once
def process_handler() -> LambdaHandler:
    """The handler of this process, which several threads may call."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
