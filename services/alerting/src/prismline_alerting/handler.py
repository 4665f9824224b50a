"""The notifier's Lambda handler: which function takes alarms from SNS and failed runs from the bus."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_alerting.dependencies import NotifierDependencies
from prismline_alerting.notifier import on_notification, on_run_failed
from prismline_contracts.events import RunFailed
from prismline_runtime import queue_handler
from prismline_runtime.routing import LambdaHandler


def build_handler(deps: NotifierDependencies) -> LambdaHandler:
    """The notifier's handler with its dependencies."""
    return queue_handler(
        deps.transport,
        deps.logger,
        {RunFailed: partial(on_run_failed, deps=deps)},
        {"aws.sns/Notification": partial(on_notification, deps=deps)},
        errors=deps.ledger,
    )


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(NotifierDependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
