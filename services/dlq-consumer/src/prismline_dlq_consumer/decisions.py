"""Decides what happens to a dead letter, from the state of its chunk, run and resource. Pure functions.

docs/explanation/delivery.md has the rules. The receive count plays no role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from prismline_contracts.commands import ChunkProcess, Queue, SpectraRefit, TasksProcess
from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.events import RunCheckRequested, RunDrained, RunRecovered, RunSplitCompleted, RunTasksRecovered
from prismline_contracts.items import ChunkItem, ChunkStatus, RunItem
from prismline_contracts.tasks import TaskItem, TaskStatus
from prismline_dlq_consumer.dead_letter import DeadLetterMessage
from prismline_ledger import Patience, exhausted, leased, seconds_since

#: Events after which the status service checks whether a run has ended. They are sent back only once, because the
#: sweeper repeats them until the end is recorded. In an outage of a day they would otherwise pile up and circulate.
REPUBLISHED_EVENTS = (RunDrained, RunRecovered, RunTasksRecovered, RunSplitCompleted, RunCheckRequested)
#: Longest delay, in seconds, before a message is tried again: the longest delivery delay of SQS.
LONGEST_DELAY_SECONDS = 900


class Action(StrEnum):
    """What to do with an archived dead letter."""

    #: Only archive it: no service can process it.
    ARCHIVE = "archive"
    #: Only acknowledge it: its work is done or not wanted any more.
    SETTLE = "settle"
    #: Give its work up, with the reason.
    FAIL = "fail"
    #: Hide it in the dead-letter queue for a while, because a resource is down.
    DEFER = "defer"
    #: Hide it in the dead-letter queue for a while, because the last attempt at its chunk may still be running.
    WAIT = "wait"
    #: Send it back to the queue that it came from.
    RESEND = "resend"
    #: Send each of its tasks that has not ended as a message of its own: one that kills its worker then stops no other.
    DIVIDE = "divide"
    #: Leave its record in place.
    LEAVE = "leave"


@dataclass(frozen=True)
class Decision:
    """An action, its reason as a sentence, and the delay in seconds until the message is seen again."""

    action: Action
    reason: str
    delay: int = 0


@dataclass(frozen=True)
class Resource:
    """The state of a resource that a workload needs."""

    name: str
    up: bool


@dataclass(frozen=True)
class Facts:
    """The facts for the decision about a dead letter, just read. None: there is no such item or resource."""

    chunk: ChunkItem | None = None
    run: RunItem | None = None
    #: The resource that the letter waits for or that its workload needs.
    resource: Resource | None = None
    #: The tasks of the message that exist.
    tasks: tuple[TaskItem, ...] = ()


@dataclass(frozen=True)
class LetterPatience:
    """The limits after which a dead letter is given up, and the delays between dispatches."""

    chunk: Patience = field(default_factory=Patience)
    #: Age, in seconds since it was first sent, at which a message that is not about a chunk is given up.
    message_seconds: float = 3 * 86_400.0
    #: Seconds until a deferred message's resource is checked again.
    deferral_seconds: int = 900
    #: Delay, in seconds, before the second dispatch of a message. It doubles with each dispatch.
    first_delay_seconds: int = 15
    #: Leases of single workloads, in seconds. They replace `chunk.lease_seconds`.
    workload_lease_seconds: Mapping[str, float] = field(default_factory=dict)

    def of_workload(self, workload: str | None) -> Patience:
        """The limits for chunks of `workload`."""
        lease = self.workload_lease_seconds.get(workload or "", self.chunk.lease_seconds)
        return replace(self.chunk, lease_seconds=lease)

    def delay(self, dispatch: int) -> int:
        """The delay, in seconds, after the n-th dispatch of a message."""
        return min(LONGEST_DELAY_SECONDS, self.first_delay_seconds << min(dispatch - 1, 16))


def judge(letter: DeadLetterMessage, facts: Facts, now: datetime, patience: LetterPatience) -> Decision:
    """Decide what to do with a message in a dead-letter queue."""
    if letter.invalid is not None:
        return Decision(Action.ARCHIVE, letter.invalid)
    if letter.command is not None and facts.run is not None and facts.run.cancelled_at is not None:
        return Decision(Action.SETTLE, "Its run has failed." if _failed(facts.run) else "Its run was cancelled.")
    if decided := _unknown_or_done(letter, facts):
        return decided
    if isinstance(letter.data, ChunkProcess) and facts.chunk is not None:
        return _judge_chunk(letter, facts.chunk, facts.resource, now, patience)
    if isinstance(letter.data, TasksProcess):
        return _judge_tasks(letter, facts, now, patience)
    if letter.error is not None and letter.unknown is None and not isinstance(letter.data, DeadlettersRecover):
        return Decision(Action.FAIL, letter.error)
    repeated = isinstance(letter.data, REPUBLISHED_EVENTS) or letter.source_queue == Queue.SWEEPS
    if repeated and letter.unknown is None and letter.attempt > 1:
        return Decision(Action.SETTLE, "The sweeper repeats it until the end of the run is recorded.")
    if (now - letter.first_sent).total_seconds() >= patience.message_seconds:
        last = letter.error or letter.unknown or letter.raised
        days = f"Given up after {patience.message_seconds / 86_400:.1f} days."
        return Decision(Action.FAIL, f"{last.removesuffix('.')}. {days}" if last else days)
    return _again(letter, patience)


def judge_record(letter: DeadLetterMessage, facts: Facts) -> Decision:
    """Decide what a recovery does with a record of the archive.

    The earlier error plays no role, because a person asked to try again.
    """
    if letter.invalid is not None:
        return Decision(Action.ARCHIVE, letter.invalid)
    if letter.command is not None and facts.run is not None and cancelled(facts.run):
        return Decision(Action.LEAVE, "Its run was cancelled.")
    if decided := _unknown_or_done(letter, facts, recovering=True):
        return decided
    return Decision(Action.RESEND, f"It is sent back to {letter.source_queue}.")


class Step(StrEnum):
    """What a recovery does next with a record that it has taken."""

    #: Reopen the chunk and send the message.
    SEND = "send"
    #: Check the chunk again later.
    WAIT = "wait"
    #: Delete the record.
    DONE = "done"
    #: Move the record to the failed records.
    FAILED = "failed"
    #: Put the record back into the archive.
    PUT_BACK = "put back"


def next_step(chunk: ChunkItem | None, run: RunItem | None, operation_id: str, *, sent: bool) -> Step:
    """The next step of the recovery `operation_id` with a chunk's record. sent: whether it has sent the message."""
    if chunk is None:
        return Step.FAILED
    if chunk.state is ChunkStatus.COMPLETED:
        return Step.DONE
    if chunk.state is ChunkStatus.FAILED and (sent or chunk.recovery == operation_id):
        return Step.FAILED
    if run is not None and cancelled(run):
        return Step.PUT_BACK
    return Step.WAIT if sent else Step.SEND


class ResumeDecision(StrEnum):
    """What a recovery does when a person asks it to continue a cancelled run."""

    #: Resume the run.
    RESUME = "resume"
    #: Try again later: the cancellation is not announced yet.
    WAIT = "wait"
    #: Nothing: the run continues already.
    DONE = "done"
    #: Nothing: the run was not cancelled at that time.
    LEAVE = "leave"


def judge_resume(run: RunItem | None, cancelled_at: str) -> ResumeDecision:
    """Decide whether a cancelled run continues. cancelled_at: the cancellation that the person saw."""
    if run is None:
        return ResumeDecision.LEAVE
    if run.cancelled_at == cancelled_at:
        if run.ended_status is None:
            return ResumeDecision.WAIT
        return ResumeDecision.RESUME if run.ended_status == "cancelled" else ResumeDecision.LEAVE
    return (
        ResumeDecision.DONE
        if run.uncancelled_at is not None and run.uncancelled_at > cancelled_at
        else ResumeDecision.LEAVE
    )


def cancelled(run: RunItem) -> bool:
    """Whether a person cancelled the run."""
    return run.cancelled_at is not None and not _failed(run)


def _failed(run: RunItem) -> bool:
    return run.stop_reason == "failed"


def _unknown_or_done(letter: DeadLetterMessage, facts: Facts, *, recovering: bool = False) -> Decision | None:
    """The decision about a letter whose chunk does not exist or needs nothing more. None if neither is the case."""
    if isinstance(letter.data, TasksProcess):
        if facts.run is None:
            return Decision(Action.ARCHIVE, f"There is no run {letter.data.run_id} in the ledger.")
        unneeded = all(
            task.state is TaskStatus.COMPLETED if recovering else task.state.terminal for task in facts.tasks
        )
        return Decision(Action.SETTLE, "Its tasks have ended already.") if unneeded else None
    if letter.chunk_name is None:
        return None
    if facts.chunk is None:
        run_id, chunk_id = letter.chunk_name
        return Decision(Action.ARCHIVE, f"There is no {chunk_id} of run {run_id} in the ledger.")
    if isinstance(letter.data, SpectraRefit):
        # rows that were given up are fitted again only in a recovery
        given_up = facts.chunk.n_refit_failed if recovering or letter.recovery is not None else 0
        if facts.chunk.state is ChunkStatus.FAILED:  # if it is completed late, the sweeper sends the message again
            return Decision(Action.SETTLE, "Its chunk has failed.")
        done = facts.chunk.state is ChunkStatus.COMPLETED and facts.chunk.n_timed_out + given_up == 0
        return Decision(Action.SETTLE, "No row waits for it.") if done else None
    done = facts.chunk.state is ChunkStatus.COMPLETED if recovering else facts.chunk.state.terminal
    return Decision(Action.SETTLE, f"The chunk is {facts.chunk.status} already.") if done else None


def _judge_chunk(
    letter: DeadLetterMessage, chunk: ChunkItem, resource: Resource | None, now: datetime, patience: LetterPatience
) -> Decision:
    # an error from before a recovery reopened the chunk does not count
    if letter.error is not None and letter.unknown is None and chunk.recovery in (None, letter.recovery):
        return Decision(Action.FAIL, letter.error)
    of_chunk = patience.of_workload(letter.workload)
    if error := exhausted(chunk, now, of_chunk):
        if not leased(chunk, now, of_chunk):
            return Decision(Action.FAIL, error)
        # sent back now, the message would begin one attempt after the other, each within the lease of the last one
        return _wait([chunk], now, of_chunk)
    return _deferred(letter, resource, now, patience) or _again(letter, patience)


def _judge_tasks(letter: DeadLetterMessage, facts: Facts, now: datetime, patience: LetterPatience) -> Decision:
    """Decide about a message whose tasks have not all ended."""
    unfinished = [task for task in facts.tasks if not task.state.terminal]
    current = all(task.recovery in (None, letter.recovery) for task in unfinished)
    if letter.error is not None and letter.unknown is None and current:
        return Decision(Action.FAIL, letter.error)
    of_tasks = patience.of_workload(letter.workload)
    errors = [exhausted(task, now, of_tasks) for task in unfinished]
    if all(errors):
        if any(leased(task, now, of_tasks) for task in unfinished):
            return _wait(unfinished, now, of_tasks)
        return Decision(Action.FAIL, errors[0] or "")
    if deferred := _deferred(letter, facts.resource, now, patience):
        return deferred
    reason = letter.unknown or "Its tasks that have not ended are sent one by one."
    return Decision(Action.DIVIDE, reason, patience.delay(letter.attempt))


def _wait(items: Sequence[ChunkItem | TaskItem], now: datetime, patience: Patience) -> Decision:
    """Wait until the lease of the last attempt has passed."""
    left = max(patience.lease_seconds - seconds_since(item.started_at or item.created_at, now) for item in items)
    delay = min(LONGEST_DELAY_SECONDS, max(0, int(left)) + 1)
    return Decision(Action.WAIT, "Its last attempt may still be under way.", delay)


def _deferred(
    letter: DeadLetterMessage, resource: Resource | None, now: datetime, patience: LetterPatience
) -> Decision | None:
    """The decision about a letter that waits for a resource. None if it waits for none."""
    if resource is not None and not resource.up:
        return Decision(Action.DEFER, f"The resource {resource.name} is down.", patience.deferral_seconds)
    if letter.waits_for is None:
        return None
    # its instance is running, but the service that moved the message has just seen that the resource fails
    waited = (now - letter.sent).total_seconds()
    if waited < patience.deferral_seconds:
        left = min(patience.deferral_seconds, int(patience.deferral_seconds - waited) + 1)
        return Decision(Action.DEFER, f"The resource {letter.waits_for} failed a moment ago.", left)
    return Decision(Action.RESEND, f"The resource {letter.waits_for} is up.")


def _again(letter: DeadLetterMessage, patience: LetterPatience) -> Decision:
    reason = letter.unknown or f"It is sent back to {letter.source_queue}."
    return Decision(Action.RESEND, reason, patience.delay(letter.attempt))
