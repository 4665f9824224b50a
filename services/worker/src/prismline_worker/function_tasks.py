"""Works on tasks whose workload is an author's function: each item in a runner process of the author's environment."""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from prismline.protocol import Entry
from prismline.supervisor import Outcome, Supervisor
from prismline.values import to_json
from prismline_contracts.commands import TasksProcess
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import MAX_KEPT_VALUE_BYTES, TaskItem, TaskValue, value_key
from prismline_contracts.workloads import RegisteredWorkload, is_entry_point, workload_key
from prismline_coordination import Leases
from prismline_runtime import Bucket, PermanentError, UnavailableError, describe_invalid
from prismline_worker.concurrency import NoSlotError, keeping
from prismline_worker.dependencies import Dependencies
from prismline_worker.runners import FunctionMissingError, RunnerKind, Runners
from prismline_worker.task_decisions import Attempted, ItemFailedError, NoTimeError
from prismline_worker.task_work import Work

#: Interval, in seconds, at which ended items are recorded, and work of about this length that is begun at a time.
RECORD_SECONDS = 1.0
#: Most seconds that are reserved at the end of an invocation for an item. One that takes longer may be cut off there.
RESERVED_SECONDS = 420.0
#: Registered functions that a process remembers.
MOST_REMEMBERED = 256
#: Longest traceback, and longest end of what an item printed, in a log line, in characters.
LOGGED_CHARS = 2000


@dataclass(frozen=True)
class FunctionTerms:
    """What holds for all tasks of a message."""

    kind: RunnerKind
    #: Seconds that are reserved for an attempt at the end of an invocation.
    timeout_s: float
    #: Attempts of an item whose error does not say otherwise.
    max_attempts: int
    #: The function takes a list of items.
    vectorized: bool = False
    #: Longest time of an attempt, in seconds.
    longest_s: float = RESERVED_SECONDS


class FunctionTasks:
    """Works on tasks of functions. The runner processes are shared by all messages of the process."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._runners = Runners(deps.settings.functions_runners or os.cpu_count() or 1, _supervisor_of)
        self._registered = lru_cache(MOST_REMEMBERED)(self._read)
        #: Seconds that an item of a function took lately.
        self._seconds: dict[tuple[str, str], float] = {}

    def close(self) -> None:
        """Kill the runners."""
        self._runners.close()

    def terms(self, command: TasksProcess, run: RunItem) -> FunctionTerms:
        """What holds for the tasks of a message. Raises FunctionMissingError if the function cannot be run here."""
        if run.code is None:
            raise PermanentError(f"There is no workload {command.workload} of tasks, and the run names no code.")
        registered = self._registered(command.bucket, run.workload, run.code)
        settings, local = self._deps.settings, registered.local
        python, paths = settings.functions_python or sys.executable, settings.functions_paths
        if local is not None and settings.functions_local:
            python, paths = local.python, [*local.paths, *paths]
        elif not is_entry_point(run.workload):
            raise FunctionMissingError(
                f"{run.workload} was registered on another machine. Install its package with an entry point of the"
                " group prismline.workloads, and register that name."
            )
        kind = RunnerKind(
            name=run.workload,
            code=run.code,
            parameters=json.dumps(run.message_params, sort_keys=True),
            python=python,
            paths=tuple(paths),
            variables=tuple(settings.functions_variables),
        )
        limits = registered.limits
        reserved = min(limits.timeout, RESERVED_SECONDS)
        return FunctionTerms(kind, reserved, limits.attempts, registered.vectorized, limits.timeout)

    def load(self, terms: FunctionTerms) -> None:
        """Make sure that the function can be loaded. Raises FunctionMissingError."""
        self._runners.load(terms.kind)

    def finalize(self, terms: FunctionTerms, results: Path, *, item_id: str, attempt: int) -> Outcome:
        """One attempt of the function of `finalize`. Raises FunctionMissingError. results: see `prismline.results`."""
        return self._runners.finalize(terms.kind, results, item_id=item_id, attempt=attempt)

    def work(self, tasks: Sequence[TaskItem], work: Work[FunctionTerms]) -> dict[str, float | None]:
        """Call the function for tasks of one run. Return ids of tasks that were not begun, with the seconds they wait.

        None in place of the seconds: the function cannot be loaded here, or the run has no slot.

        Passes on errors of the methods of `work`.
        """
        with ExitStack() as stack:
            try:
                self._runners.load(work.terms.kind)
                at_a_time = self._slots(stack, tasks, work)
            except UnavailableError as error:
                return self._waits(tasks, error, work)
            return _Message(self._deps, self._runners, self._seconds, work, at_a_time).work(tasks)

    def _waits(
        self, tasks: Sequence[TaskItem], error: UnavailableError, work: Work[FunctionTerms]
    ) -> dict[str, float | None]:
        work.waits(str(error))
        return dict.fromkeys(task.task_id for task in tasks)

    def _slots(self, stack: ExitStack, tasks: Sequence[TaskItem], work: Work[FunctionTerms]) -> int:
        """How many tasks may work at a time. Raises NoSlotError, and UnavailableError if Valkey does not answer.

        One runner works on all tasks of a vectorized function.
        """
        command = work.command
        most = len(tasks) if work.terms.vectorized else min(len(tasks), self._runners.most)
        if command.max_concurrency is None:
            return most
        leases = Leases(self._deps.valkey)
        held = leases.take(f"run:{command.run_id}", command.max_concurrency, most)
        if not held:
            raise NoSlotError(f"No slot of the run is free: it has {command.max_concurrency}.")
        stack.enter_context(keeping(leases, held, self._deps.logger))
        return len(held)

    def _read(self, bucket: str, name: str, code: str) -> RegisteredWorkload:
        try:
            body = self._deps.open_bucket(bucket).read(workload_key(name, code))
            return RegisteredWorkload.model_validate_json(body)
        except ValidationError as error:
            raise FunctionMissingError(f"The registration of {name} is invalid: {describe_invalid(error)}.") from error
        except PermanentError as error:
            raise FunctionMissingError(f"{name} is not registered with the code {code[:12]}.") from error


class _Message:
    """The work on the tasks of one message: begin some, run them in threads, record what has ended, begin more."""

    def __init__(
        self,
        deps: Dependencies,
        runners: Runners,
        seconds: dict[tuple[str, str], float],
        work: Work[FunctionTerms],
        at_a_time: int,
    ) -> None:
        self._deps = deps
        self._runners = runners
        self._seconds = seconds
        self._work = work
        self._at_a_time = at_a_time
        self._kind = work.terms.kind
        self._vectorized = work.terms.vectorized
        #: Tasks that one thread works on, one after the other or in one call.
        self._begun: queue.SimpleQueue[list[TaskItem] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Attempted] = queue.SimpleQueue()
        self._missing: FunctionMissingError | None = None

    def work(self, tasks: Sequence[TaskItem]) -> dict[str, float | None]:
        """Work on the tasks. Return those that were not begun."""
        left, under_way = deque(tasks), 0
        count = 1 if self._vectorized else self._at_a_time
        threads = [threading.Thread(target=self._run, daemon=True, name="items") for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            while left or under_way:
                if left and under_way <= (0 if self._vectorized else self._at_a_time) and not self._over():
                    started = self._work.begin([left.popleft() for _ in range(min(len(left), self._portion()))])
                    under_way += len(started)
                    for group in [started] if self._vectorized else [[task] for task in started]:
                        self._begun.put(group)
                elif not under_way:
                    break
                ended = self._next_ended(under_way)
                under_way -= len(ended)
                if ended:
                    self._work.record(ended)
        finally:
            for _ in threads:
                self._begun.put(None)
        if left and self._missing is not None:
            self._work.waits(str(self._missing))
        wait = None if self._missing is not None else 0.0
        return {task.task_id: wait for task in left}

    def _over(self) -> bool:
        return self._missing is not None or self._work.stopped or time.monotonic() >= self._work.deadline

    def _portion(self) -> int:
        """How many tasks are begun together: enough to work for about a second, so that few writes begin many.

        Those of a vectorized function are begun for one call.
        """
        if self._vectorized:
            return self._at_a_time
        took = self._seconds.get((self._kind.name, self._kind.code), RECORD_SECONDS)
        return max(self._at_a_time, math.ceil(self._at_a_time * RECORD_SECONDS / max(took, 0.001)))

    def _next_ended(self, under_way: int) -> list[Attempted]:
        """What ends within a second, or until nothing is under way."""
        ended: list[Attempted] = []
        until = time.monotonic() + RECORD_SECONDS
        while len(ended) < under_way and (left := until - time.monotonic()) > 0:
            try:
                ended.append(self._ended.get(timeout=left))
            except queue.Empty:
                break
        return ended

    def _run(self) -> None:
        """Run begun tasks until there is no further one. Runs in several threads."""
        while (group := self._begun.get()) is not None:
            together = self._run_together(group) if self._vectorized else {}
            for task in group:
                self._run_one(task, together.get(task.task_id))

    def _run_together(self, tasks: Sequence[TaskItem]) -> dict[str, Outcome]:
        """The outcomes of tasks in one call of a vectorized function, by task id. Empty if the call failed.

        A task that was begun before is left out: it may be what failed the call, or ended its time.
        """
        first = [task for task in tasks if task.attempts <= 1]
        if len(first) < 2 or self._missing is not None or time.monotonic() >= self._work.deadline:
            return {}
        entries = [Entry(item=json.loads(task.source), item_id=task.address, attempt=task.attempts) for task in first]
        try:
            batch = self._runners.run_batch(self._kind, entries)
        except Exception as error:
            self._deps.logger.info("batch_failed", extra={"reason": str(error)})
            return {}
        if not batch.outcomes:
            self._deps.logger.info("batch_failed", extra={"reason": batch.error})
        return {task.task_id: outcome for task, outcome in zip(first, batch.outcomes, strict=False)}

    def _run_one(self, task: TaskItem, outcome: Outcome | None) -> None:
        """One attempt at a task, unless a call for several tasks had its outcome."""
        began = time.monotonic()
        took_ms: int | None = None
        try:
            if outcome is None:
                outcome = self._attempt(task)
            took_ms = outcome.duration_ms
            result: TaskValue | Exception = self._result(task, outcome)
        except Exception as error:
            if isinstance(error, FunctionMissingError):
                self._missing = error
            result = error
        if took_ms is None:
            took_ms = round((time.monotonic() - began) * 1000)
        else:
            self._note_seconds(took_ms / 1000)
        self._ended.put(Attempted(task, result, took_ms, code=self._kind.code))

    def _attempt(self, task: TaskItem) -> Outcome:
        if self._missing is not None:
            raise FunctionMissingError(str(self._missing))
        if time.monotonic() >= self._work.deadline:
            raise NoTimeError("There was no time left to work on it.", retry_after=0)
        return self._runners.run(self._kind, json.loads(task.source), item_id=task.address, attempt=task.attempts)

    def _note_seconds(self, seconds: float) -> None:
        key = (self._kind.name, self._kind.code)
        self._seconds[key] = 0.8 * self._seconds.get(key, seconds) + 0.2 * seconds

    def _result(self, task: TaskItem, outcome: Outcome) -> TaskValue:
        """The value of an item, stored if it is long. Raises ItemFailedError if the item has none."""
        if outcome.status == "failed":
            self._deps.logger.info(
                "item_failed",
                extra={
                    "index": task.index,
                    "error_type": outcome.error_type,
                    "reason": outcome.error,
                    "traceback": outcome.traceback[-LOGGED_CHARS:],
                    "output": outcome.output[-LOGGED_CHARS:],
                },
            )
            raise ItemFailedError(outcome)
        bucket = self._deps.open_bucket(self._work.command.bucket)
        return kept_value(outcome, value_key(task.run_id, task.task_id, task.attempts), bucket)


def kept_value(outcome: Outcome, key: str, bucket: Bucket) -> TaskValue:
    """What a function returned, for an item of the ledger. A long value is stored under the key."""
    text = to_json(outcome.value)
    if len(text) <= MAX_KEPT_VALUE_BYTES:
        return TaskValue(text=text, length=len(text))
    bucket.write(key, text.encode())
    return TaskValue(key=key, length=len(text))


def _supervisor_of(kind: RunnerKind) -> Supervisor:
    return Supervisor(
        kind.name,
        python=kind.python,
        paths=kind.paths,
        variables=kind.variables,
        parameters=json.loads(kind.parameters),
        code=kind.code,
    )
