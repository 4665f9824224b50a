"""The delivery limits of every queue: receives before a redrive, visibility timeout, retention.

The templates of the services deploy the same values. A test compares them with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts.commands import Queue

#: Retention of every dead-letter queue: the longest that SQS allows. A message keeps its age when SQS moves it, so the
#: retention of every other queue is shorter.
DEAD_LETTER_RETENTION_SECONDS = 14 * 86_400


@dataclass(frozen=True)
class QueueLimits:
    """What a queue does with a message that no consumer acknowledges."""

    #: Receives after which SQS moves the message to the dead-letter queue (`maxReceiveCount`).
    max_receives: int
    #: Visibility timeout, in seconds. A consumer may renew it.
    visibility_seconds: int
    #: Retention, in seconds.
    retention_seconds: int = 10 * 86_400


#: The limits of every queue.
LIMITS: Mapping[Queue, QueueLimits] = {
    Queue.SPLIT: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.CHUNKS: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.TASKS: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.REFITS: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.STATUS: QueueLimits(max_receives=5, visibility_seconds=180),
    Queue.RUNS: QueueLimits(max_receives=5, visibility_seconds=180),
    # A lost sweep needs no retry: the next one does its work.
    Queue.SWEEPS: QueueLimits(max_receives=5, visibility_seconds=960, retention_seconds=3600),
    Queue.RECOVERIES: QueueLimits(max_receives=5, visibility_seconds=960),
    # Discord may refuse alerts for hours. They wait in this queue, not in its dead-letter queue.
    Queue.ALERTS: QueueLimits(max_receives=100, visibility_seconds=720),
    Queue.EXPORTS: QueueLimits(max_receives=5, visibility_seconds=960),
    # A target may refuse a post for a day. It waits in this queue, where each attempt is a receive.
    Queue.WEBHOOKS: QueueLimits(max_receives=100, visibility_seconds=180),
}


def state_machine_name(environment: str) -> str:
    """The full name of the state machine that drives all runs of `environment`."""
    return f"prismline-{environment}-run"
