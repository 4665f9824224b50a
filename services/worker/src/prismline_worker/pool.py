"""The Lambda handler of the workers of a pool, which take tasks of functions only.

Their role has the rights of this code. It reaches the runs of its own pool alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from prismline_contracts.commands import FunctionTasksProcess
from prismline_runtime import queue_handler
from prismline_runtime.once import once
from prismline_runtime.routing import LambdaHandler
from prismline_worker.dependencies import Dependencies
from prismline_worker.function_tasks import FunctionTasks
from prismline_worker.run_state_cache import RunStateCache
from prismline_worker.task_processing import TaskKinds, on_tasks_process


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The handler of a pool with its dependencies."""
    kinds, run_states = TaskKinds(functions=FunctionTasks(deps)), RunStateCache(deps.ledger, deps.logger)
    on_tasks = partial(on_tasks_process, deps=deps, kinds=kinds, run_states=run_states)
    return queue_handler(deps.transport, deps.logger, {FunctionTasksProcess: on_tasks}, errors=deps.ledger)


@once
def process_handler() -> LambdaHandler:
    """The handler of this process, which several threads may call."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
