"""The sweeper: finds chunks and runs that no queue message refers to any more, and repairs them.

It sends lost messages again, takes chunks back from dead workers, gives up exhausted chunks, repeats events until the
end of a run is recorded, and corrects counters. It reads the runs in the ledger's sparse index of open runs, and begins
with the run that was swept longest ago. It removes a run from the index when the run's end is recorded.

`sweep_decisions` decides; this module reads, sends and writes. Every write is conditional and every message may be
repeated, so a sweep may die at any point and two sweeps may run at the same time. The next sweep continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from prismline_contracts import (
    ChunkCompleted,
    ChunkFailed,
    ChunkItem,
    Envelope,
    Queue,
    RunCheckRequested,
    RunDrained,
    RunItem,
    dead_letter_queue_name,
    ending_of,
    now,
    queue_name,
    timestamp,
)
from prismline_dlq_consumer.sweep_decisions import (
    Census,
    GiveUp,
    Held,
    Resend,
    ResendRefit,
    RunNews,
    SayEnd,
    SweepLimits,
    drift,
    news_of,
    process_command,
    refit_command,
    settled,
    split_command,
    sweep_chunk,
    sweep_split,
    total_is_wrong,
)
from prismline_ledger import COUNTERS, Ledger, Patience
from prismline_runtime import (
    Delivery,
    PermanentError,
    Transport,
    aws_errors,
    batches,
    fault_point,
    service_metrics,
)

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType

#: Most runs in one sweep. The next sweep begins with the others.
RUNS_PER_SWEEP = 1000
#: Chunk items after which a sweep begins no other run: about 80 MB of reads.
CHUNKS_PER_SWEEP = 200_000
#: Most repairs of chunks in one sweep, so that the loss of many messages does not flood the queues.
REPAIRS_PER_SWEEP = 500
#: Messages that are sent, and then recorded, together: one batch of SQS.
RESEND_BATCH = 10
#: Seconds before the end of the invocation at which a sweep begins no other run.
DEADLINE_MARGIN_SECONDS = 60.0

#: Queue attributes with the numbers of messages that are visible, in flight, and delayed.
_DEPTHS: list[QueueAttributeNameType] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]


@dataclass(frozen=True)
class SweeperDependencies:
    """What the sweeper uses. `bucket_name` is the bucket that chunks are in."""

    ledger: Ledger
    transport: Transport
    sqs: SQSClient
    bucket_name: str
    patience: Patience
    limits: SweepLimits
    logger: Logger

    def held(self, queue: Queue) -> Held:
        """Where the messages of `queue` are: in the queue, only in its dead-letter queue, or nowhere."""
        name = queue_name(self.transport.environment, queue)
        if self._messages(name):
            return Held.QUEUE
        return Held.DEAD_LETTERS if self._messages(dead_letter_queue_name(name)) else Held.NOWHERE

    def _messages(self, queue: str) -> int:
        with aws_errors(f"count the messages of {queue}"):
            url = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
            attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=_DEPTHS)["Attributes"]
        return sum(int(attributes.get(name, "0")) for name in _DEPTHS)


@dataclass
class Tally:
    """The counts of a sweep. Each field is a metric with the same name in CamelCase."""

    runs_swept: int = 0
    chunks_swept: int = 0
    chunks_resent: int = 0
    chunks_given_up: int = 0
    #: `chunk.failed` events that an earlier sweep may not have published.
    ends_said: int = 0
    refits_resent: int = 0
    splits_resent: int = 0
    #: Drained runs whose end is not recorded.
    drains_said: int = 0
    checks_requested: int = 0
    #: Runs whose counters differed from their items. It is 0 unless there is a bug.
    ledger_drift: int = 0

    @property
    def repairs(self) -> int:
        """The number of repairs of chunks."""
        return self.chunks_resent + self.chunks_given_up + self.ends_said + self.refits_resent


def on_sweep(_event: dict[str, Any], delivery: Delivery, deps: SweeperDependencies) -> None:
    """Sweep, because the schedule says so."""
    sweep(deps, now=now(), deadline=delivery.deadline(DEADLINE_MARGIN_SECONDS))


def sweep(deps: SweeperDependencies, *, now: datetime, deadline: float = float("inf")) -> Tally:
    """Sweep the open runs until there are no more or a limit is reached.

    deadline: time (`time.monotonic` seconds) after which the sweep begins no other run.
    """
    tally = Tally()
    sweeping = _Sweep(deps, now, tally)
    try:
        for run in deps.ledger.open_runs():
            if (
                tally.runs_swept >= RUNS_PER_SWEEP
                or tally.chunks_swept >= CHUNKS_PER_SWEEP
                or tally.repairs >= REPAIRS_PER_SWEEP
                or time.monotonic() >= deadline
            ):
                break
            sweeping.visit(run)
    finally:
        _publish_metrics(tally, deps)
    return tally


class _Sweep:
    """One sweep over the open runs."""

    def __init__(self, deps: SweeperDependencies, now: datetime, tally: Tally) -> None:
        self._deps = deps
        self._now = now
        self._tally = tally
        #: Cached, because the sweep's own messages must not count.
        self._held = cache(deps.held)

    def visit(self, seen: RunItem) -> None:
        """Claim a run and repair it. An error in one run does not stop the sweep of the others."""
        with self._deps.logger.append_context_keys(run_id=seen.run_id, trace_id=seen.trace_id):
            try:
                run = self._deps.ledger.claim_sweep(seen)
                if run is not None:
                    self._tally.runs_swept += 1
                    self._mend(run)
            except (PermanentError, ValueError) as error:  # ValueError: an item that does not match its contract
                self._deps.logger.error("run_not_swept", extra={"reason": str(error)})

    def _mend(self, before: RunItem) -> None:
        """Repair the chunks, then the counters, which depend on them, and then the end, which depends on those."""
        ledger = self._deps.ledger
        self._mend_split(before)
        if before.unit == "task":  # a run of tasks has no chunks to repair, nor to count
            after, right, seen_to_all = before, True, True
        else:
            counted, seen_to_all = self._mend_chunks(before)
            after = ledger.run(before.run_id)
            right = settled(before, after) and not self._mend_counters(after, counted)
        run = ledger.drain(before.run_id)
        fault_point("sweep.drained", run_id=run.run_id)
        self._say(run)
        if right and seen_to_all:
            ledger.close_run(after)

    # ---- chunks

    def _mend_chunks(self, run: RunItem) -> tuple[Census, bool]:
        """Repair the run's chunks. Return their sums, and whether the limit allowed all repairs."""
        counted, seen_to_all = Census(), True
        lost: list[tuple[ChunkItem, str]] = []
        unfitted: list[ChunkItem] = []
        for chunk in self._deps.ledger.chunks(run.run_id):
            self._tally.chunks_swept += 1
            counted.add(chunk)
            decision = self._decide(chunk, run)
            if decision is None:
                continue
            if self._tally.repairs + len(lost) + len(unfitted) >= REPAIRS_PER_SWEEP:
                seen_to_all = False
                continue
            match decision:
                case Resend(reason):
                    lost.append((chunk, reason))
                case ResendRefit():
                    unfitted.append(chunk)
                case GiveUp(error):
                    self._give_up(chunk, run, error)
                case SayEnd():
                    self._say_end(chunk, run)
                    self._tally.ends_said += 1
        for batch in batches(lost, RESEND_BATCH):
            self._resend(batch, run)
        for refits in batches(unfitted, RESEND_BATCH):
            self._resend_refits(refits, run)
        return counted, seen_to_all

    def _decide(self, chunk: ChunkItem, run: RunItem) -> Resend | ResendRefit | GiveUp | SayEnd | None:
        return sweep_chunk(
            chunk,
            run,
            self._now,
            self._deps.patience,
            self._deps.limits,
            chunks=lambda: self._held(Queue.CHUNKS),
            refits=lambda: self._held(Queue.REFITS),
        )

    def _resend(self, lost: list[tuple[ChunkItem, str]], run: RunItem) -> None:
        """Send, then record. A sweep that dies in between sends again, which is harmless."""
        wrap, bucket_name = self._deps.transport.wrap, self._deps.bucket_name
        self._send(
            Queue.CHUNKS,
            run,
            (
                wrap(process_command(chunk, run, bucket_name), traceparent=run.traceparent, key=(chunk.chunk_id,))
                for chunk, _ in lost
            ),
        )
        for chunk, reason in lost:
            self._deps.ledger.record_resend(chunk, reason)
            self._tally.chunks_resent += 1
            self._deps.logger.warning("chunk_resent", extra={"chunk_id": chunk.chunk_id, "reason": reason})

    def _resend_refits(self, unfitted: list[ChunkItem], run: RunItem) -> None:
        wrap, bucket_name = self._deps.transport.wrap, self._deps.bucket_name
        self._send(
            Queue.REFITS,
            run,
            (
                wrap(refit_command(chunk, run, bucket_name), traceparent=run.traceparent, key=(chunk.chunk_id,))
                for chunk in unfitted
            ),
        )
        for chunk in unfitted:
            self._deps.ledger.record_refit_resend(chunk)
            self._tally.refits_resent += 1
            self._deps.logger.warning("refit_resent", extra={"chunk_id": chunk.chunk_id})

    def _give_up(self, chunk: ChunkItem, run: RunItem, error: str) -> None:
        finished = self._deps.ledger.give_up_chunk(chunk, error, unsaid=True)
        if not finished.changed:
            return  # the chunk has changed since it was read
        fault_point("sweep.given_up", run_id=run.run_id, chunk_id=chunk.chunk_id)
        self._tally.chunks_given_up += 1
        self._deps.logger.error("chunk_given_up", extra={"chunk_id": chunk.chunk_id, "reason": error})
        self._say_end(finished.chunk, run)

    def _say_end(self, chunk: ChunkItem, run: RunItem) -> None:
        self._publish(ending_of(chunk, run.survey), run, chunk.chunk_id)
        fault_point("sweep.said", run_id=run.run_id, chunk_id=chunk.chunk_id)
        self._deps.ledger.mark_said(chunk)

    # ---- the run

    def _mend_split(self, run: RunItem) -> None:
        decision = sweep_split(run, self._now, self._deps.limits)
        if decision is None:
            return
        command = split_command(run, self._deps.bucket_name)
        message = self._deps.transport.wrap(command, traceparent=run.traceparent, tasktoken=run.split_token)
        self._send(Queue.SPLIT, run, [message])
        self._deps.ledger.record_split_resend(run)
        self._tally.splits_resent += 1
        self._deps.logger.warning("split_resent", extra={"reason": decision.reason})

    def _mend_counters(self, run: RunItem, counted: Census) -> bool:
        """Correct the counters of `run`, which was read after its items were counted. False if they are right."""
        wrong = drift(run, counted)
        if not wrong and not total_is_wrong(run, counted):
            return False
        again = Census()
        for chunk in self._deps.ledger.chunks(run.run_id):
            again.add(chunk)
        if not again.confirms(counted):
            return True  # a chunk changed in the meantime; the next sweep counts again
        if wrong and not self._deps.ledger.correct_counters(run, wrong):
            return True
        self._tally.ledger_drift += 1
        self._deps.logger.error(
            "ledger_drift",
            extra={
                "was": {name: getattr(run, name) for name in (*COUNTERS, "chunks_total")},
                "counted": {**counted.counters(), "n_chunks": counted.n_chunks},
            },
        )
        return True

    def _say(self, run: RunItem) -> None:
        """Publish the event that makes the status service check the run, if it is due."""
        match news_of(run, self._now, self._deps.limits):
            case RunNews.DRAINED:
                drained = RunDrained.of(run)
                self._publish(drained, run, *drained.key)
                self._tally.drains_said += 1
            case RunNews.CHECK:
                self._publish(RunCheckRequested(run_id=run.run_id), run, timestamp(self._now))
                self._deps.ledger.record_check(run)
                self._tally.checks_requested += 1

    # ---- sending

    def _send(self, queue: Queue, run: RunItem, messages: Iterable[Envelope]) -> None:
        self._deps.transport.send(queue, messages)
        fault_point("sweep.sent", run_id=run.run_id)

    def _publish(
        self, event: ChunkCompleted | ChunkFailed | RunDrained | RunCheckRequested, run: RunItem, *key: str
    ) -> None:
        self._deps.transport.publish_event(event, traceparent=run.traceparent, key=key)


def _publish_metrics(tally: Tally, deps: SweeperDependencies) -> None:
    """Publish all counts, also zeros, because the alarm on drift needs data."""
    with service_metrics("Sweeper") as metrics:
        metrics.add_dimension("Environment", deps.transport.environment)
        for entry in fields(tally):
            name = entry.name.title().replace("_", "")
            metrics.add_metric(name, unit="Count", value=getattr(tally, entry.name))
