"""Sends each unfinished task of a dead letter in a message of its own, or gives it up."""

from __future__ import annotations

from prismline_contracts.base import now
from prismline_contracts.commands import TasksProcess, task_queue_of
from prismline_contracts.events import RunDrained
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem
from prismline_dlq_consumer.dead_letter import DeadLetterMessage
from prismline_dlq_consumer.decisions import Facts
from prismline_dlq_consumer.dependencies import Dependencies
from prismline_ledger import Patience, TaskEnding, exhausted, leased
from prismline_runtime import PermanentError, TransientError, fault_point


def send_tasks_singly(letter: DeadLetterMessage, facts: Facts, delay: int, deps: Dependencies) -> None:
    """Send each task that has not ended as a message of its own, after `delay` seconds. Give up exhausted tasks."""
    run, command = _of(letter, facts)
    patience = deps.settings.letter_patience.of_workload(letter.workload)
    over: list[TaskItem] = []
    others: list[TaskItem] = []
    for task in _unfinished(facts):
        (over if _given_up(task, patience) else others).append(task)
    _end(run, over, None, patience, deps)
    traceparent = letter.envelope.traceparent if letter.envelope else None
    singles = (
        deps.transport.wrap(
            command.model_copy(update={"task_ids": [task.task_id], "attempt": command.attempt + 1}),
            traceparent=traceparent,
            key=(task.task_id, str(command.attempt + 1), letter.message_id),
        )
        for task in others
    )
    deps.transport.send(task_queue_of(run, deps.settings.environment), singles, delay_seconds=delay)
    fault_point("deadletter.sent", message_id=letter.message_id)


def give_up_tasks(letter: DeadLetterMessage, facts: Facts, deps: Dependencies) -> None:
    """Fail the tasks that have not ended, with the letter's error or with their own last one.

    Raises TransientError if one of them has changed since it was read, so that the letter is judged again.
    """
    run, _ = _of(letter, facts)
    patience = deps.settings.letter_patience.of_workload(letter.workload)
    _end(run, _unfinished(facts), letter.error, patience, deps)


def announce_drained(run: RunItem, deps: Dependencies) -> None:
    """Publish that the run has drained, if it has and its end is not recorded."""
    if run.drained_at is not None and run.ended_at is None:
        drained = RunDrained.of(run)
        deps.transport.publish_event(drained, traceparent=run.traceparent, key=drained.key)


def _end(run: RunItem, tasks: list[TaskItem], error: str | None, patience: Patience, deps: Dependencies) -> None:
    endings = [
        TaskEnding(
            task, error=error or exhausted(task, now(), patience) or task.last_error, unless_changed=error is None
        )
        for task in tasks
    ]
    if not endings:
        return
    ended = deps.ledger.end_tasks(run, endings)
    fault_point("deadletter.failed", run_id=run.run_id)
    if ended.run is not None:
        announce_drained(ended.run, deps)
    if any(not task.state.terminal for task in ended.unchanged):
        raise TransientError(f"Tasks of run {run.run_id} have changed since they were read.", retry_after=1)


def _given_up(task: TaskItem, patience: Patience) -> bool:
    moment = now()
    return exhausted(task, moment, patience) is not None and not leased(task, moment, patience)


def _unfinished(facts: Facts) -> list[TaskItem]:
    return [task for task in facts.tasks if not task.state.terminal]


def _of(letter: DeadLetterMessage, facts: Facts) -> tuple[RunItem, TasksProcess]:
    if facts.run is None or not isinstance(letter.data, TasksProcess):
        raise PermanentError("The dead letter is not about tasks of a run.")
    return facts.run, letter.data
