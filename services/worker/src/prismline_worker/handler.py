"""The worker's Lambda handler: which function takes which message of the queues `chunks`, `refits` and `tasks`."""

from __future__ import annotations

import threading
from functools import cache, partial
from typing import Any

from prismline_contracts.commands import (
    ChunkProcess,
    ReferencedChunkProcess,
    ReferencedSpectraRefit,
    SpectraRefit,
    TasksProcess,
)
from prismline_runtime import queue_handler
from prismline_runtime.routing import LambdaHandler
from prismline_worker.dependencies import Dependencies
from prismline_worker.going_runs import GoingRuns
from prismline_worker.processing import on_chunk_process
from prismline_worker.slow_lane import on_spectra_refit
from prismline_worker.task_processing import on_tasks_process
from prismline_worker.url_tasks import UrlTasks
from prismline_worker.workload import connect_workloads


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The worker's handler with its dependencies."""
    going = GoingRuns(deps.ledger)
    process = partial(on_chunk_process, deps=deps, workloads=connect_workloads(deps), going=going)
    refit = partial(on_spectra_refit, deps=deps)
    return queue_handler(
        deps.transport,
        deps.logger,
        {
            ChunkProcess: process,
            ReferencedChunkProcess: process,
            SpectraRefit: refit,
            ReferencedSpectraRefit: refit,
            TasksProcess: partial(on_tasks_process, deps=deps, urls=UrlTasks.connect(deps), going=going),
        },
        errors=deps.ledger,
    )


#: Held while the handler is made, because a process may take several messages at a time, and they share one handler.
_MAKING = threading.Lock()


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    with _MAKING:
        made = process_handler()
    return made(event, context)
