"""Processes the tasks of a message: read, start, work, end, send the rest again, acknowledge, in this order.

A task that has ended stays unchanged, so a message may be delivered twice, late, or at the same time as another one
with the same tasks. Tasks that have to wait go into new messages with a delay, and the old message is acknowledged. So
a wait for a site or for a slot does not count towards `maxReceiveCount`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Generic

from prismline_contracts.base import now
from prismline_contracts.commands import TasksProcess, queue_name
from prismline_contracts.events import RunDrained, RunTasksRecovered
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, UrlParams
from prismline_contracts.workloads import is_function
from prismline_coordination import Stats
from prismline_ledger import TaskEnding
from prismline_runtime import (
    Message,
    PermanentError,
    fault_point,
    service_metrics,
)
from prismline_worker.dependencies import Dependencies
from prismline_worker.finalizing import finalize
from prismline_worker.function_tasks import FunctionTasks
from prismline_worker.run_state_cache import RunStateCache
from prismline_worker.runners import FunctionMissingError
from prismline_worker.task_decisions import (
    Attempted,
    GivenBack,
    by_delay,
    judge,
    slot_wait,
    waits_for,
)
from prismline_worker.task_work import T, TaskKind


@dataclass(frozen=True)
class TaskKinds:
    """The kinds of tasks that this process can work on."""

    functions: FunctionTasks
    #: None: a worker of a pool, which takes no tasks of services.
    urls: TaskKind[UrlParams] | None = None


@dataclass
class _Results:
    """What the work on the tasks of one message has brought so far."""

    #: Tasks that are to be tried again, with the seconds that they wait.
    again: dict[str, float] = field(default_factory=dict)
    #: The run after the end of its tasks, if it was read.
    run_after: RunItem | None = None
    #: Ids of tasks that had FAILED, and were completed after all.
    late: list[str] = field(default_factory=list)
    #: Whether the run was stopped meanwhile.
    stopped: bool = False
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Work(Generic[T]):
    """The work on the tasks of one message."""

    command: TasksProcess
    message: Message
    run: RunItem
    terms: T
    deps: Dependencies
    run_states: RunStateCache
    results: _Results

    @property
    def deadline(self) -> float:
        """No attempt begins after it (`time.monotonic` seconds)."""
        return self.message.delivery.deadline(self.deps.settings.deadline_margin_seconds + self.terms.timeout_s)

    @property
    def stopped(self) -> bool:
        """Whether the run was stopped, as the last `record` found. No attempt begins after it."""
        return self.results.stopped

    def begin(self, ready: list[TaskItem]) -> list[TaskItem]:
        """Begin attempts at tasks. Return those that have begun."""
        started = self.deps.ledger.start_tasks(self.run, ready, worker=self.deps.name)
        fault_point("tasks.started", run_id=self.run.run_id)
        return started

    def record(self, attempted: list[Attempted]) -> None:
        """End the tasks that have ended, and give back the others."""
        fault_point("tasks.worked", run_id=self.run.run_id)
        moment, results = now(), self.results
        judged = [judge(each, self.terms.max_attempts, moment) for each in attempted]
        if endings := [each for each in judged if isinstance(each, TaskEnding)]:
            ended = self.deps.ledger.end_tasks(self.run, endings)
            results.run_after = ended.run or results.run_after
            results.late += [task.task_id for task in ended.late]
            # A recovery has reopened such a task during its attempt.
            results.again |= {task.task_id: 0.0 for task in ended.unchanged if not task.state.terminal}
            results.counts.update(task.status.lower() for task in ended.changed)
            stored = (task.result or task.value for task in ended.changed)
            results.counts["bytes"] += sum(each.length for each in stored if each is not None)
            fault_point("tasks.some_ended", run_id=self.run.run_id)
        if given_back := [each for each in judged if isinstance(each, GivenBack)]:
            self.deps.ledger.give_back_tasks(self.run, [each.given(moment) for each in given_back])
            results.again |= {each.task.task_id: each.wait for each in given_back}
            results.counts["tried_again"] += len(given_back)
            fault_point("tasks.given_back", run_id=self.run.run_id)
        results.stopped = self.run_states.stopped(self.run.run_id)

    def waits(self, reason: str) -> None:
        """Record why tasks cannot begin."""
        self.run_states.waits(self.run.run_id, reason)


def on_tasks_process(
    command: TasksProcess, message: Message, deps: Dependencies, kinds: TaskKinds, run_states: RunStateCache
) -> None:
    """Process the tasks that have not ended, unless their run was stopped."""
    # A recovery may have moved the run to other code just before it sent the message.
    run = run_states.run(command.run_id, fresh=command.recovery is not None)
    if run.cancelled_at is not None:
        deps.logger.info("tasks_skipped", extra={"reason": "their run was stopped"})
        return
    tasks = deps.ledger.read_tasks(run, command.task_ids)
    fault_point("tasks.read", run_id=command.run_id)
    if missing := len(set(command.task_ids)) - len(tasks):
        deps.logger.warning("tasks_missing", extra={"tasks": missing})
    left = [task for task in tasks.values() if not task.state.terminal]
    moment = now()
    later = {task.task_id: wait for task in left if (wait := waits_for(task, moment)) > 0}
    due = [task for task in left if task.task_id not in later]

    results, waits = _Results(), dict[str, float | None]()
    if due:
        kind: TaskKind[Any] | None = kinds.functions if is_function(command.workload) else kinds.urls
        if kind is None:
            raise PermanentError(f"A pool has no workers for tasks of {command.workload}.")
        try:
            terms = kind.terms(command, run)
        except FunctionMissingError as reason:
            run_states.waits(run.run_id, str(reason))
            waits = dict.fromkeys(task.task_id for task in due)
        else:
            waits = kind.work(due, _Work(command, message, run, terms, deps, run_states, results))
    deferred = {name: _slot_wait(run, command) if wait is None else wait for name, wait in waits.items()}
    fault_point("tasks.ended", run_id=command.run_id)
    _send_rest(later | results.again | deferred, bool(deferred), command, message, deps)
    fault_point("tasks.rest_sent", run_id=command.run_id)
    if not left:  # a worker may have died between the end of these tasks and the announcement
        results.run_after = deps.ledger.drain_shard(command.run_id, command.shard if run.shard_count > 1 else None)
    if results.run_after is not None:
        run_states.seen(results.run_after)
        _announce(results.run_after, results.late, message, deps)
        _finalize(results.run_after, command, message, deps, kinds, run_states)
    _count(command, results.counts, deps)


def _slot_wait(run: RunItem, command: TasksProcess) -> float:
    """Seconds until tasks without a slot are tried again. While its list is read, nobody knows how many the run has."""
    n_messages = None if run.chunks_total is None else run.chunks_total / len(command.task_ids)
    return slot_wait(command.deferrals, n_messages)


def _finalize(
    run: RunItem,
    command: TasksProcess,
    message: Message,
    deps: Dependencies,
    kinds: TaskKinds,
    run_states: RunStateCache,
) -> None:
    """Finalize a run that has drained. If that has to wait, send one of its tasks again, which have all ended."""
    try:
        wait = finalize(run, command, message, deps, kinds.functions)
    except FunctionMissingError as reason:
        run_states.waits(run.run_id, str(reason))
        _send_rest({command.task_ids[0]: slot_wait(command.deferrals, None)}, True, command, message, deps)
    else:
        if wait is not None:
            _send_rest({command.task_ids[0]: wait}, False, command, message, deps)


def _send_rest(
    waits: dict[str, float], deferred: bool, command: TasksProcess, message: Message, deps: Dependencies
) -> None:
    """Send the tasks that have not ended in new messages to the queue that they came from."""
    queue = message.delivery.queue.removeprefix(queue_name(deps.settings.environment, ""))
    for delay, names in by_delay(waits.items()).items():
        rest = command.model_copy(
            update={
                "task_ids": names,
                "attempt": command.attempt + 1,
                "deferrals": command.deferrals + deferred,
            }
        )
        key = (message.envelope.id, str(delay), names[0])
        envelope = deps.transport.wrap(rest, traceparent=message.envelope.traceparent, key=key)
        deps.transport.send(queue, [envelope], delay_seconds=delay)


def _announce(run: RunItem, late: list[str], message: Message, deps: Dependencies) -> None:
    """Publish that the run has drained, and which tasks succeeded late. A repeated event has the same id.

    The drain is published until the run's end is recorded. A late success has removed that record. So if the worker
    dies here, the sweeper publishes the drain, and the status service still checks the run.
    """
    if run.drained_at is None:
        return
    traceparent = message.envelope.traceparent
    if run.ended_at is None:
        drained = RunDrained.of(run)
        deps.transport.publish_event(drained, traceparent=traceparent, key=drained.key)
    if late:
        recovered = RunTasksRecovered.of(run, late)
        deps.transport.publish_event(recovered, traceparent=traceparent, key=(late[0],))


def _count(command: TasksProcess, counts: Counter[str], deps: Dependencies) -> None:
    Stats(deps.valkey).add(f"run:{command.run_id}", counts)
    with service_metrics("Worker") as metrics:
        metrics.add_dimension("Environment", deps.settings.environment)
        for name in ("completed", "failed"):
            metrics.add_metric(f"Tasks{name.title()}", unit="Count", value=counts[name])
