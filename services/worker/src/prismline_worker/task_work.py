"""What the kinds of tasks have in common: the work on the tasks of one message, as the caller does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from prismline_contracts.commands import TasksProcess
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem
from prismline_worker.task_decisions import Attempted


class Terms(Protocol):
    """What holds for all tasks of a message."""

    @property
    def timeout_s(self) -> float:
        """Longest time of an attempt, in seconds."""
        ...

    @property
    def max_attempts(self) -> int:
        """Attempts that count against a task."""
        ...


#: Terms that a kind of tasks makes for itself.
T = TypeVar("T", bound=Terms)
T_co = TypeVar("T_co", bound=Terms, covariant=True)


class Work(Protocol[T_co]):
    """The work on tasks of one message, as the caller of `TaskKind.work` does it."""

    @property
    def command(self) -> TasksProcess:
        """The message."""
        ...

    @property
    def terms(self) -> T_co:
        """What holds for all tasks of the message."""
        ...

    @property
    def deadline(self) -> float:
        """No attempt begins after it (`time.monotonic` seconds)."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the run was stopped, as the last `record` found. No attempt begins after it."""
        ...

    def begin(self, ready: list[TaskItem]) -> list[TaskItem]:
        """Begin attempts at tasks that may work now. Return those that have begun."""
        ...

    def record(self, attempted: list[Attempted]) -> None:
        """Record attempts that have ended. Called every second and at the end."""
        ...

    def waits(self, reason: str) -> None:
        """Record why tasks cannot begin."""
        ...


class TaskKind(Protocol[T]):
    """A kind of tasks."""

    def terms(self, command: TasksProcess, run: RunItem) -> T:
        """What holds for the tasks of a message. Raises PermanentError, and UnavailableError if the tasks wait."""
        ...

    def work(self, tasks: Sequence[TaskItem], work: Work[T]) -> dict[str, float | None]:
        """Work on tasks of one run. Return ids of tasks that were not begun, with the seconds they wait.

        None in place of the seconds: what they need is not there now. Passes on errors of the methods of `work`.
        """
        ...
