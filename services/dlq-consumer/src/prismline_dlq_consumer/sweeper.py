"""The sweeper: finds chunks and runs that no queue message refers to any more, and repairs them.

It sends lost messages again, takes chunks back from dead workers, gives up exhausted chunks, repeats events until the
end of a run is recorded, and corrects counters. It reads the runs in the ledger's sparse index of open runs, and begins
with the run that was swept longest ago. It removes a run from the index when the run's end is recorded.

`sweep_decisions` decides; this module reads, sends and writes. Every write is conditional and every message may be
repeated, so a sweep may die at any point and two sweeps may run at the same time. The next sweep continues.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import (
    ChunkProcess,
    Queue,
    TasksProcess,
    dead_letter_queue_name,
    queue_name,
    run_queue_prefix,
    task_queue_of,
)
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import ChunkCompleted, ChunkFailed, RunCheckRequested, RunDrained, ending_of
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.tasks import MAX_TASKS_PER_MESSAGE, ShardItem, task_id
from prismline_dlq_consumer.sweep_decisions import (
    DEADLINE_EXCEEDED,
    AnnounceEnd,
    ChunkTotals,
    GiveUp,
    MessageLocation,
    Resend,
    ResendRefit,
    RunAnnouncement,
    SweepLimits,
    counters_unchanged,
    drift,
    due_announcement,
    ingest_command,
    refit_command,
    shard_drift,
    split_command,
    sweep_chunk,
    sweep_deadline,
    sweep_failures,
    sweep_finalization,
    sweep_split,
    sweep_submission,
    sweep_tasks,
    total_is_wrong,
)
from prismline_ledger import COUNTERS, TOO_MANY_FAILURES, Ledger, Patience, Tolerance
from prismline_runtime import (
    NO_QUEUE_CODES,
    Delivery,
    PrismlineError,
    RunQueues,
    TransientError,
    Transport,
    aws_errors,
    batches,
    error_code,
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
    run_queues: RunQueues
    bucket_name: str
    patience: Patience
    limits: SweepLimits
    logger: Logger

    def locate(self, queue: str) -> MessageLocation:
        """Where the messages of `queue` (its short name) are: in it, only in its dead-letter queue, or nowhere.

        The queue of a single run shares the dead-letter queue of the queue `tasks`. It may be gone: then it holds
        nothing.
        """
        environment = self.transport.environment
        name = queue_name(environment, queue)
        own = name.startswith(run_queue_prefix(environment))
        if self._messages(name, may_be_gone=own):
            return MessageLocation.QUEUE
        dead_letters = dead_letter_queue_name(queue_name(environment, Queue.TASKS) if own else name)
        return MessageLocation.DEAD_LETTERS if self._messages(dead_letters) else MessageLocation.NOWHERE

    def _messages(self, queue: str, *, may_be_gone: bool = False) -> int:
        with aws_errors(f"count the messages of {queue}"):
            try:
                url = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
                attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=_DEPTHS)["Attributes"]
            except ClientError as error:
                if may_be_gone and error_code(error) in NO_QUEUE_CODES:
                    return 0
                raise
        return sum(int(attributes.get(name, "0")) for name in _DEPTHS)


@dataclass
class SweepCounts:
    """The counts of a sweep. Each field is a metric with the same name in CamelCase."""

    runs_swept: int = 0
    #: Runs whose sweep ended with an error.
    runs_not_swept: int = 0
    chunks_swept: int = 0
    chunks_resent: int = 0
    chunks_given_up: int = 0
    #: Ends of chunks that an earlier sweep, or a worker, may not have published.
    chunk_ends_announced: int = 0
    refits_resent: int = 0
    splits_resent: int = 0
    #: Drained runs whose end is not recorded.
    drains_announced: int = 0
    checks_requested: int = 0
    #: Runs that were stopped at their deadline.
    deadlines_passed: int = 0
    #: Runs that were stopped because more chunks or tasks had failed than they tolerate.
    stopped_early: int = 0
    #: Tasks whose messages were sent again.
    tasks_resent: int = 0
    #: Queues of single runs that were deleted.
    queues_deleted: int = 0
    #: Runs whose counters differed from their items. It is 0 unless there is a bug.
    ledger_drift: int = 0

    @property
    def repairs(self) -> int:
        """The number of repairs of chunks."""
        return self.chunks_resent + self.chunks_given_up + self.chunk_ends_announced + self.refits_resent


def on_sweep(_event: dict[str, Any], delivery: Delivery, deps: SweeperDependencies) -> None:
    """Handle the schedule's event: make one sweep."""
    sweep(deps, now=now(), deadline=delivery.deadline(DEADLINE_MARGIN_SECONDS))


def sweep(deps: SweeperDependencies, *, now: datetime, deadline: float = float("inf")) -> SweepCounts:
    """Sweep the open runs until there are no more or a limit is reached.

    deadline: time (`time.monotonic` seconds) after which the sweep begins no other run.
    """
    counts = SweepCounts()
    sweeping = _Sweep(deps, now, counts)
    try:
        for run in deps.ledger.open_runs():
            if (
                counts.runs_swept >= RUNS_PER_SWEEP
                or counts.chunks_swept >= CHUNKS_PER_SWEEP
                or counts.repairs >= REPAIRS_PER_SWEEP
                or time.monotonic() >= deadline
            ):
                break
            sweeping.visit(run)
        sweeping.delete_leftover_queues()
    finally:
        _publish_metrics(counts, deps)
    return counts


class _Sweep:
    """One sweep over the open runs."""

    def __init__(self, deps: SweeperDependencies, now: datetime, counts: SweepCounts) -> None:
        self._deps = deps
        self._now = now
        self._counts = counts
        #: Cached, because the sweep's own messages must not count.
        self._locate = cache(deps.locate)

    def visit(self, seen: RunItem) -> None:
        """Claim a run and repair it. No error in one run stops the sweep of the others: the next sweep tries again."""
        with self._deps.logger.append_context_keys(run_id=seen.run_id, trace_id=seen.trace_id):
            try:
                run = self._deps.ledger.claim_sweep(seen)
                if run is not None:
                    self._counts.runs_swept += 1
                    self._mend(run)
            except Exception as error:
                self._counts.runs_not_swept += 1
                known = isinstance(error, PrismlineError)
                self._deps.logger.error("run_not_swept", extra={"reason": str(error)}, exc_info=not known)

    def _mend(self, before: RunItem) -> None:
        """Repair the chunks first, then the counters, which depend on them, then the end, which depends on both."""
        ledger = self._deps.ledger
        self._mend_split(before)
        self._mind_deadline(before)
        self._mind_failures(before)
        if before.unit == "task":
            self._mend_task_run(before)
            return
        if before.unit != "chunk":
            self._deps.logger.info("run_of_newer_release", extra={"unit": before.unit})
            return
        shards = self._shards(before)
        counted, seen_to_all = self._mend_chunks(before)
        after = ledger.run(before.run_id)
        unmoved = counters_unchanged(before, after) and shards == self._shards(after)
        right = unmoved and not self._mend_counters(after, shards, counted)
        run = ledger.drain(before.run_id)
        self._announce(run)
        if right and seen_to_all:
            ledger.close_run(after)

    # ---- chunks

    def _mend_chunks(self, run: RunItem) -> tuple[ChunkTotals, bool]:
        """Repair the run's chunks. Return their sums, and whether the limit allowed all repairs."""
        counted, seen_to_all = ChunkTotals(), True
        lost: list[tuple[ChunkItem, str]] = []
        unfitted: list[ChunkItem] = []
        for chunk in self._deps.ledger.chunks(run.run_id):
            self._counts.chunks_swept += 1
            counted.add(chunk)
            decision = self._decide(chunk, run)
            if decision is None:
                continue
            if self._counts.repairs + len(lost) + len(unfitted) >= REPAIRS_PER_SWEEP:
                seen_to_all = False
                continue
            match decision:
                case Resend(reason):
                    lost.append((chunk, reason))
                case ResendRefit():
                    unfitted.append(chunk)
                case GiveUp(error):
                    self._give_up(chunk, run, error)
                case AnnounceEnd():
                    self._announce_end(chunk, run)
                    self._counts.chunk_ends_announced += 1
        for batch in batches(lost, RESEND_BATCH):
            self._resend(batch, run)
        for refits in batches(unfitted, RESEND_BATCH):
            self._resend_refits(refits, run)
        return counted, seen_to_all

    def _decide(self, chunk: ChunkItem, run: RunItem) -> Resend | ResendRefit | GiveUp | AnnounceEnd | None:
        return sweep_chunk(chunk, run, self._now, self._deps.patience, self._deps.limits, self._locate)

    def _resend(self, lost: list[tuple[ChunkItem, str]], run: RunItem) -> None:
        """Send, then record. A sweep that dies in between sends again, which is harmless."""
        wrap, bucket_name = self._deps.transport.wrap, self._deps.bucket_name
        self._deps.transport.send(
            Queue.CHUNKS,
            (
                wrap(
                    ChunkProcess.of(chunk, run, bucket_name, attempt=chunk.resends + 2),
                    traceparent=run.traceparent,
                    key=(chunk.chunk_id,),
                )
                for chunk, _ in lost
            ),
        )
        for chunk, reason in lost:
            self._deps.ledger.record_resend(chunk, reason)
            self._counts.chunks_resent += 1
            self._deps.logger.warning("chunk_resent", extra={"chunk_id": chunk.chunk_id, "reason": reason})

    def _resend_refits(self, unfitted: list[ChunkItem], run: RunItem) -> None:
        wrap, bucket_name = self._deps.transport.wrap, self._deps.bucket_name
        self._deps.transport.send(
            Queue.REFITS,
            (
                wrap(refit_command(chunk, run, bucket_name), traceparent=run.traceparent, key=(chunk.chunk_id,))
                for chunk in unfitted
            ),
        )
        for chunk in unfitted:
            self._deps.ledger.record_refit_resend(chunk)
            self._counts.refits_resent += 1
            self._deps.logger.warning("refit_resent", extra={"chunk_id": chunk.chunk_id})

    def _give_up(self, chunk: ChunkItem, run: RunItem, error: str) -> None:
        finished = self._deps.ledger.give_up_chunk(chunk, error, announcement_pending=True)
        if not finished.changed:
            return  # the chunk has changed since it was read
        self._counts.chunks_given_up += 1
        self._deps.logger.error("chunk_given_up", extra={"chunk_id": chunk.chunk_id, "reason": error})
        self._announce_end(finished.chunk, run)

    def _announce_end(self, chunk: ChunkItem, run: RunItem) -> None:
        self._publish(ending_of(chunk, run.survey), run, chunk.chunk_id)
        self._deps.ledger.mark_announced(chunk)

    # ---- runs of tasks

    def _mend_task_run(self, before: RunItem) -> None:
        """Drain the run, send lost tasks again and announce its end. Once the end is recorded, close the run.

        Closing also deletes the run's own queue.

        The counters are not compared with the items: that would read a million items in every sweep.
        """
        ledger = self._deps.ledger
        run = ledger.drain(before.run_id)
        self._mend_tasks(run)
        self._announce(run)
        self._mend_finalization(run)
        if run.ended_at is None or due_finalization(run) is not None:
            return
        if run.task_queue is not None:
            if not ledger.forget_task_queue(run):
                return  # somebody continues the run, which needs its queue
            self._delete_queue(run.task_queue)
        ledger.close_run(run)

    def _mend_tasks(self, run: RunItem) -> None:
        ended = self._deps.ledger.counts(run).ended
        queue = task_queue_of(run, self._deps.transport.environment)
        progress = sweep_tasks(run, ended, self._now, self._deps.limits, tasks=lambda: self._locate(queue))
        if progress.resend is not None:
            latest = self._deps.ledger.get_run(run.run_id)
            if latest is None or self._deps.ledger.counts(latest).ended != ended:
                return  # it was deleted, or made progress, while its queue was read
            self._resend_tasks(run, queue, progress.resend)
        if progress.record is not None:
            self._deps.ledger.record_progress(run, progress.record, resent=progress.resend is not None)

    def _resend_tasks(self, run: RunItem, queue: str, reason: str) -> None:
        """Send all tasks that have not ended. A sweep that dies in between sends them again, which is harmless.

        If the run's own queue is gone, it is created first.
        """
        if run.task_queue is not None:
            self._deps.run_queues.ensure(run.run_id)
        wrap, bucket_name, sent = self._deps.transport.wrap, self._deps.bucket_name, 0
        attempt = run.task_resends + 2  # ingestion sent the first
        for _, shard in groupby(self._deps.ledger.tasks(run), key=lambda task: task.PK):
            waiting = (task.task_id for task in shard if not task.state.terminal)
            for names in batches(waiting, MAX_TASKS_PER_MESSAGE):
                command = TasksProcess.of(run, names, bucket_name, attempt=attempt)
                message = wrap(command, traceparent=run.traceparent, key=(names[0], "resend", str(attempt)))
                self._deps.transport.send(queue, [message])
                sent += len(names)
        self._counts.tasks_resent += sent
        self._deps.logger.warning("tasks_resent", extra={"tasks": sent, "reason": reason})

    def _mend_finalization(self, run: RunItem) -> None:
        """Send the first task of a run again, which has ended, so that a worker finalizes the run."""
        queue = task_queue_of(run, self._deps.transport.environment)
        lost = sweep_finalization(run, self._now, self._deps.limits, tasks=lambda: self._locate(queue))
        if lost is None:
            return
        if run.task_queue is not None:
            self._deps.run_queues.ensure(run.run_id)
        command = TasksProcess.of(run, [task_id(run.run_id, 0)], self._deps.bucket_name)
        moment = timestamp(self._now)
        message = self._deps.transport.wrap(command, traceparent=run.traceparent, key=("finalize", moment))
        self._deps.transport.send(queue, [message])
        self._counts.tasks_resent += 1
        self._deps.logger.warning("finalization_resent", extra={"reason": lost.reason})

    def _delete_queue(self, name: str) -> None:
        self._deps.run_queues.delete(name)
        self._counts.queues_deleted += 1
        self._deps.logger.info("run_queue_deleted", extra={"queue": name})

    def delete_leftover_queues(self) -> None:
        """Delete queues of runs that have ended or no longer exist, in case a sweep died before it deleted them."""
        try:
            for name, run_id in self._deps.run_queues.list():
                run = self._deps.ledger.get_run(run_id)
                if run is None or (run.ended_at is not None and run.task_queue is None):
                    self._delete_queue(name)
        except TransientError as error:  # the next sweep deletes the others
            self._deps.logger.warning("queues_not_deleted", extra={"reason": str(error)})

    # ---- the run

    def _mind_deadline(self, run: RunItem) -> None:
        update = sweep_deadline(run, self._now)
        if update is None:
            return
        message = self._deps.transport.wrap(update, traceparent=run.traceparent, key=(DEADLINE_EXCEEDED,))
        self._deps.transport.send(Queue.STATUS, [message])
        self._counts.deadlines_passed += 1
        self._deps.logger.warning("run_deadline_passed", extra={"deadline_at": run.deadline_at})

    def _mind_failures(self, run: RunItem) -> None:
        if not Tolerance.of(run).given:
            return
        update = sweep_failures(run, self._deps.ledger.counts(run), self._now)
        if update is None:
            return
        message = self._deps.transport.wrap(update, traceparent=run.traceparent, key=(TOO_MANY_FAILURES,))
        self._deps.transport.send(Queue.STATUS, [message])
        self._counts.stopped_early += 1
        self._deps.logger.warning("run_stopped_early", extra={"tolerated": Tolerance.of(run).text})

    def _mend_split(self, run: RunItem) -> None:
        wrap, bucket_name = self._deps.transport.wrap, self._deps.bucket_name
        messages: list[Envelope] = []
        reasons: list[str] = []
        if (lost := sweep_submission(run, self._now, self._deps.limits)) is not None:
            command, moment = ingest_command(run, bucket_name), timestamp(self._now)
            messages.append(wrap(command, traceparent=run.traceparent, key=(moment,)))
            reasons.append(lost.reason)
        if (unsplit := sweep_split(run, self._now, self._deps.limits)) is not None:
            split = split_command(run, bucket_name)
            messages.append(wrap(split, traceparent=run.traceparent, tasktoken=run.split_token))
            reasons.append(unsplit.reason)
        if not messages:
            return
        self._deps.transport.send(Queue.SPLIT, messages)
        self._deps.ledger.record_split_resend(run)
        self._counts.splits_resent += 1
        self._deps.logger.warning("split_resent", extra={"reason": " ".join(reasons)})

    def _shards(self, run: RunItem) -> list[ShardItem]:
        """The counters of the run's shards, if it has several."""
        return self._deps.ledger.shards(run) if run.shard_count > 1 else []

    def _mend_counters(self, run: RunItem, shards: list[ShardItem], counted: ChunkTotals) -> bool:
        """Correct the counters of `run` and its shards, which were read after the count. False if they are right."""
        wrong, wrong_shards = drift(run, counted), shard_drift(shards, counted)
        if not wrong and not wrong_shards and not total_is_wrong(run, counted):
            return False
        again = ChunkTotals()
        for chunk in self._deps.ledger.chunks(run.run_id):
            again.add(chunk)
        if not again.confirms(counted):
            return True  # a chunk changed in the meantime; the next sweep counts again
        if wrong and not self._deps.ledger.correct_counters(run, wrong):
            return True
        for shard, completed, failed in wrong_shards:
            self._deps.ledger.correct_shard(shard, completed=completed, failed=failed)
        self._counts.ledger_drift += 1
        self._deps.logger.error(
            "ledger_drift",
            extra={
                "was": {name: getattr(run, name) for name in (*COUNTERS, "chunks_total")},
                "shards": [shard.model_dump(exclude={"SK"}) for shard, *_ in wrong_shards],
                "counted": {**counted.counters(), "n_chunks": counted.n_chunks},
            },
        )
        return True

    def _announce(self, run: RunItem) -> None:
        """Publish the event that makes the status service check the run, if it is due."""
        match due_announcement(run, self._now, self._deps.limits):
            case RunAnnouncement.DRAINED:
                drained = RunDrained.of(run)
                self._publish(drained, run, *drained.key)
                self._counts.drains_announced += 1
            case RunAnnouncement.CHECK:
                self._publish(RunCheckRequested(run_id=run.run_id), run, timestamp(self._now))
                self._deps.ledger.record_check(run)
                self._counts.checks_requested += 1

    # ---- publishing

    def _publish(
        self, event: ChunkCompleted | ChunkFailed | RunDrained | RunCheckRequested, run: RunItem, *key: str
    ) -> None:
        self._deps.transport.publish_event(event, traceparent=run.traceparent, key=key)


def _publish_metrics(counts: SweepCounts, deps: SweeperDependencies) -> None:
    """Publish all counts, including zeros, because the alarm on drift needs data."""
    with service_metrics("Sweeper") as metrics:
        metrics.add_dimension("Environment", deps.transport.environment)
        for entry in fields(counts):
            name = entry.name.title().replace("_", "")
            metrics.add_metric(name, unit="Count", value=getattr(counts, entry.name))
