"""The Lambda handler: which function takes dead letters, recoveries, and the schedule of the sweeper."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_contracts.commands import dead_letter_queue_name
from prismline_contracts.deadletters import DeadlettersRecover, DeadlettersRecoverRequested
from prismline_dlq_consumer.dead_letter_handling import on_dead_letters
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.recovery.requests import on_recover
from prismline_dlq_consumer.sweeper import on_sweep
from prismline_runtime import queue_handler
from prismline_runtime.routing import LambdaHandler


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The service's handler with its dependencies. All messages of a batch come from one queue, as in Lambda."""
    recover = partial(on_recover, deps=deps)
    commands = queue_handler(
        deps.transport,
        deps.logger,
        {DeadlettersRecover: recover, DeadlettersRecoverRequested: recover},
        {"aws.events/Scheduled Event": partial(on_sweep, deps=deps.sweeper)},
        errors=deps.ledger,
    )

    def handle(event: dict[str, Any], context: Any) -> Any:
        queue = event["Records"][0]["eventSourceARN"]
        if queue.endswith(dead_letter_queue_name("")):
            return on_dead_letters(event, context, deps)
        return commands(event, context)

    return handle


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
