"""How often a queue gives a message, for how long it hides it, and for how long it keeps it: one table for all.

The templates say the same of the deployed queues; a test holds them to this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts.commands import Queue

#: How long a dead-letter queue keeps a message: the longest that SQS allows. The clock does not start again when a
#: message is moved, so every other queue keeps its messages for less.
DEAD_LETTER_RETENTION_SECONDS = 14 * 86_400


@dataclass(frozen=True)
class QueueLimits:
    """What a queue does with a message that is not acknowledged."""

    #: Receives after which SQS moves the message to the dead-letter queue (`maxReceiveCount`).
    max_receives: int
    #: Seconds that a received message stays hidden, unless its consumer renews that.
    visibility_seconds: int
    #: Seconds that a message is kept.
    retention_seconds: int = 10 * 86_400


#: Every queue's limits.
LIMITS: Mapping[Queue, QueueLimits] = {
    Queue.SPLIT: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.CHUNKS: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.REFITS: QueueLimits(max_receives=5, visibility_seconds=960),
    Queue.STATUS: QueueLimits(max_receives=5, visibility_seconds=180),
    Queue.RUNS: QueueLimits(max_receives=5, visibility_seconds=180),
    # A sweep that was missed is not made up for: the next one does its work.
    Queue.SWEEPS: QueueLimits(max_receives=5, visibility_seconds=960, retention_seconds=3600),
    Queue.RECOVERIES: QueueLimits(max_receives=5, visibility_seconds=960),
    # Discord may refuse for hours: an alert waits in its own queue.
    Queue.ALERTS: QueueLimits(max_receives=100, visibility_seconds=720),
}


def state_machine_name(environment: str) -> str:
    """The name of the state machine that drives the runs of `environment`."""
    return f"prismline-{environment}-run"
