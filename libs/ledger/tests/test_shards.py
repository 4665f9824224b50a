"""The counters of all shards equal the items, and a run drains once, when its last task or chunk has ended.

This holds for calls with old reads, for calls that die halfway, and with another call in between. A state machine of
hypothesis calls the ledger and reads the items in the table. The invariants are written from
docs/explanation/protocol.md, without the ledger's own predicates.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scenes import DiedError, before_request

from prismline_contracts.items import ChunkItem, RunItem
from prismline_contracts.tasks import TaskItem, TaskResult, TaskStatus
from prismline_ledger import GivenBackTask, Ledger, NewChunk, NewRun, Outcome, TaskEnding
from prismline_runtime import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.emulator

#: More tasks than fit into one transaction with the counters, so that to end them takes several.
N = 12
ENDED = ("COMPLETED", "FAILED")
RESULT = TaskResult(key="results/r/t", http_status=200, length=1, sha256="0" * 64, final_url="https://example.org")
EXAMPLES = int(os.environ.get("PRISMLINE_TEST_EXAMPLES", "500")) // 50

Item = dict[str, Any]


class TaskCalls:
    """The calls for several tasks of a run at once."""

    def __init__(self, ledger: Ledger, run: RunItem, shard_count: int) -> None:
        self.ledger, self.run, self.shard_count = ledger, run, shard_count

    def add(self) -> None:
        by_shard = self.ledger.add_tasks(self.run, 0, [f"https://example.org/{n}" for n in range(N)]).ids
        self.totals = [len(by_shard.get(shard, [])) for shard in range(self.run.shard_count)]

    def close(self) -> None:
        self.ledger.set_task_total(self.run.run_id, self.totals)

    model: type[Any] = TaskItem

    def read(self) -> list[Any]:
        return list(self.ledger.tasks(self.run))

    def start(self, tasks: list[Any]) -> None:
        self.ledger.start_tasks(self.run, tasks)

    def give_back(self, tasks: list[Any], interrupted: bool) -> None:
        self.ledger.give_back_tasks(self.run, [GivenBackTask(task, "slow", interrupted) for task in tasks])

    def complete(self, tasks: list[Any]) -> None:
        self.ledger.end_tasks(self.run, [TaskEnding(task, result=RESULT) for task in tasks])

    def fail(self, tasks: list[Any]) -> None:
        self.ledger.end_tasks(self.run, [TaskEnding(task, error="404") for task in tasks])

    def give_up(self, tasks: list[Any]) -> None:
        self.ledger.end_tasks(self.run, [TaskEnding(task, error="gone", unless_changed=True) for task in tasks])

    def reopen(self, tasks: list[Any], recovery: str) -> None:
        self.ledger.reopen_tasks(self.run, tasks, recovery)


class ChunkCalls(TaskCalls):
    """The same calls for chunks, one chunk after the other."""

    model = ChunkItem

    def add(self) -> None:
        self.run = self.ledger.set_shard_count(self.run, self.shard_count)
        chunks = [NewChunk(f"chunk-{number:07d}", "in", 1) for number in range(N)]
        self.ledger.add_chunks(self.run.run_id, chunks, shard_count=self.run.shard_count)

    def close(self) -> None:
        self.ledger.set_total(self.run.run_id, n_chunks=N, n_items=N, n_blank=0, shard_count=self.run.shard_count)

    def read(self) -> list[Any]:
        return list(self.ledger.chunks(self.run.run_id))

    def start(self, tasks: list[Any]) -> None:
        for chunk in tasks:
            self.ledger.start_chunk(chunk.run_id, chunk.chunk_id)

    def give_back(self, tasks: list[Any], interrupted: bool) -> None:
        for chunk in tasks:
            self.ledger.end_attempt(chunk, "slow", interrupted=interrupted)

    def complete(self, tasks: list[Any]) -> None:
        for chunk in tasks:
            self.ledger.complete_chunk(chunk, Outcome("o", n_timed_out=int(chunk.SK[-1]) % 2), duration_ms=1)

    def fail(self, tasks: list[Any]) -> None:
        for chunk in tasks:
            self.ledger.fail_chunk(chunk, "404")

    def give_up(self, tasks: list[Any]) -> None:
        for chunk in tasks:
            self.ledger.give_up_chunk(chunk, "gone")

    def reopen(self, tasks: list[Any], recovery: str) -> None:
        for chunk in tasks:
            self.ledger.reopen_chunk(chunk, recovery)


SOME = st.sets(st.integers(0, N - 1), min_size=1).map(sorted)
#: How many calls ago the items were read.
AGE = st.integers(0, 3)
CALLS = st.sampled_from(["start", "give_back", "complete", "fail", "give_up", "reopen", "drain", "latch", "end"])


class Machine(RuleBasedStateMachine):
    """One run, from its opening until everything in it has ended."""

    ledger: ClassVar[Ledger]
    table: ClassVar[Table]
    dynamodb: ClassVar[DynamoDBClient]
    calls_of: ClassVar[type[TaskCalls]]
    shard_count: ClassVar[int]
    #: The runs whose counters were compared with their items after a chunk or task had ended.
    compared: ClassVar[set[str]]

    @initialize()
    def open(self) -> None:
        self.run_id = f"shards-{secrets.token_hex(6)}"
        unit: Any = "task" if self.calls_of is TaskCalls else "chunk"
        fixed: Any = {"survey": "s", "job_id": "j", "workload": "w", "params": None, "traceparent": None}
        shards = self.shard_count if unit == "task" else 1
        run = self.ledger.open_run(NewRun(run_id=self.run_id, unit=unit, shard_count=shards, **fixed))
        self.calls = self.calls_of(self.ledger, run, self.shard_count)
        self.calls.add()
        #: The items at earlier moments, as the ledger returns them.
        self.reads: list[list[Any]] = []
        self.runs: list[RunItem] = []
        self.closed = self.died = False
        self.before: dict[str, Item] = {}
        self.recorded: dict[int, tuple[int, int]] = {}
        self.ended_at: str | None = None
        self.done()

    # ---- the calls

    def call(self, name: str, some: list[int], age: int, number: int) -> Callable[[], object]:
        """The call `name` for some tasks, with a read that is `age` calls old."""
        read = self.reads[max(0, len(self.reads) - 1 - age)]
        tasks = [read[index] for index in some]
        match name:
            case "start":
                return lambda: self.calls.start(tasks)
            case "give_back":
                begun = [task for task in tasks if task.status == "IN_PROGRESS"]
                return lambda: self.calls.give_back(begun, bool(number % 2))
            case "complete":
                return lambda: self.calls.complete(tasks)
            case "fail":
                return lambda: self.calls.fail([task for task in tasks if task.status not in ENDED])
            case "give_up":
                return lambda: self.calls.give_up([task for task in tasks if task.status not in ENDED])
            case "reopen":
                return lambda: self.calls.reopen(tasks, f"recovery-{number}")
            case "latch":
                return lambda: self.ledger.latch(self.run_id)
            case "end":
                run = self.runs[max(0, len(self.runs) - 1 - age)]
                return lambda: self.ledger.record_end(run, "completed")
        return lambda: self.ledger.drain(self.run_id)

    @rule(name=CALLS, some=SOME, age=AGE, number=st.integers(0, 5))
    def one_call(self, name: str, some: list[int], age: int, number: int) -> None:
        self.call(name, some, age, number)()
        self.done()

    @rule(name=CALLS, some=SOME, age=AGE, number=st.integers(0, 5), at=st.integers(0, 6))
    def a_call_dies(self, name: str, some: list[int], age: int, number: int, at: int) -> None:
        def die() -> None:
            raise DiedError

        with suppress(DiedError), before_request(self.dynamodb, at, die, or_after=True):
            self.call(name, some, age, number)()
        self.done(died=True)

    @rule(name=CALLS, some=SOME, age=AGE, number=st.integers(0, 5), at=st.integers(0, 6), other=CALLS, others=SOME)
    def two_calls_meet(
        self, name: str, some: list[int], age: int, number: int, at: int, other: str, others: list[int]
    ) -> None:
        with before_request(self.dynamodb, at, self.call(other, others, age, number), or_after=True):
            self.call(name, some, 0, number)()
        self.done()

    @rule()
    def the_splitter_comes_again(self) -> None:
        self.calls.add()
        self.done()

    @precondition(lambda self: not self.closed)
    @rule()
    def the_total_is_set(self) -> None:
        self.calls.close()
        self.closed = True
        self.done()

    @precondition(lambda self: self.closed)
    @rule(latched_first=st.booleans())
    def everything_ends(self, latched_first: bool) -> None:
        """Two workers end all tasks or chunks, the second between two requests of the first."""
        if latched_first:
            self.ledger.latch(self.run_id)
        tasks = self.reads[-1]
        with before_request(self.dynamodb, 2, lambda: self.calls.complete(tasks[: N // 2]), or_after=True):
            self.calls.complete(tasks[N // 2 :])
        self.done()

    def done(self, *, died: bool = False) -> None:
        self.died = died
        self.seen = self.look()
        run, tasks, _ = self.seen
        self.reads.append([self.calls.model.model_validate(task) for task in tasks])
        self.runs.append(RunItem.model_validate(run))

    # ---- the invariants

    def look(self) -> tuple[Item, list[Item], dict[int, Item]]:
        """The run, its tasks or chunks, and the counters of its shards, as they are in the table."""
        items = list(self.table.query(Key("PK").eq(self.run_id)))
        for shard in range(self.shard_count if self.shard_count > 1 else 0):
            items += self.table.query(Key("PK").eq(f"{self.run_id}#{shard}"))
        run = next(item for item in items if item["SK"] == "RUN")
        shards = {int(item["PK"].partition("#")[2]): item for item in items if item["SK"] == "SHARD"}
        tasks = [item for item in items if item["SK"].startswith(("TASK#", "CHUNK#"))]
        return run, sorted(tasks, key=lambda task: task.get("index", task["SK"])), shards

    @invariant()
    def everything_holds(self) -> None:
        run, tasks, shards = self.seen
        self.the_counters_equal_the_items(run, tasks, shards)
        self.the_run_drains_once_when_all_have_ended(run, tasks)
        self.no_end_is_taken_back(tasks)
        if any(task["status"] in ENDED for task in tasks):
            self.compared.add(self.run_id)

    def the_counters_equal_the_items(self, run: Item, tasks: list[Item], shards: dict[int, Item]) -> None:
        states = Counter(task["status"] for task in tasks)
        assert len(tasks) == N
        assert run.get("n_timed_out", 0) == sum(task.get("n_timed_out", 0) for task in tasks)
        if self.shard_count > 1:
            where = lambda task: int(task["PK"].partition("#")[2] or -1) if "index" in task else task["shard"]  # noqa: E731
            counted = Counter((where(task), task["status"]) for task in tasks)
            for shard in range(self.shard_count):
                item = shards.get(shard, {})
                assert item.get("completed", 0) == counted[shard, "COMPLETED"]
                assert item.get("failed", 0) == counted[shard, "FAILED"]
                if self.closed:
                    assert item["total"] == sum(counted[shard, status] for status in TaskStatus)
        if self.shard_count == 1 or run.get("drained_at"):
            assert (run["jobs_completed"], run["jobs_failed"]) == (states["COMPLETED"], states["FAILED"])
        counts = self.ledger.counts(RunItem.model_validate(run))
        assert (counts.completed, counts.failed) == (states["COMPLETED"], states["FAILED"])
        assert (counts.costs.attempts if counts.costs else 0) == sum(task.get("charged_attempts", 0) for task in tasks)

    def the_run_drains_once_when_all_have_ended(self, run: Item, tasks: list[Item]) -> None:
        all_ended = all(task["status"] in ENDED for task in tasks)
        if run.get("drained_at"):
            assert run.get("latched_at")
            assert all_ended
        elif run.get("latched_at") and run.get("jobs_total") is not None and all_ended:
            assert self.died, "the call that ended the last one has drained the run"
            assert self.ledger.drain(self.run_id).drained_at, "a sweep drains it"
        if run.get("ended_at"):
            assert run.get("drained_at")
            # The recorded end belongs to the current counts.
            counts = self.recorded.setdefault(run["drains"], (run["jobs_completed"], run["jobs_failed"]))
            if counts != (run["jobs_completed"], run["jobs_failed"]):
                assert run["ended_at"] != self.ended_at, "an end of other counts is not the recorded one"
                self.recorded[run["drains"]] = (run["jobs_completed"], run["jobs_failed"])
            self.ended_at = run["ended_at"]
        else:
            assert run.get("GSI2_PK") == "OPEN", "the sweeper looks at it until its end is recorded"

    def no_end_is_taken_back(self, tasks: list[Item]) -> None:
        for task in tasks:
            was = self.before.get(task["SK"], task)
            assert was["status"] != "COMPLETED" or task == was
            assert (task["status"] == "FAILED") == bool(task.get("error"))
            assert task.get("attempts", 0) >= max(was.get("attempts", 0), task.get("interruptions", 0))
            assert was["status"] != "FAILED" or task["status"] in ENDED or task.get("recovery")
        self.before = {task["SK"]: task for task in tasks}

    def teardown(self) -> None:
        if not hasattr(self, "run_id"):
            return
        self.calls.close()
        self.ledger.latch(self.run_id)
        self.calls.complete(self.calls.read())
        run = self.ledger.drain(self.run_id)
        assert run.drained_at
        assert (run.chunks_total, run.chunks_completed, run.chunks_failed) == (N, N, 0)


@pytest.mark.parametrize(("calls", "shard_count"), [(TaskCalls, 1), (TaskCalls, 3), (ChunkCalls, 3)])
def test_the_counters_of_all_shards_equal_the_items(
    calls: type[TaskCalls], shard_count: int, ledger: Ledger, table: Table, dynamodb: DynamoDBClient
) -> None:
    machine = type(
        "Machine",
        (Machine,),
        {
            "ledger": ledger,
            "table": table,
            "dynamodb": dynamodb,
            "calls_of": calls,
            "shard_count": shard_count,
            "compared": set(),
        },
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert machine.compared, "no run had an ending to compare"
