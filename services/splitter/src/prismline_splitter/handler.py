"""The splitter's Lambda handler: which function takes which message of the `split` queue."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_contracts.commands import JobIngest, RunSplit
from prismline_contracts.events import JobDeleteRequested
from prismline_runtime import queue_handler
from prismline_runtime.routing import LambdaHandler
from prismline_splitter.deletion import on_job_delete
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.splitting import on_run_split
from prismline_splitter.submission import on_job_ingest, on_object_created


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The splitter's handler with its dependencies."""
    return queue_handler(
        deps.transport,
        deps.logger,
        {
            RunSplit: partial(on_run_split, deps=deps),
            JobIngest: partial(on_job_ingest, deps=deps),
            JobDeleteRequested: partial(on_job_delete, deps=deps),
        },
        {"aws.s3/Object Created": partial(on_object_created, deps=deps)},
        errors=deps.ledger,
    )


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
