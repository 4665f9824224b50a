"""What happens to a dead letter. Pure: it is told what the ledger and the resource say, and returns a decision.

Receipts that ended in a deferral are no attempts, so an outage of a resource, however long, uses none up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prismline_contracts import ChunkItem, ChunkProcess, ChunkStatus, RunSplit, SpectraRefit
from prismline_dlq_consumer.dead_letter import DeadLetter

#: Receipts of a dead letter, deferrals not counted, after which it is given up.
MAX_ATTEMPTS = 5


class Action(StrEnum):
    """What to do with a dead letter that is in the archive."""

    #: Nothing: it can never be worked on.
    ARCHIVE = "archive"
    #: Nothing: what it asked for has been done, or is not wanted any more.
    SETTLE = "settle"
    #: Give up what it asked for, with the reason.
    FAIL = "fail"
    #: Leave it in its queue for a while.
    DEFER = "defer"
    #: Send it back to the queue that it came from.
    RESEND = "resend"


@dataclass(frozen=True)
class Decision:
    """An action and, in a sentence, why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class Resource:
    """A resource that a workload needs, and whether it is up."""

    name: str
    up: bool


def attempts_used(message: DeadLetter, chunk: ChunkItem | None) -> int:
    """Dispatches before this one, plus receipts since, less those receipts that ended in a deferral."""
    deferrals = max(0, chunk.deferrals - message.deferrals) if chunk is not None else 0
    return message.attempt - 1 + max(1, message.receive_count - deferrals)


def decide(
    message: DeadLetter,
    chunk: ChunkItem | None,
    resource: Resource | None,
    *,
    cancelled: bool = False,
    max_attempts: int = MAX_ATTEMPTS,
    recovering: bool = False,
) -> Decision:
    """What to do with `message`.

    chunk: the ledger's item of the chunk that it is about, None if there is none.
    resource: what its workload needs, None if that is nothing.
    cancelled: whether its run was.
    recovering: somebody asks for it once more: a chunk that was given up is no reason not to.
    """
    if message.invalid is not None:
        return Decision(Action.ARCHIVE, message.invalid)
    if isinstance(message.command, RunSplit | ChunkProcess | SpectraRefit) and cancelled:
        return Decision(Action.SETTLE, "Its run was cancelled.")
    if message.chunk_name is not None:
        if chunk is None:
            run_id, chunk_id = message.chunk_name
            return Decision(Action.ARCHIVE, f"There is no {chunk_id} of run {run_id} in the ledger.")
        if _is_done(message, chunk, recovering=recovering):
            return Decision(Action.SETTLE, f"The chunk is {chunk.status} already.")
    if message.error is not None:
        return Decision(Action.FAIL, message.error)
    used = attempts_used(message, chunk)
    if used > max_attempts:
        return Decision(Action.FAIL, _exhausted(used, chunk))
    if resource is not None and not resource.up:
        return Decision(Action.DEFER, f"The resource {resource.name} is down.")
    return Decision(Action.RESEND, f"It is sent back to {message.source_queue}.")


def _is_done(message: DeadLetter, chunk: ChunkItem, *, recovering: bool) -> bool:
    if isinstance(message.command, SpectraRefit):
        return chunk.state is ChunkStatus.COMPLETED and chunk.n_timed_out == 0
    return chunk.state is ChunkStatus.COMPLETED if recovering else chunk.state.terminal


def _exhausted(used: int, chunk: ChunkItem | None) -> str:
    if chunk is None:
        return f"Given up: it came back {used} times."
    last = chunk.last_error or "Its worker died without saying why."
    return f"{last} Given up after {chunk.attempts} attempts."
