"""The exporter's Lambda handler."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_contracts.events import ExportRequested
from prismline_exporter.dependencies import Dependencies
from prismline_exporter.exporting import on_export_requested
from prismline_runtime import queue_handler
from prismline_runtime.routing import LambdaHandler


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The exporter's handler with its dependencies."""
    requested = partial(on_export_requested, deps=deps)
    return queue_handler(deps.transport, deps.logger, {ExportRequested: requested}, errors=deps.ledger)


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
