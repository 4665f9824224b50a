"""The sweeper: what no message will ever bring up again, it finds in the ledger and mends.

A lease that ran out, a message that is lost, a drain that nobody saw, a split that never ended, counters that disagree
with the items. It looks at the runs in the ledger's sparse index of open runs, the one that was swept longest ago
first, and takes a run out of the index once it has seen its end. Each step is a conditional write or may be repeated,
so that a sweep may die anywhere and two may run at once; what one leaves undone the next one does.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from prismline_contracts import (
    ChunkFailed,
    ChunkItem,
    ChunkProcess,
    ChunkStatus,
    Envelope,
    Queue,
    RunDrained,
    RunItem,
    RunSplit,
    dead_letter_queue_name,
    now,
    queue_name,
)
from prismline_ledger import COUNTERS, DRAINED_BY_SWEEPER, Ledger
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
#: Chunks that one sweep sends again or gives up, so that a mass loss is mended in waves and not in a flood.
REPAIRS_PER_SWEEP = 500
#: Chunks whose messages are sent, then recorded, together: one call to SQS.
RESEND_BATCH = 10
#: Time in seconds kept back from an invocation's, so that a sweep ends before it is ended.
DEADLINE_MARGIN_SECONDS = 60.0
#: Error name for the state machine of a run that could not be split.
SPLIT_GIVEN_UP = "SplitGivenUp"

#: What SQS says of a queue's messages: waiting, being worked on, and not due yet.
_DEPTHS: list[QueueAttributeNameType] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]


# ---- decisions: pure


@dataclass(frozen=True)
class SweepLimits:
    """How long something may be silent before it counts as lost, in seconds, and how often it is tried again."""

    #: How long a worker may take over a chunk: Lambda's longest timeout.
    lease_seconds: float = 900.0
    #: The same for particular workloads.
    workload_lease_seconds: Mapping[str, float] = field(default_factory=dict)
    #: How long a chunk waits while there is no message at all in the queues that could hold its own. Longer than the
    #: minute within which SQS' counts become true.
    idle_seconds: float = 300.0
    #: How long a chunk waits while there are messages, of which one may be its own: the queues' retention.
    retention_seconds: float = 1_209_600.0
    #: How long a run may take to be split: two deliveries of its command, and less than its task's timeout.
    split_seconds: float = 2400.0
    #: Attempts at a chunk, and messages that may get lost for it, before it is given up.
    max_attempts: int = 5
    #: How often a run is asked to be split again before it is given up.
    max_split_resends: int = 3

    def lease(self, workload: str) -> float:
        """The lease of a workload's chunks, in seconds."""
        return self.workload_lease_seconds.get(workload, self.lease_seconds)


@dataclass(frozen=True)
class Resend:
    """Its message is sent again."""

    reason: str


@dataclass(frozen=True)
class GiveUp:
    """It will not be done."""

    error: str


def sweep_chunk(
    chunk: ChunkItem, run: RunItem, now: datetime, limits: SweepLimits, *, queues_empty: bool
) -> Resend | GiveUp | None:
    """What a chunk needs; None: nothing.

    queues_empty: whether no message is left in the queues that could hold the chunk's own.
    """
    if chunk.state.terminal or run.cancelled_at is not None:
        return None
    if chunk.state is ChunkStatus.IN_PROGRESS and not _deferred(chunk):
        lease = limits.lease(run.workload)
        if _age(now, chunk.started_at or chunk.created_at) <= lease:
            return None
        lost = f"Its worker did not end it within {_duration(lease)}"
        if chunk.attempts >= limits.max_attempts:
            return GiveUp(f"{lost}, at attempt {chunk.attempts} of {limits.max_attempts}.{_last_error(chunk)}")
        return Resend(f"{lost}.")
    if run.latched_at is None:
        return None  # its message is sent before the latch closes
    silent = min(_age(now, moment) for moment in (run.latched_at, chunk.sent_at, chunk.deferred_at) if moment)
    if silent <= (limits.idle_seconds if queues_empty else limits.retention_seconds):
        return None
    lost = f"Its message was lost: nothing was heard of it for {_duration(silent)}"
    if chunk.resends >= limits.max_attempts:
        return GiveUp(f"{lost}, after it had been sent again {chunk.resends} times.{_last_error(chunk)}")
    return Resend(f"{lost}.")


def sweep_split(run: RunItem, now: datetime, limits: SweepLimits) -> Resend | GiveUp | None:
    """What a run needs that may not have been split; None: nothing."""
    if run.latched_at is not None or run.cancelled_at is not None or run.manifest_key is None:
        return None
    silent = _age(now, run.split_sent_at or run.created_at)
    if silent <= limits.split_seconds:
        return None
    lost = f"The run was not split within {_duration(silent)}"
    if run.split_resends >= limits.max_split_resends:
        return GiveUp(f"{lost}, after it had been asked for again {run.split_resends} times.")
    return Resend(f"{lost}.")


def drift(run: RunItem, counted: Mapping[str, int]) -> dict[str, int]:
    """The counters of `run` that are not what was `counted`, with what they should be."""
    return {name: counted[name] for name in COUNTERS if getattr(run, name) != counted[name]}


def process_command(chunk: ChunkItem, run: RunItem, bucket: str) -> ChunkProcess:
    """The command that the splitter sent for a chunk, once more."""
    return ChunkProcess(
        run_id=run.run_id,
        job_id=run.job_id,
        survey=run.survey,
        workload=run.workload,
        chunk_id=chunk.chunk_id,
        n_items=chunk.n_items,
        bucket=bucket,
        chunk_key=chunk.chunk_key,
        params=json.loads(run.params or "{}"),
        attempt=chunk.resends + 2,  # the splitter sent the first
        deferrals=chunk.deferrals,
    )


def _deferred(chunk: ChunkItem) -> bool:
    """Whether the chunk's message was put off since a worker last began it: it waits then, whatever its status."""
    return chunk.deferred_at is not None and (chunk.started_at is None or chunk.deferred_at >= chunk.started_at)


def _age(now: datetime, moment: str) -> float:
    return (now - datetime.fromisoformat(moment)).total_seconds()


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _last_error(chunk: ChunkItem) -> str:
    return f" Before that: {chunk.last_error}" if chunk.last_error else ""


# ---- actions


@dataclass(frozen=True)
class SweeperDependencies:
    """What the sweeper needs. `bucket` is the name of the bucket that chunks are in."""

    ledger: Ledger
    transport: Transport
    sqs: SQSClient
    bucket: str
    limits: SweepLimits
    logger: Logger

    def queues_are_empty(self) -> bool:
        """Whether neither the queue of chunks nor its dead-letter queue holds a message, visible or not."""
        name = queue_name(self.transport.environment, Queue.CHUNKS)
        return not any(self._messages(queue) for queue in (name, dead_letter_queue_name(name)))

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
    runs_drained: int = 0
    splits_resent: int = 0
    splits_given_up: int = 0
    #: Runs whose counters disagreed with their items: a bug somewhere, expected to be 0.
    ledger_drift: int = 0

    @property
    def repairs(self) -> int:
        """Chunks that were sent again or given up."""
        return self.chunks_resent + self.chunks_given_up


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

    @cached_property
    def _queues_empty(self) -> bool:
        """As it was when the sweep first asked: before it sent anything."""
        return self._deps.queues_are_empty()

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

    def _mend(self, run: RunItem) -> None:
        ledger = self._deps.ledger
        self._mend_split(run)
        counted = self._mend_chunks(run)
        after = ledger.run(run.run_id)
        settled = all(getattr(run, name) == getattr(after, name) for name in COUNTERS)
        if settled:
            self._mend_counters(after, counted)
        drained = ledger.drain(run.run_id)
        fault_point("sweep.drained", run_id=run.run_id)
        if drained is not None:
            self._publish(RunDrained.of(drained), run)
            self._tally.runs_drained += 1
            self._deps.logger.warning("run_drained_by_sweeper")
        if settled and (drained or after.drained_at or after.cancelled_at):
            ledger.close_run(run.run_id)

    def _mend_split(self, run: RunItem) -> None:
        match sweep_split(run, self._now, self._deps.limits):
            case Resend(reason):
                command = RunSplit(
                    run_id=run.run_id,
                    job_id=run.job_id,
                    bucket=self._deps.bucket,
                    manifest_key=run.manifest_key or "",
                )
                message = Envelope.wrap(
                    command,
                    source=self._deps.transport.source,
                    traceparent=run.traceparent,
                    tasktoken=run.split_token,
                )
                self._deps.transport.send(Queue.SPLIT, [message])
                self._deps.ledger.record_split_resend(run)
                self._tally.splits_resent += 1
                self._deps.logger.warning("split_resent", extra={"reason": reason})
            case GiveUp(error):
                if run.split_token is not None:
                    self._deps.transport.refuse(run.split_token, SPLIT_GIVEN_UP, error)
                self._deps.ledger.stop_run(run.run_id)
                self._tally.splits_given_up += 1
                self._deps.logger.error("split_given_up", extra={"reason": error})

    def _mend_chunks(self, run: RunItem) -> Counter[str]:
        """Mend the run's chunks; what its counters should be, and the number of `items`."""
        counted: Counter[str] = Counter()
        lost: list[tuple[ChunkItem, Resend]] = []
        for chunk in self._deps.ledger.chunks(run.run_id):
            self._tally.chunks_swept += 1
            counted["items"] += 1
            counted["jobs_completed"] += chunk.state is ChunkStatus.COMPLETED
            counted["jobs_failed"] += chunk.state is ChunkStatus.FAILED
            counted["n_timed_out"] += chunk.n_timed_out
            if chunk.state.terminal or self._tally.repairs + len(lost) >= REPAIRS_PER_SWEEP:
                continue
            match sweep_chunk(chunk, run, self._now, self._deps.limits, queues_empty=self._queues_empty):
                case Resend() as resend:
                    lost.append((chunk, resend))
                case GiveUp(error):
                    self._give_up(chunk, run, error)
        for batch in batches(lost, RESEND_BATCH):
            self._resend(batch, run)
        return counted

    def _resend(self, lost: list[tuple[ChunkItem, Resend]], run: RunItem) -> None:
        """Send first, then record: a sweep that dies in between sends twice, which does no harm."""
        self._deps.transport.send(
            Queue.CHUNKS,
            (
                Envelope.wrap(
                    process_command(chunk, run, self._deps.bucket),
                    source=self._deps.transport.source,
                    traceparent=run.traceparent,
                    key=(chunk.chunk_id,),
                )
                for chunk, _ in lost
            ),
        )
        fault_point("sweep.sent", run_id=run.run_id)
        for chunk, resend in lost:
            self._deps.ledger.record_resend(chunk, resend.reason)
            self._tally.chunks_resent += 1
            self._deps.logger.warning("chunk_resent", extra={"chunk_id": chunk.chunk_id, "reason": resend.reason})

    def _give_up(self, chunk: ChunkItem, run: RunItem, error: str) -> None:
        finished = self._deps.ledger.fail_chunk(run.run_id, chunk.chunk_id, error, by=DRAINED_BY_SWEEPER)
        if finished.changed:
            failed = ChunkFailed(run_id=run.run_id, survey=run.survey, chunk_id=chunk.chunk_id, error=error)
            self._publish(failed, run, chunk.chunk_id)
            self._tally.chunks_given_up += 1
            self._deps.logger.error("chunk_given_up", extra={"chunk_id": chunk.chunk_id, "reason": error})

    def _mend_counters(self, run: RunItem, counted: Counter[str]) -> None:
        """`run` and `counted` are exact: nothing has ended while the items were read."""
        wrong = drift(run, counted)
        missing = run.latched_at is not None and run.jobs_total != counted["items"]
        if not wrong and not missing:
            return
        self._tally.ledger_drift += 1
        self._deps.logger.error(
            "ledger_drift",
            extra={
                "was": {name: getattr(run, name) for name in (*COUNTERS, "jobs_total")},
                "counted": dict(counted),
            },
        )
        if wrong:
            self._deps.ledger.correct_counters(run, wrong)

    def _publish(self, event: ChunkFailed | RunDrained, run: RunItem, *key: str) -> None:
        transport = self._deps.transport
        transport.publish(Envelope.wrap(event, source=transport.source, traceparent=run.traceparent, key=key))


def _publish_metrics(tally: Tally, deps: SweeperDependencies) -> None:
    """Zeros included: an alarm on drift needs data to be quiet."""
    with service_metrics("Sweeper") as metrics:
        metrics.add_dimension("Environment", deps.transport.environment)
        for entry in fields(tally):
            name = entry.name.title().replace("_", "")
            metrics.add_metric(name, unit="Count", value=getattr(tally, entry.name))
