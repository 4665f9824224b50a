"""Writes and reads of tasks: ingestion adds them, workers start and end them, a recovery reopens them.

A task has the states of a chunk and their transitions. There are more tasks than chunks, so they are written many at a
time, and a large run has several shards. Tasks that end together belong to one shard, and change its counters in the
same transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from prismline_contracts.finalization import Finalization
from prismline_contracts.items import NewerStatus, RunItem
from prismline_contracts.tasks import (
    TASK_SK_PREFIX,
    TaskItem,
    TaskResult,
    TaskStatus,
    TaskValue,
    partition,
    shard_of,
    task_id,
)
from prismline_ledger.base import as_read
from prismline_ledger.splitting import Splitting
from prismline_ledger.transitions import ALLOWED_FROM, ENDED_ON, charges, counter_changes, truncate, with_error
from prismline_runtime import Change, ConditionFailedError, PermanentError, batches

#: How often a worker tries to begin an attempt at a task while other workers begin attempts at it.
STARTS = 5
#: Attributes of a task that has failed, and of one that has succeeded.
FAILURE, SUCCESS = ("error", "error_type"), ("result", "value")
#: Most requests for one page of tasks, if few of the tasks that are read have the wanted status.
READS_PER_PAGE = 4


@dataclass(frozen=True)
class TaskEnding:
    """How a task ended: with a result, which may be the value of a function, or with an error."""

    #: The task as it was read. The decision depends on it.
    task: TaskItem
    result: TaskResult | TaskValue | None = None
    error: str | None = None
    #: The class of the error, if a function raised it.
    error_type: str | None = None
    #: Digest of the code of the attempt that ended it, if its workload is a function.
    code: str | None = None
    duration_ms: int | None = None
    #: True for a task that is given up: nothing is written if any attempt has begun or ended since it was read.
    unless_changed: bool = False

    @property
    def to(self) -> TaskStatus:
        """The status that the task gets."""
        return TaskStatus.COMPLETED if self.result is not None else TaskStatus.FAILED

    @property
    def guard(self) -> tuple[str, ...]:
        """Attributes that must not have changed since the task was read."""
        if self.result is not None:
            return ()
        return ("recovery", "status", "attempts", "interruptions") if self.unless_changed else ("recovery",)


@dataclass(frozen=True)
class GivenBackTask:
    """An attempt at a task that ended without a result."""

    #: The task as `start_tasks` returned it.
    task: TaskItem
    error: str
    #: Whether a dependency did not answer, so that the attempt does not count against the task.
    interrupted: bool = False
    #: The moment before which no attempt begins.
    not_before: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True)
class TasksEnded:
    """What `end_tasks` did."""

    #: The tasks that it ended, as they are now.
    changed: list[TaskItem] = field(default_factory=list)
    #: The other tasks, as they are now: they had ended, or have changed since they were read. One that has not ended
    #: needs another attempt.
    unchanged: list[TaskItem] = field(default_factory=list)
    #: The current run. None if it was not read, because the run has several shards and none of the tasks' is complete.
    run: RunItem | None = None
    #: The tasks in `changed` that had FAILED before.
    late: list[TaskItem] = field(default_factory=list)

    @property
    def drained(self) -> bool:
        """Whether the run has drained. The caller publishes that unless `run.ended_at` is set."""
        return self.run is not None and self.run.drained_at is not None


@dataclass(frozen=True)
class AddedTasks:
    """What `add_tasks` did: ids by shard, in the order of the sources."""

    #: All tasks of the call, whether they were there before or not.
    ids: dict[int, list[str]]
    #: Those of them at which no attempt has begun. They may have no message yet.
    to_send: dict[int, list[str]]


@dataclass(frozen=True)
class TaskPage:
    """Some tasks of a shard in the order of their ids."""

    tasks: list[TaskItem]
    #: The id after which the next page begins. None: there are no more tasks now.
    after: str | None


class Tasks(Splitting):
    """Reads and conditional writes of task items."""

    # ---- ingestion

    def add_tasks(self, run: RunItem, first_index: int, sources: Sequence[str]) -> AddedTasks:
        """Create the items of tasks, PENDING. Existing items stay unchanged, whatever their status is.

        If the first task is there, an earlier call has written most of them: they are read, and only those that are
        missing are written. A task at which an attempt has begun was sent before, so the caller need not send it.
        """
        created_at, by_shard = self._clock(), dict[int, list[str]]()
        items: dict[str, dict[str, Any]] = {}
        for index, source in enumerate(sources, first_index):
            name = task_id(run.run_id, index)
            shard = shard_of(name, run.shard_count)
            by_shard.setdefault(shard, []).append(name)
            items[name] = {
                "PK": partition(run.run_id, shard, run.shard_count),
                "SK": TASK_SK_PREFIX + name,
                "index": index,
                "source": source,
                "status": TaskStatus.PENDING.value,
                "created_at": created_at,
                "attempts": 0,
                "interruptions": 0,
            }
        first = next(iter(items), None)
        known = self.read_tasks(run, items) if first is not None and self.task(run, first) is not None else {}
        missing = [name for name in items if name not in known]
        created = self._table.create_each([items[name] for name in missing], key="PK")
        known |= self.read_tasks(run, [name for name, new in zip(missing, created, strict=True) if not new])
        to_send = {
            shard: unsent
            for shard, names in by_shard.items()
            if (unsent := [name for name in names if name not in known or not _has_begun(known[name])])
        }
        return AddedTasks(by_shard, to_send)

    def checkpoint(
        self, run: RunItem, checkpoint: str, *, n_rejected: int | None = None, rejects_key: str | None = None
    ) -> RunItem | None:
        """Record how far an ingestion has come, if the table still has the checkpoint of `run`. Return the current run.

        None: another ingestion has continued from there, or has latched the run. The caller stops.
        """
        sets = {"checkpoint": checkpoint, "n_rejected": n_rejected, "rejects_key": rejects_key}
        open_still = Attr("PK").exists() & Attr("latched_at").not_exists()
        change = Change(
            {name: value for name, value in sets.items() if value is not None},
            condition=open_still & as_read(run, "checkpoint"),
        )
        return self._update_run(run, change)

    def note_task_queue(self, run: RunItem, queue: str) -> RunItem:
        """Record the full name of the run's own queue, unless it has one or has ended. Return the current run.

        The queue of a run that has ended is deleted already, and nobody would delete another one.
        """
        going = Attr("PK").exists() & Attr("ended_at").not_exists()
        change = Change(defaults={"task_queue": queue}, condition=going)
        return self._update_run(run, change) or self.run(run.run_id)

    def forget_task_queue(self, run: RunItem) -> bool:
        """Record that the run's own queue is deleted. False if the run has been continued since it was read."""
        same = as_read(run, "task_queue", "ended_at")
        return self._update_run(run, Change(removes=("task_queue",), condition=same)) is not None

    def set_task_total(self, run_id: str, totals: Sequence[int]) -> None:
        """Set the total of each shard, and their sum for the run, after all task items are written.

        totals: one for each shard of the run. Raises PermanentError if another total was set before.
        """
        if len(totals) > 1:
            self._set_shard_totals(run_id, totals)
        self._set_run_total(run_id, sum(totals), "tasks", {})

    # ---- reads

    def task(self, run: RunItem, name: str) -> TaskItem | None:
        """The task with the id `name`, or None."""
        item = self._table.get(_key(run, name))
        return None if item is None else TaskItem.model_validate(item)

    def read_tasks(self, run: RunItem, names: Iterable[str]) -> dict[str, TaskItem]:
        """The tasks that exist among the ids `names`, by id."""
        keys = [_key(run, name) for name in dict.fromkeys(names)]
        tasks = map(TaskItem.model_validate, self._table.batch_get(keys))
        return {task.task_id: task for task in tasks}

    def page_of_tasks(
        self,
        run: RunItem,
        shard: int,
        *,
        after: str | None = None,
        limit: int = 100,
        status: TaskStatus | None = None,
        begins: str | None = None,
    ) -> TaskPage:
        """At most `limit` tasks of a shard whose ids come after `after`. One request without `status` and `begins`.

        With `status`, or `begins` (the beginning of their sources), a page may be short, or empty, although more tasks
        follow: then its `after` is not None.
        """
        pk = partition(run.run_id, shard, run.shard_count)
        where = _wanted(status, begins)
        found: list[TaskItem] = []
        for _ in range(READS_PER_PAGE):
            page = self._table.page(
                _tasks_in(pk),
                limit=limit - len(found) if where is None else max(limit, 1000),
                after=None if after is None else {"PK": pk, "SK": TASK_SK_PREFIX + after},
                where=where,
            )
            tasks = [TaskItem.model_validate(item) for item in page.items]
            after = None if page.last_key is None else page.last_key["SK"].removeprefix(TASK_SK_PREFIX)
            if len(found) + len(tasks) > limit:
                tasks = tasks[: limit - len(found)]
                after = tasks[-1].task_id
            found += tasks
            if after is None or len(found) == limit:
                break
        return TaskPage(found, after)

    def tasks(self, run: RunItem, *, status: TaskStatus | None = None, begins: str | None = None) -> Iterator[TaskItem]:
        """All tasks of the run, shard by shard, in the order of their ids. begins: the beginning of their sources."""
        where = _wanted(status, begins)
        for shard in range(run.shard_count):
            key = _tasks_in(partition(run.run_id, shard, run.shard_count))
            yield from map(TaskItem.model_validate, self._table.query(key, where=where))

    # ---- the worker

    def start_tasks(self, run: RunItem, tasks: Iterable[TaskItem], *, worker: str | None = None) -> list[TaskItem]:
        """Begin an attempt at each task that may have one. Return the tasks of these attempts.

        worker: the process that makes the attempts.
        A task that is IN_PROGRESS is started again, because its worker may have died. If both workers finish, only one
        of them ends the task. After `STARTS` collisions with other workers, a task is left to them: each of them has
        its own message for it.
        """
        started: list[TaskItem] = []
        left = [task for task in tasks if task.state in ALLOWED_FROM[TaskStatus.IN_PROGRESS]]
        for _ in range(STARTS):
            if not left:
                break
            moment = self._clock()
            changes = [
                {"status": TaskStatus.IN_PROGRESS.value, "started_at": moment, "attempts": task.attempts + 1}
                | ({} if task.first_started_at else {"first_started_at": moment})
                | ({} if worker is None else {"worker": worker})
                for task in left
            ]
            done = self._replace(left, changes, "status", "attempts")
            started += [
                task.model_copy(update=change) for task, change, ok in zip(left, changes, done, strict=True) if ok
            ]
            left = self._again(run, [task for task, ok in zip(left, done, strict=True) if not ok])
        return started

    def give_back_tasks(
        self,
        run: RunItem,  # noqa: ARG002  every call about tasks names their run
        given_back: Iterable[GivenBackTask],
    ) -> list[TaskItem]:
        """Make tasks PENDING after attempts without a result. Return those for which no other attempt has begun."""
        given, moment = list(given_back), self._clock()
        changes = [_given_back(each, moment) for each in given]
        done = self._replace([each.task for each in given], changes, "status", "attempts")
        pairs = zip(given, changes, done, strict=True)
        return [TaskItem.model_validate(each.task.model_dump() | change) for each, change, ok in pairs if ok]

    def end_tasks(self, run: RunItem, endings: Iterable[TaskEnding]) -> TasksEnded:
        """End tasks and count them, unless they have ended. Drain the run if these were its last ones.

        An ending is not written if its decision depends on an attribute of the task that has changed. For example, a
        failure from before a recovery says nothing about the attempts after it.
        """
        changed: list[TaskItem] = []
        unchanged: list[TaskItem] = []
        late: list[TaskItem] = []
        left = {ending.task.SK: (ending, ending.task) for ending in endings}
        shards = {_shard_in(task) for _, task in left.values()}
        while left:
            possible = [ending for ending, task in left.values() if _may_end(ending, task)]
            unchanged += [task for ending, task in left.values() if not _may_end(ending, task)]
            refused: list[TaskEnding] = []
            for group in self._groups([(ending, left[ending.task.SK][1]) for ending in possible]):
                ended = self._end_group(run, group)
                changed += ended
                late += ended if _is_late(group[0][1]) else []
                refused += [] if ended else [ending for ending, _ in group]
            now = self.read_tasks(run, [ending.task.task_id for ending in refused])
            left = {ending.task.SK: (ending, now[name]) for ending in refused if (name := ending.task.task_id) in now}
        drained = [self.drain_shard(run.run_id, shard) for shard in sorted(shards, key=lambda shard: shard or 0)]
        current = next((each for each in reversed(drained) if each is not None), None)
        return TasksEnded(changed, unchanged, current, late)

    def _end_group(self, run: RunItem, group: Sequence[tuple[TaskEnding, TaskItem]]) -> list[TaskItem]:
        """End tasks of one shard in one transaction. Either all or none are late successes. Empty: one has changed."""
        moment, ended, writes = self._clock(), [], []
        total, costs = Counter[str](), Counter[str]()
        for ending, task in group:
            sets = {"status": ending.to.value, "completed_at": moment, "charged_attempts": task.attempts}
            sets |= _outcome(ending, task, moment)
            removes = ("uncharged_ms", "not_before", *(FAILURE if ending.result is not None else SUCCESS))
            change = Change(sets, removes=removes, condition=as_read(task, *ENDED_ON, *ending.guard))
            writes.append(self._table.changing({"PK": task.PK, "SK": task.SK}, change))
            ended.append(TaskItem.model_validate(task.model_dump(exclude=set(removes)) | sets))
            total.update(counter_changes(task.state, ending.to))
            costs.update(charges(task, ending.duration_ms, ending.result.length if ending.result else None))
        shard, late = _shard_in(group[0][1]), _is_late(group[0][1])
        current = self.run(run.run_id) if late and shard is not None else None
        changes = {name: change for name, change in total.items() if change} | costs
        try:
            self._table.transact(*writes, *self._counting(run.run_id, shard, changes, run=current, late=late))
        except ConditionFailedError:
            return []
        return ended

    # ---- the finalization of a run

    def set_finalization(self, run: RunItem, finalization: Finalization) -> RunItem | None:
        """Record how far the finalization of a run has come. Return the current run, which the sweeper checks again.

        None if the run's end or its finalization is another one than in `run`.
        """
        change = Change(
            {"finalization": finalization.as_json(), **self._opened()},
            condition=Attr("PK").exists() & as_read(run, "finalization", "drained_at", "drains", "chunks_failed"),
        )
        return self._update_run(run, change)

    # ---- recoveries

    def reopen_tasks(self, run: RunItem, tasks: Iterable[TaskItem], recovery: str) -> list[TaskItem]:
        """Reopen tasks for `recovery`, with all their attempts available again. Return those that are PENDING now.

        FAILED tasks become PENDING in transactions with their shard's counter, and the run is no longer drained. A task
        that fails after `recovery` has reopened it stays FAILED. For tasks that have not ended, only the recovery is
        recorded. A task that has changed since the read stays as it is.
        """
        given = [task for task in tasks if task.state not in (TaskStatus.COMPLETED, NewerStatus.NEWER)]
        going = [task for task in given if task.state is not TaskStatus.FAILED]
        failed = [task for task in given if task.state is TaskStatus.FAILED and task.recovery != recovery]
        noted = self._replace(going, [{"recovery": recovery}] * len(going), "status", "attempts", "recovery")
        reopened = [
            task.model_copy(update={"recovery": recovery}) for task, done in zip(going, noted, strict=True) if done
        ]
        for group in self._by_shard(failed):
            reopened += self._reopen_group(run, group, recovery)
        return reopened

    def _reopen_group(self, run: RunItem, group: list[TaskItem], recovery: str) -> list[TaskItem]:
        while group:
            changes = [
                {
                    "status": TaskStatus.PENDING.value,
                    "recovery": recovery,
                    "last_error": task.error or "",
                    "interruptions": task.attempts,  # so that the attempts so far no longer count against the task
                }
                for task in group
            ]
            removes = (*FAILURE, "completed_at", "first_started_at", "not_before")
            writes = [
                self._table.changing(
                    {"PK": task.PK, "SK": task.SK},
                    Change(change, removes=removes, condition=as_read(task, "status", "attempts", "recovery")),
                )
                for task, change in zip(group, changes, strict=True)
            ]
            failed = counter_changes(TaskStatus.FAILED, TaskStatus.PENDING)
            failed = {name: change * len(group) for name, change in failed.items()}
            try:
                self._table.transact(*writes, *self._uncounting(run.run_id, _shard_in(group[0]), failed))
            except ConditionFailedError as refused:
                still = [task for task, changed in zip(group, refused.failed, strict=False) if not changed]
                if len(still) == len(group):
                    raise PermanentError(f"There is no run {run.run_id} in the ledger.") from None
                group = still
                continue
            absent = dict.fromkeys(removes)
            return [task.model_copy(update=change | absent) for task, change in zip(group, changes, strict=True)]
        return []

    # ---- common

    def _replace(self, tasks: Sequence[TaskItem], changes: Sequence[Mapping[str, Any]], *guard: str) -> list[bool]:
        """Change each task whose attributes `guard` are still those in `tasks`. Return for each whether it changed."""
        return self._table.change_each(
            ({"PK": task.PK, "SK": task.SK}, Change(change, condition=as_read(task, *guard)))
            for task, change in zip(tasks, changes, strict=True)
        )

    def _groups(self, pairs: Iterable[tuple[TaskEnding, TaskItem]]) -> Iterator[list[tuple[TaskEnding, TaskItem]]]:
        """Groups of endings that fit into one transaction: one shard, room for its counters and a late one's run."""
        by_kind: dict[tuple[str, bool], list[tuple[TaskEnding, TaskItem]]] = {}
        for pair in pairs:
            by_kind.setdefault((pair[1].PK, _is_late(pair[1])), []).append(pair)
        for (_, late), group in by_kind.items():
            yield from batches(group, self._table.writes_per_transaction - (2 if late else 1))

    def _by_shard(self, tasks: Iterable[TaskItem]) -> Iterator[list[TaskItem]]:
        """Groups of tasks to reopen in one transaction: one shard, room for its counters and the run."""
        by_partition: dict[str, list[TaskItem]] = {}
        for task in tasks:
            by_partition.setdefault(task.PK, []).append(task)
        for group in by_partition.values():
            yield from batches(group, self._table.writes_per_transaction - 2)

    def _again(self, run: RunItem, tasks: Sequence[TaskItem]) -> list[TaskItem]:
        """The current tasks, without those for which no attempt may begin."""
        now = self.read_tasks(run, [task.task_id for task in tasks])
        return [task for task in now.values() if task.state in ALLOWED_FROM[TaskStatus.IN_PROGRESS]]


def _has_begun(task: TaskItem) -> bool:
    """Whether an attempt at the task has begun, or it has ended without one."""
    return task.attempts > 0 or task.state is not TaskStatus.PENDING


def _key(run: RunItem, name: str) -> dict[str, str]:
    shard = shard_of(name, run.shard_count)
    return {"PK": partition(run.run_id, shard, run.shard_count), "SK": TASK_SK_PREFIX + name}


def _wanted(status: TaskStatus | None, begins: str | None) -> ConditionBase | None:
    """The condition for tasks with this status and this beginning of their source. None: all tasks."""
    conditions: list[ConditionBase] = []
    if status is not None:
        conditions.append(Attr("status").eq(status.value))
    if begins:
        conditions.append(Attr("source").begins_with(begins))
    return reduce(and_, conditions) if conditions else None


def _tasks_in(pk: str) -> ConditionBase:
    return Key("PK").eq(pk) & Key("SK").begins_with(TASK_SK_PREFIX)


def _shard_in(task: TaskItem) -> int | None:
    """The shard whose item counts the task. None: the run's item counts it."""
    shard = task.PK.partition("#")[2]
    return int(shard) if shard else None


def _may_end(ending: TaskEnding, task: TaskItem) -> bool:
    """Whether the current task may end like this: its state allows it, and the decision's attributes are unchanged."""
    same = all(getattr(task, name) == getattr(ending.task, name) for name in ending.guard)
    return same and task.state in ALLOWED_FROM[ending.to]


def _is_late(task: TaskItem) -> bool:
    return task.state is TaskStatus.FAILED


def _given_back(given: GivenBackTask, moment: str) -> dict[str, Any]:
    task, took = given.task, given.duration_ms
    change: dict[str, Any] = {
        "status": TaskStatus.PENDING.value,
        "last_error": truncate(given.error),
        "interruptions": task.interruptions + given.interrupted,
        "errors": with_error(task, given.error, moment, duration_ms=took, interrupted=given.interrupted),
    }
    if given.not_before is not None:
        change["not_before"] = given.not_before
    if took:
        change["uncharged_ms"] = task.uncharged_ms + took
    return change


def _outcome(ending: TaskEnding, task: TaskItem, moment: str) -> dict[str, Any]:
    """The attributes that the ending sets in the item, which was read as `task`."""
    took = ending.duration_ms
    known = {"duration_ms": took, "code": ending.code, "error_type": ending.error_type}
    outcome: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    if ending.result is not None:
        name = "value" if isinstance(ending.result, TaskValue) else "result"
        return outcome | {name: ending.result.model_dump(exclude_none=True)}
    error = ending.error or "The error is unknown."
    if took is not None:  # an attempt ended it
        outcome["errors"] = with_error(task, error, moment, duration_ms=took, attempted=ending.task)
    return outcome | {"error": truncate(error)}
