"""Decides what happens to a task after its attempt, and when remaining tasks are sent again. Pure: no client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from prismline.supervisor import Outcome
from prismline_contracts.base import timestamp
from prismline_contracts.items import NewerStatus
from prismline_contracts.tasks import TaskItem, TaskResult, TaskValue
from prismline_ledger import GivenBackTask, TaskEnding, failures
from prismline_runtime import PermanentError, TransientError, UnavailableError
from prismline_worker.fetch_decisions import LONGEST_WAIT_SECONDS, ThrottledError, backoff, given_up

#: Delays, in seconds, of messages with remaining tasks. A task gets the shortest of them that covers its wait.
DELAYS = (0, 2, 5, 15, 60, 180, 420, 900)
#: Waits for a slot, in seconds: at first, and at most. They double with every deferral of the message.
FIRST_SLOT_WAIT_SECONDS, LAST_SLOT_WAIT_SECONDS = 2.0, 60.0
#: How often the waiting messages of a run ask for a slot, all together, unless their waits are the longest.
SLOT_REQUESTS_PER_SECOND = 3.0
#: Deferrals after which a message of a small run waits as long as one of a large run: its slots are held for long.
SHORT_SLOT_WAITS = 15


@dataclass(frozen=True)
class GivenBack:
    """An attempt without a result."""

    task: TaskItem
    error: str
    #: Whether the attempt does not count against the task.
    interrupted: bool
    #: Seconds until the next attempt may begin.
    wait: float
    duration_ms: int

    def given(self, now: datetime) -> GivenBackTask:
        """This attempt in the form that the ledger takes."""
        return GivenBackTask(self.task, self.error, self.interrupted, not_before(self.wait, now), self.duration_ms)


class NoTimeError(UnavailableError):
    """The invocation has no time left for the task."""


class RunStoppedError(UnavailableError):
    """The run was stopped before the worker had begun to fetch the URL."""


class ItemFailedError(TransientError):
    """A function has failed on an item. Its author says whether and when it is tried again."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.error_type = outcome.error_type
        #: Attempts that the item has in total.
        self.attempts = 1 if outcome.permanent else outcome.attempts
        #: Seconds before the second attempt.
        self.delay = outcome.delay


@dataclass(frozen=True)
class Attempted:
    """A task whose attempt has ended, with its result or with the reason why there is none."""

    task: TaskItem
    outcome: TaskResult | TaskValue | Exception
    duration_ms: int
    #: Digest of the code of a function.
    code: str | None = None


def judge(attempted: Attempted, max_attempts: int, now: datetime) -> TaskEnding | GivenBack:
    """End the task, or give it back for another attempt."""
    task, outcome, took = attempted.task, attempted.outcome, attempted.duration_ms
    if isinstance(outcome, TaskResult | TaskValue):
        return TaskEnding(task, result=outcome, duration_ms=took, code=attempted.code)
    if isinstance(outcome, ItemFailedError):
        return _judge_item(attempted, outcome)
    if isinstance(outcome, PermanentError):
        return TaskEnding(task, error=str(outcome), duration_ms=took)
    error = outcome if isinstance(outcome, TransientError) else TransientError(f"{type(outcome).__name__}: {outcome}")
    interrupted = isinstance(error, UnavailableError | ThrottledError)
    if not isinstance(error, UnavailableError) and (over := given_up(task, error, max_attempts, now)) is not None:
        return TaskEnding(task, error=over, duration_ms=took)
    if isinstance(error, ThrottledError):
        wait = error.wait
    elif error.retry_after is not None:
        wait = float(error.retry_after)
    else:
        wait = backoff(max(1, task.attempts - task.interruptions))
    return GivenBack(task, str(error), interrupted, wait, took)


def _judge_item(attempted: Attempted, error: ItemFailedError) -> TaskEnding | GivenBack:
    """End an item on which its function has failed, or give it back. The wait doubles with each failed attempt."""
    task, failed = attempted.task, failures(attempted.task) + 1
    if failed >= error.attempts:
        return TaskEnding(
            task,
            error=str(error),
            error_type=error.error_type,
            duration_ms=attempted.duration_ms,
            code=attempted.code,
        )
    wait = min(LONGEST_WAIT_SECONDS, error.delay * 2.0 ** min(failed - 1, 30))
    return GivenBack(task, str(error), interrupted=False, wait=wait, duration_ms=attempted.duration_ms)


def not_before(wait: float, now: datetime) -> str | None:
    """The moment after `wait` seconds, in the ledger's format. None: at once."""
    return timestamp(now + timedelta(seconds=wait)) if wait > 0 else None


def waits_for(task: TaskItem, now: datetime) -> float:
    """Seconds until an attempt at the task may begin. The longest delay if only a newer worker knows its status."""
    if task.state is NewerStatus.NEWER:
        return float(DELAYS[-1])
    if task.not_before is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(task.not_before) - now).total_seconds())


def slot_wait(deferrals: int, n_messages: float | None) -> float:
    """Seconds until a message that found no slot is delivered again.

    n_messages: about how many messages the run has. Few of them wait less long at first: a free slot would stay unused
    until one of them is delivered.
    """
    longest = LAST_SLOT_WAIT_SECONDS
    if n_messages is not None and deferrals < SHORT_SLOT_WAITS:
        longest = min(longest, max(FIRST_SLOT_WAIT_SECONDS, n_messages / SLOT_REQUESTS_PER_SECOND))
    return min(longest, FIRST_SLOT_WAIT_SECONDS * 2.0 ** min(deferrals, 10))


def by_delay(waits: Iterable[tuple[str, float]]) -> dict[int, list[str]]:
    """Task ids by the delay of their message. A task with a longer wait than the longest delay is then sent again."""
    groups: dict[int, list[str]] = {}
    for name, wait in waits:
        delay = next((delay for delay in DELAYS if delay >= wait), DELAYS[-1])
        groups.setdefault(delay, []).append(name)
    return groups


def host_of(url: str) -> str:
    """The host that a URL names, in lower case. Empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
