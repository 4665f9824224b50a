"""Facts that help to understand an alert: the queue's depth, the age of the waiting work, and its errors.

All facts are optional. A fact that cannot be read is left out, and the alert is posted anyway.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from aws_lambda_powertools import Logger
from pydantic import ValidationError

from prismline_alerting.alerts import Alert
from prismline_contracts.commands import Queue, dead_letter_queue_name, queue_name
from prismline_contracts.items import ChunkItem, ChunkStatus
from prismline_ledger import Ledger
from prismline_runtime import PrismlineError, aws_errors

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: Most errors that an alert shows.
MOST_ERRORS = 3
#: Size of the sample: runs, chunks of each run, and seconds for all reads. An alert does not wait for more.
RUNS, CHUNKS_PER_RUN, READ_SECONDS = 10, 2000, 5.0
#: Queues whose dead letters are about chunks, so that the ledger knows more about them.
CHUNK_QUEUES = (Queue.CHUNKS, Queue.REFITS)
#: The error that is shown for a deferred chunk without an error.
PUT_OFF = "Deferred: a resource that it needs is down."

#: Parts in which errors of the same kind differ: chunk ids and long hexadecimal numbers.
_PARTICULAR = re.compile(r"chunk-\d+|\b[0-9a-f-]*[0-9a-f]{8,}[0-9a-f-]*\b")

T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """The facts about an alert. None: not known."""

    #: Messages in the queue, hidden ones included.
    depth: int | None = None
    #: When the oldest waiting chunk was created.
    oldest: datetime | None = None
    #: The most frequent errors, each with its number of chunks in the sample.
    errors: tuple[tuple[str, int], ...] = ()


class FactFinder:
    """Reads the facts about an alert."""

    def __init__(self, sqs: SQSClient, ledger: Ledger, environment: str, logger: Logger) -> None:
        self._sqs = sqs
        self._ledger = ledger
        self._logger = logger
        self._chunk_queues = {dead_letter_queue_name(queue_name(environment, queue)) for queue in CHUNK_QUEUES}

    def find(self, alert: Alert) -> Facts:
        """The facts that can be read."""
        queue = alert.queue
        depth = self._attempt(lambda: self._depth(queue)) if queue else None
        chunks: list[ChunkItem] = []
        self._attempt(lambda: chunks.extend(self._chunks(alert)))  # keeps the chunks that were read before an error
        waiting = [chunk.created_at for chunk in chunks if not chunk.state.terminal and trouble_of(chunk)]
        return Facts(
            depth=depth,
            oldest=datetime.fromisoformat(min(waiting)) if waiting else None,
            errors=most_frequent(filter(None, map(trouble_of, chunks))),
        )

    def _attempt(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (PrismlineError, ValidationError) as error:
            self._logger.warning("facts_incomplete", extra={"reason": str(error)})
            return None

    def _depth(self, queue: str) -> int:
        with aws_errors(f"count the messages of {queue}"):
            url = self._sqs.get_queue_url(QueueName=queue)["QueueUrl"]
            attributes = self._sqs.get_queue_attributes(
                QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
            )["Attributes"]
        return sum(map(int, attributes.values()))

    def _chunks(self, alert: Alert) -> Iterator[ChunkItem]:
        """Chunks of the failed run or, if the alarm is about a queue of chunks, of open runs."""
        deadline = time.monotonic() + READ_SECONDS
        for run_id in self._runs(alert):
            for chunk in islice(self._ledger.chunks(run_id), CHUNKS_PER_RUN):
                if time.monotonic() > deadline:
                    return
                yield chunk

    def _runs(self, alert: Alert) -> Iterator[str]:
        if alert.run_id is not None:
            yield alert.run_id
        elif alert.queue in self._chunk_queues:
            for run in islice(self._ledger.open_runs(), RUNS):
                yield run.run_id


def trouble_of(chunk: ChunkItem) -> str | None:
    """The error of a chunk, or None."""
    if chunk.state is ChunkStatus.COMPLETED:
        return None
    return chunk.error or chunk.last_error or (PUT_OFF if chunk.deferred_at else None)


def most_frequent(errors: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """The most frequent errors with their counts. Errors that differ only in ids count as one."""
    shown: dict[str, str] = {}
    counted: Counter[str] = Counter()
    for error in errors:
        kind = _PARTICULAR.sub("…", error)
        shown.setdefault(kind, error)
        counted[kind] += 1
    return tuple((shown[kind], number) for kind, number in counted.most_common(MOST_ERRORS))
