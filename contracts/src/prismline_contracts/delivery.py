"""The delivery limits of every queue: receives before a redrive, timeout of its function, visibility, retention.

The templates of the services deploy the same values. A test compares them with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismline_contracts.commands import Queue
from prismline_contracts.pools import POOL_QUEUE_PREFIX

#: Retention of every dead-letter queue: the longest that SQS allows. A message keeps its age when SQS moves it, so the
#: retention of every other queue is shorter.
DEAD_LETTER_RETENTION_SECONDS = 14 * 86_400

#: Visibility timeout of a queue, as a multiple of its function's timeout. AWS recommends six for Lambda, because a
#: throttled function takes longer.
VISIBILITY_PER_TIMEOUT = 6
#: Timeout of the function that reads the dead-letter queues, in seconds.
DEAD_LETTER_FUNCTION_SECONDS = 30


@dataclass(frozen=True)
class QueueLimits:
    """What a queue does with a message that no consumer acknowledges."""

    #: Receives after which SQS moves the message to the dead-letter queue (`maxReceiveCount`).
    max_receives: int = 5
    #: Timeout of the function that processes the messages in Lambda, in seconds.
    function_seconds: int = 900
    #: Retention, in seconds.
    retention_seconds: int = 10 * 86_400

    @property
    def visibility_seconds(self) -> int:
        """Visibility timeout, in seconds. A consumer outside Lambda sets a shorter one and renews it."""
        return VISIBILITY_PER_TIMEOUT * self.function_seconds


#: The limits of the queues that need others than the defaults.
_OTHER_LIMITS: Mapping[Queue, QueueLimits] = {
    Queue.STATUS: QueueLimits(function_seconds=30),
    Queue.RUNS: QueueLimits(function_seconds=30),
    # A lost sweep needs no retry: the next one does its work.
    Queue.SWEEPS: QueueLimits(retention_seconds=3600),
    # Discord may refuse alerts for hours. They wait in this queue, not in its dead-letter queue.
    Queue.ALERTS: QueueLimits(max_receives=100, function_seconds=120),
    # A webhook's target may refuse requests for a day. The message waits in this queue, and each attempt is a receive.
    Queue.WEBHOOKS: QueueLimits(max_receives=100, function_seconds=30),
}
#: The limits of every queue.
LIMITS: Mapping[Queue, QueueLimits] = {queue: _OTHER_LIMITS.get(queue, QueueLimits()) for queue in Queue}


def limits_of(queue: str) -> QueueLimits | None:
    """The limits of a queue, by its short name. That of a pool has the limits of the shared queue of tasks."""
    if queue.startswith(POOL_QUEUE_PREFIX):
        return LIMITS[Queue.TASKS]
    return LIMITS[Queue(queue)] if queue in set(Queue) else None


def state_machine_name(environment: str) -> str:
    """The full name of the state machine that drives all runs of `environment`."""
    return f"prismline-{environment}-run"
