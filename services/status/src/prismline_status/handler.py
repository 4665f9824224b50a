"""The Lambda handlers: for messages of the `status` and `runs` queues, and for direct calls of a state machine."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_contracts.commands import RunStatus, StatusUpdate
from prismline_contracts.events import (
    RunCancelRequested,
    RunCheckRequested,
    RunCleanupRequested,
    RunDrained,
    RunRecovered,
    RunSplitCompleted,
    RunSubmitted,
    RunTasksRecovered,
)
from prismline_runtime import Message, NewerReleaseError, PermanentError, queue_handler
from prismline_runtime.routing import LambdaHandler
from prismline_status.announcements import announce
from prismline_status.dependencies import Dependencies, UpdateDependencies
from prismline_status.lifecycle import (
    on_cancel_requested,
    on_cleanup_requested,
    on_execution_ended,
    on_run_changed,
    on_run_submitted,
)
from prismline_status.run_check import check_run, refuse_to_wait
from prismline_status.transitions import TERMINAL, not_understood
from prismline_status.update import change_status, response, update_status


def on_status_update(update: StatusUpdate, message: Message, deps: Dependencies) -> None:
    """Update the status and answer the task token, at once or when the run has drained.

    This function stores a token that waits for the drain before it reads the ledger. A drain is written to the ledger
    before it is published. So either this function sees the drain, or the handler of the drain sees the token.
    """
    if unknown := not_understood(update):
        raise NewerReleaseError(unknown)
    token = message.envelope.tasktoken
    if update.wait_for is not None and token is None:
        raise PermanentError("The status update waits for the run to drain but has no task token to answer.")
    applied = change_status(update, deps)
    if applied is not None and not applied.after.terminal:
        announce(applied.after, deps)
    waiting = token if update.wait_for is not None else None
    if waiting is not None and (applied is None or not deps.table.add_waiting(update.run_id, waiting)):
        refuse_to_wait(waiting, deps)
    if waiting is not None or RunStatus(update.status) in TERMINAL:
        check_run(update.run_id, deps)
    if token is not None and waiting is None:
        deps.transport.answer(token, response(update, deps.transport.environment, updated=applied is not None).body)


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The service's handler with its dependencies."""
    return queue_handler(
        deps.transport,
        deps.logger,
        {
            StatusUpdate: partial(on_status_update, deps=deps),
            RunSubmitted: partial(on_run_submitted, deps=deps),
            RunSplitCompleted: partial(on_run_changed, deps=deps),
            RunDrained: partial(on_run_changed, deps=deps),
            RunRecovered: partial(on_run_changed, deps=deps),
            RunTasksRecovered: partial(on_run_changed, deps=deps),
            RunCheckRequested: partial(on_run_changed, deps=deps),
            RunCancelRequested: partial(on_cancel_requested, deps=deps),
            RunCleanupRequested: partial(on_cleanup_requested, deps=deps),
        },
        {"aws.states/Step Functions Execution Status Change": partial(on_execution_ended, deps=deps)},
        errors=deps.ledger,
    )


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


@cache
def _update_dependencies() -> UpdateDependencies:
    return UpdateDependencies.from_environment()


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)


def update_status_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Entry point for a state machine that calls the function directly with a status update."""
    return update_status(event, _update_dependencies()).to_step_functions()
