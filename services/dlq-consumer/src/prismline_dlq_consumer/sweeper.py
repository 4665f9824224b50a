"""The sweeper reads the ledger and mends what no message will bring up again.

It sends messages again that were lost, takes chunks back from workers that died, gives up those that are exhausted,
says endings until they are heard, and corrects counters. It looks at the runs in the ledger's sparse index of open
runs, the one that was swept longest ago first, and takes a run out of the index once its end was heard.

`sweep_decisions` decides; this module reads, sends and writes. Each write is conditional and each message may be
repeated, so that a sweep may die anywhere and two may run at once; the next sweep does what one leaves undone.
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
    ChunkFailed,
    ChunkItem,
    Envelope,
    Queue,
    RunCheckRequested,
    RunDrained,
    RunItem,
    dead_letter_queue_name,
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
    SayFailed,
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

#: Runs that one sweep looks at; the others are first in line at the next one.
RUNS_PER_SWEEP = 1000
#: Chunk items after which a sweep begins no further run: some 80 MB of reads.
CHUNKS_PER_SWEEP = 200_000
#: Chunks that one sweep sends again, gives up or speaks of, so that a mass loss is mended in waves and not in a flood.
REPAIRS_PER_SWEEP = 500
#: Chunks whose messages are sent, then recorded, together: one call to SQS.
RESEND_BATCH = 10
#: Time in seconds kept back from an invocation's, so that a sweep ends before it is ended.
DEADLINE_MARGIN_SECONDS = 60.0

#: What SQS says of a queue's messages: waiting, being worked on, and not due yet.
_DEPTHS: list[QueueAttributeNameType] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]


@dataclass(frozen=True)
class SweeperDependencies:
    """What the sweeper needs. `bucket` is the name of the bucket that chunks are in."""

    ledger: Ledger
    transport: Transport
    sqs: SQSClient
    bucket: str
    patience: Patience
    limits: SweepLimits
    logger: Logger

    def held(self, queue: Queue) -> Held:
        """Whether the queue or its dead-letter queue holds a message, visible or not."""
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
    """What a sweep found. Its fields are the metrics, in CamelCase."""

    runs_swept: int = 0
    chunks_swept: int = 0
    chunks_resent: int = 0
    chunks_given_up: int = 0
    #: Failures that an earlier sweep had died before saying.
    failures_said: int = 0
    refits_resent: int = 0
    splits_resent: int = 0
    #: Runs that are drained and whose end was not heard.
    drains_said: int = 0
    checks_requested: int = 0
    #: Runs whose numbers disagreed with their items: a bug somewhere, expected to be 0.
    ledger_drift: int = 0

    @property
    def repairs(self) -> int:
        """Chunks that something was done about."""
        return self.chunks_resent + self.chunks_given_up + self.failures_said + self.refits_resent


def on_sweep(_event: dict[str, Any], delivery: Delivery, deps: SweeperDependencies) -> None:
    """The schedule says that it is time for a sweep."""
    sweep(deps, now=now(), deadline=delivery.deadline(DEADLINE_MARGIN_SECONDS))


def sweep(deps: SweeperDependencies, *, now: datetime, deadline: float = float("inf")) -> Tally:
    """Look at open runs until there are no more or a bound is reached, and mend what is broken.

    deadline: moment (`time.monotonic` seconds) after which no further run is begun.
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
    """One sweep over many runs."""

    def __init__(self, deps: SweeperDependencies, now: datetime, tally: Tally) -> None:
        self._deps = deps
        self._now = now
        self._tally = tally
        #: As it was when the sweep first asked: before it sent anything.
        self._held = cache(deps.held)

    def visit(self, seen: RunItem) -> None:
        """Take the run, unless another sweep has it, and mend it; what is wrong with it stops no other run."""
        with self._deps.logger.append_context_keys(run_id=seen.run_id, trace_id=seen.trace_id):
            try:
                run = self._deps.ledger.claim_sweep(seen)
                if run is not None:
                    self._tally.runs_swept += 1
                    self._mend(run)
            except (PermanentError, ValueError) as error:  # ValueError: an item that is not what the contract says
                self._deps.logger.error("run_not_swept", extra={"reason": str(error)})

    def _mend(self, before: RunItem) -> None:
        """Chunks first, then the counters that follow from them, then the end that follows from the counters."""
        ledger = self._deps.ledger
        self._mend_split(before)
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
        """Mend the run's chunks. What their items add up to, and whether there was room to see to all of them."""
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
                case SayFailed(error):
                    self._say_failed(chunk, run, error)
                    self._tally.failures_said += 1
        for batch in batches(lost, RESEND_BATCH):
            self._resend(batch, run)
        for refits in batches(unfitted, RESEND_BATCH):
            self._resend_refits(refits, run)
        return counted, seen_to_all

    def _decide(self, chunk: ChunkItem, run: RunItem) -> Resend | ResendRefit | GiveUp | SayFailed | None:
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
        """Send first, then record: a sweep that dies in between sends twice, which does no harm."""
        wrap, bucket = self._deps.transport.wrap, self._deps.bucket
        self._send(
            Queue.CHUNKS,
            run,
            (
                wrap(process_command(chunk, run, bucket), traceparent=run.traceparent, key=(chunk.chunk_id,))
                for chunk, _ in lost
            ),
        )
        for chunk, reason in lost:
            self._deps.ledger.record_resend(chunk, reason)
            self._tally.chunks_resent += 1
            self._deps.logger.warning("chunk_resent", extra={"chunk_id": chunk.chunk_id, "reason": reason})

    def _resend_refits(self, unfitted: list[ChunkItem], run: RunItem) -> None:
        wrap, bucket = self._deps.transport.wrap, self._deps.bucket
        self._send(
            Queue.REFITS,
            run,
            (
                wrap(refit_command(chunk, run, bucket), traceparent=run.traceparent, key=(chunk.chunk_id,))
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
            return  # something has happened to it since it was read
        fault_point("sweep.given_up", run_id=run.run_id, chunk_id=chunk.chunk_id)
        self._tally.chunks_given_up += 1
        self._deps.logger.error("chunk_given_up", extra={"chunk_id": chunk.chunk_id, "reason": error})
        self._say_failed(finished.chunk, run, error)

    def _say_failed(self, chunk: ChunkItem, run: RunItem, error: str) -> None:
        failed = ChunkFailed(run_id=run.run_id, survey=run.survey, chunk_id=chunk.chunk_id, error=error)
        self._publish(failed, run, chunk.chunk_id)
        fault_point("sweep.said", run_id=run.run_id, chunk_id=chunk.chunk_id)
        self._deps.ledger.mark_said(chunk)

    # ---- the run

    def _mend_split(self, run: RunItem) -> None:
        decision = sweep_split(run, self._now, self._deps.limits)
        if decision is None:
            return
        command = split_command(run, self._deps.bucket)
        message = self._deps.transport.wrap(command, traceparent=run.traceparent, tasktoken=run.split_token)
        self._send(Queue.SPLIT, run, [message])
        self._deps.ledger.record_split_resend(run)
        self._tally.splits_resent += 1
        self._deps.logger.warning("split_resent", extra={"reason": decision.reason})

    def _mend_counters(self, run: RunItem, counted: Census) -> bool:
        """Correct the numbers of `run`, read after the items were counted. False: there is nothing wrong with them."""
        wrong = drift(run, counted)
        if not wrong and not total_is_wrong(run, counted):
            return False
        again = Census()
        for chunk in self._deps.ledger.chunks(run.run_id):
            again.add(chunk)
        if not again.confirms(counted):
            return True  # something moves: the next sweep looks again
        if wrong and not self._deps.ledger.correct_counters(run, wrong):
            return True
        self._tally.ledger_drift += 1
        self._deps.logger.error(
            "ledger_drift",
            extra={
                "was": {name: getattr(run, name) for name in (*COUNTERS, "jobs_total")},
                "counted": {**counted.counters(), "n_chunks": counted.n_chunks},
            },
        )
        return True

    def _say(self, run: RunItem) -> None:
        """Have the status service look at the run, if it is time."""
        match news_of(run, self._now, self._deps.limits):
            case RunNews.DRAINED:
                drained = RunDrained.of(run)
                self._publish(drained, run, *drained.key)
                self._tally.drains_said += 1
            case RunNews.CHECK:
                self._publish(RunCheckRequested(run_id=run.run_id), run, timestamp(self._now))
                self._deps.ledger.record_check(run)
                self._tally.checks_requested += 1

    # ---- the way out

    def _send(self, queue: Queue, run: RunItem, messages: Iterable[Envelope]) -> None:
        self._deps.transport.send(queue, messages)
        fault_point("sweep.sent", run_id=run.run_id)

    def _publish(self, event: ChunkFailed | RunDrained | RunCheckRequested, run: RunItem, *key: str) -> None:
        self._deps.transport.publish(self._deps.transport.wrap(event, traceparent=run.traceparent, key=key))


def _publish_metrics(tally: Tally, deps: SweeperDependencies) -> None:
    """Zeros included: an alarm on drift needs data to be quiet."""
    with service_metrics("Sweeper") as metrics:
        metrics.add_dimension("Environment", deps.transport.environment)
        for entry in fields(tally):
            name = entry.name.title().replace("_", "")
            metrics.add_metric(name, unit="Count", value=getattr(tally, entry.name))
