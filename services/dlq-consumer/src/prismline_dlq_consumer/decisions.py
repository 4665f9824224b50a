"""What happens to a dead letter. Pure: a judge is told what the ledger and the resource say, and returns a decision.

docs/protocol.md, "Giving up, and what never does", has the rules. No receipt is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from prismline_contracts import (
    ChunkItem,
    ChunkProcess,
    ChunkStatus,
    DeadlettersRecover,
    Queue,
    RunCheckRequested,
    RunDrained,
    RunItem,
    RunRecovered,
    RunSplitCompleted,
    SpectraRefit,
)
from prismline_dlq_consumer.dead_letter import DeadLetter
from prismline_ledger import Patience, exhausted, leased, seconds_since

#: Events that have a run's end looked at. The sweeper says one of them at each sweep until the end was heard, so they
#: are sent back once and no more: in an outage of a day they would pile up, and all go round and round.
SAID_AGAIN = (RunDrained, RunRecovered, RunSplitCompleted, RunCheckRequested)
#: Longest time in seconds that a message waits before it is tried again: what SQS can hold one back.
LONGEST_DELAY_SECONDS = 900


class Action(StrEnum):
    """What to do with a dead letter that is in the archive."""

    #: Nothing: it can never be worked on.
    ARCHIVE = "archive"
    #: Nothing: what it asked for has been done, or is not wanted any more.
    SETTLE = "settle"
    #: Give up what it asked for, with the reason.
    FAIL = "fail"
    #: Leave it in its queue for a while, because a resource is down.
    DEFER = "defer"
    #: Leave it in its queue for a while, because a worker may be at work on its chunk, for the last time.
    WAIT = "wait"
    #: Send it back to the queue that it came from.
    RESEND = "resend"
    #: Leave its record where it is.
    LEAVE = "leave"


@dataclass(frozen=True)
class Decision:
    """An action, why in a sentence, and in how many seconds the message is to be seen again."""

    action: Action
    reason: str
    delay: int = 0


@dataclass(frozen=True)
class Resource:
    """A resource that a workload needs, and whether it is up."""

    name: str
    up: bool


@dataclass(frozen=True)
class Facts:
    """What a decision about a letter rests on, read a moment ago. None: there is no such thing."""

    chunk: ChunkItem | None = None
    run: RunItem | None = None
    #: What the letter waits for, or what its workload needs.
    resource: Resource | None = None


@dataclass(frozen=True)
class LetterPatience:
    """How long what is tried."""

    chunk: Patience = field(default_factory=Patience)
    #: Seconds after which a message that is not about a chunk is given up, counted from when it was first sent.
    message_seconds: float = 3 * 86_400.0
    #: Seconds that a message waits before its resource is looked at again.
    deferral_seconds: int = 900
    #: Seconds that a message waits before its second dispatch; doubled with each one.
    first_delay_seconds: int = 15
    #: Leases of particular workloads, instead of `chunk.lease_seconds`.
    workload_lease_seconds: Mapping[str, float] = field(default_factory=dict)

    def of_workload(self, workload: str | None) -> Patience:
        """The patience with a chunk of this workload."""
        lease = self.workload_lease_seconds.get(workload or "", self.chunk.lease_seconds)
        return replace(self.chunk, lease_seconds=lease)

    def delay(self, dispatch: int) -> int:
        """Seconds that a message waits after its n-th dispatch."""
        return min(LONGEST_DELAY_SECONDS, self.first_delay_seconds << min(dispatch - 1, 16))


def judge(letter: DeadLetter, facts: Facts, now: datetime, patience: LetterPatience) -> Decision:
    """What to do with a letter in a dead-letter queue."""
    if letter.invalid is not None:
        return Decision(Action.ARCHIVE, letter.invalid)
    if letter.command is not None and facts.run is not None and facts.run.cancelled_at is not None:
        return Decision(Action.SETTLE, "Its run has failed." if _failed(facts.run) else "Its run was cancelled.")
    if settled := _unknown_or_done(letter, facts):
        return settled
    if isinstance(letter.data, ChunkProcess) and facts.chunk is not None:
        return _judge_chunk(letter, facts.chunk, facts.resource, now, patience)
    if letter.error is not None and letter.unknown is None and not isinstance(letter.data, DeadlettersRecover):
        return Decision(Action.FAIL, letter.error)
    repeated = isinstance(letter.data, SAID_AGAIN) or letter.source_queue == Queue.SWEEPS
    if repeated and letter.unknown is None and letter.attempt > 1:
        return Decision(Action.SETTLE, "It is said again until it is heard.")
    if (now - letter.first_sent).total_seconds() >= patience.message_seconds:
        last = letter.error or letter.unknown
        days = f"Given up after {patience.message_seconds / 86_400:.1f} days."
        return Decision(Action.FAIL, f"{last} {days}" if last else days)
    return _again(letter, patience)


def judge_record(letter: DeadLetter, facts: Facts) -> Decision:
    """What a recovery does with a record of the archive. Somebody asks for it once more, so that it was given up, or
    why, is no reason not to.
    """
    if letter.invalid is not None:
        return Decision(Action.ARCHIVE, letter.invalid)
    if letter.command is not None and facts.run is not None and cancelled(facts.run):
        return Decision(Action.LEAVE, "Its run was cancelled.")
    if settled := _unknown_or_done(letter, facts, recovering=True):
        return settled
    return Decision(Action.RESEND, f"It is sent back to {letter.source_queue}.")


class Step(StrEnum):
    """What a recovery does with a record that it has taken, whenever it looks at its chunk."""

    #: Reopen the chunk and send the message.
    SEND = "send"
    #: Look again later.
    WAIT = "wait"
    #: Delete the record.
    DONE = "done"
    #: Keep the record among those that failed.
    FAILED = "failed"
    #: Put the record back into the archive.
    PUT_BACK = "put back"


def next_step(chunk: ChunkItem | None, run: RunItem | None, operation_id: str, *, sent: bool) -> Step:
    """What the recovery `operation_id` does now with a chunk's record. sent: it has sent its message."""
    if chunk is None:
        return Step.FAILED
    if chunk.state is ChunkStatus.COMPLETED:
        return Step.DONE
    if chunk.state is ChunkStatus.FAILED and (sent or chunk.recovery == operation_id):
        return Step.FAILED
    if run is not None and cancelled(run):
        return Step.PUT_BACK
    return Step.WAIT if sent else Step.SEND


def cancelled(run: RunItem) -> bool:
    """Whether the run was stopped by a person, and not because it failed."""
    return run.cancelled_at is not None and not _failed(run)


def _failed(run: RunItem) -> bool:
    return run.stop_reason == "failed"


def _unknown_or_done(letter: DeadLetter, facts: Facts, *, recovering: bool = False) -> Decision | None:
    """The decision about a letter whose chunk is not there or needs nothing more."""
    if letter.chunk_name is None:
        return None
    if facts.chunk is None:
        run_id, chunk_id = letter.chunk_name
        return Decision(Action.ARCHIVE, f"There is no {chunk_id} of run {run_id} in the ledger.")
    if isinstance(letter.data, SpectraRefit):
        # rows that were given up are fitted again only if a recovery asks for it
        given_up = facts.chunk.n_refit_failed if recovering or letter.recovery is not None else 0
        if facts.chunk.state is ChunkStatus.FAILED:  # if it is completed after all, the sweeper asks for its rows
            return Decision(Action.SETTLE, "Its chunk has failed.")
        done = facts.chunk.state is ChunkStatus.COMPLETED and facts.chunk.n_timed_out + given_up == 0
        return Decision(Action.SETTLE, "No row waits for it.") if done else None
    done = facts.chunk.state is ChunkStatus.COMPLETED if recovering else facts.chunk.state.terminal
    return Decision(Action.SETTLE, f"The chunk is {facts.chunk.status} already.") if done else None


def _judge_chunk(
    letter: DeadLetter, chunk: ChunkItem, resource: Resource | None, now: datetime, patience: LetterPatience
) -> Decision:
    # an error from before a recovery reopened the chunk says nothing about what is tried since
    if letter.error is not None and letter.unknown is None and chunk.recovery in (None, letter.recovery):
        return Decision(Action.FAIL, letter.error)
    of_chunk = patience.of_workload(letter.workload)
    if error := exhausted(chunk, now, replace(of_chunk, lease_seconds=0.0)):
        if not leased(chunk, now, of_chunk):
            return Decision(Action.FAIL, error)
        # sent back, it would begin one attempt after the other, each of them within the lease of the one before
        left = of_chunk.lease_seconds - seconds_since(chunk.started_at or chunk.created_at, now)
        delay = min(LONGEST_DELAY_SECONDS, int(left) + 1)
        return Decision(Action.WAIT, "Its last attempt may still be under way.", delay)
    if resource is not None and not resource.up:
        return Decision(Action.DEFER, f"The resource {resource.name} is down.", patience.deferral_seconds)
    if letter.waits_for is None:
        return _again(letter, patience)
    # its service has just seen that the resource does not serve, whatever it looks like from here
    waited = (now - letter.sent).total_seconds()
    if waited < patience.deferral_seconds:
        left = min(patience.deferral_seconds, int(patience.deferral_seconds - waited) + 1)
        return Decision(Action.DEFER, f"The resource {letter.waits_for} did not serve a moment ago.", left)
    return Decision(Action.RESEND, f"The resource {letter.waits_for} is up.")


def _again(letter: DeadLetter, patience: LetterPatience) -> Decision:
    reason = letter.unknown or f"It is sent back to {letter.source_queue}."
    return Decision(Action.RESEND, reason, patience.delay(letter.attempt))
