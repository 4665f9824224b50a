"""Takes the request of a recovery: works until the operation ends, must wait, or has no time left."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.deadletters import (
    DeadlettersRecover,
    DeadlettersRecovered,
    RecoveryCounts,
    RecoveryOperationItem,
)
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_dlq_consumer.recovery.archived_records import ArchivedRecords
from prismline_dlq_consumer.recovery.cancelled_run import continue_cancelled
from prismline_dlq_consumer.recovery.failed_chunks import FailedChunks
from prismline_dlq_consumer.recovery.failed_tasks import FailedTasks
from prismline_dlq_consumer.recovery.operation import Operation
from prismline_dlq_consumer.recovery.rounds import go_round
from prismline_ledger import LeaseLostError
from prismline_runtime import Message, PrismlineError


class Work(Protocol):
    """What an operation takes, window by window."""

    def take_window(self, after: str) -> bool:
        """Take and count the window after the cursor. False if nothing is left."""
        ...


def on_recover(request: DeadlettersRecover, message: Message, deps: Dependencies) -> None:
    """Continue the recovery that `request` names, and send another message unless it is over."""
    lease = timedelta(seconds=deps.settings.recovery_lease_seconds)
    item = deps.operations.claim(request, uuid.uuid4().hex, lease)
    if item.status == "COMPLETED":
        _announce_recovered(item, message, deps)
        return
    deadline = message.delivery.deadline(deps.settings.deadline_margin_seconds)
    with deps.logger.append_context_keys(operation_id=item.operation_id):
        try:
            with Operation(item, lease, deps) as operation:
                delay = _continue(operation, deadline)
        except LeaseLostError:
            raise
        except Exception:
            with suppress(PrismlineError):
                deps.operations.release(item)
            raise
        if operation.item.status == "COMPLETED":
            _announce_recovered(operation.item, message, deps)
        else:
            deps.operations.release(operation.item)
            # with a new time, because a recovery may last longer than the age at which a message is given up
            again = message.envelope.model_copy(update={"time": timestamp()})
            deps.transport.send(Queue.RECOVERIES, [again], delay_seconds=delay)


def _continue(operation: Operation, deadline: float) -> int:
    """Work until the operation ends, must wait for chunks, or `deadline` (`time.monotonic` seconds) is reached.

    Returns the delay, in seconds, until the operation should continue.
    """
    if operation.item.cancelled_at is not None:
        continue_cancelled(operation, operation.item.cancelled_at)
        return 0
    operation.delete_counted()
    work = _work_of(operation)
    while not operation.item.listed:
        if time.monotonic() >= deadline:
            return 0
        if work.take_window(operation.item.cursor or ""):
            continue
        if operation.item.dry_run:
            operation.finish()
            return 0
        break
    operation.await_endings()
    left = go_round(operation, deadline)
    if left is None:
        return 0
    if left == 0:
        operation.finish()
        return 0
    operation.deps.logger.info("recovery_waits", extra={"left": left, "rounds": operation.item.rounds})
    return operation.deps.settings.letter_patience.delay(operation.item.rounds)


def _work_of(operation: Operation) -> Work:
    """The kind of the operation."""
    if not operation.item.retry:
        return ArchivedRecords(operation)
    run = operation.run()
    return FailedTasks(operation, run) if run is not None and run.unit == "task" else FailedChunks(operation)


def _announce_recovered(item: RecoveryOperationItem, message: Message, deps: Dependencies) -> None:
    counts = item.model_dump(include=set(RecoveryCounts.model_fields))
    recovered = DeadlettersRecovered(
        operation_id=item.operation_id,
        prefix=item.prefix,
        only_run=item.only_run,
        dry_run=item.dry_run,
        finished_at=item.finished_at or item.updated_at,
        **counts,
    )
    traceparent = message.envelope.traceparent
    deps.transport.publish_event(recovered, traceparent=traceparent, key=(item.operation_id,))
    deps.logger.info("deadletters_recovered", extra={"operation_id": item.operation_id, **counts})
