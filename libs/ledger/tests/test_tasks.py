"""Tasks of runs with one shard and with several: what the table holds after each call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from scenes import DiedError, before_request, dying

from prismline_contracts.base import timestamp
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, TaskResult, TaskStatus, partition, result_key, shard_of, task_id
from prismline_ledger import Costs, Counts, GivenBackTask, Ledger, NewRun, TaskEnding
from prismline_runtime import Change, PermanentError, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.emulator

SHARDS = pytest.mark.parametrize("shard_count", [1, 4])
N = 60


def sources(n: int = N) -> list[str]:
    return [f"https://example.org/{number}" for number in range(n)]


def result_of(task: TaskItem) -> TaskResult:
    return TaskResult(
        key=result_key(task.run_id, task.task_id),
        http_status=200,
        content_type="text/html",
        length=5,
        sha256="0" * 64,
        final_url=task.source,
        headers={"etag": "a"},
    )


class Tasks:
    """A run of tasks in the ledger."""

    def __init__(self, ledger: Ledger, run_id: str, shard_count: int) -> None:
        fixed: Any = {"survey": "s", "job_id": "j", "workload": "urls", "params": None, "traceparent": None}
        self.ledger = ledger
        self.opened = ledger.open_run(NewRun(run_id=run_id, unit="task", shard_count=shard_count, **fixed))

    @property
    def run(self) -> RunItem:
        return self.ledger.run(self.opened.run_id)

    def split(self, n: int = N) -> list[TaskItem]:
        by_shard = self.ledger.add_tasks(self.opened, 0, sources(n)).ids
        totals = [len(by_shard.get(shard, [])) for shard in range(self.opened.shard_count)]
        self.ledger.set_task_total(self.opened.run_id, totals)
        self.ledger.latch(self.opened.run_id)
        return self.all()

    def all(self) -> list[TaskItem]:
        return sorted(self.ledger.tasks(self.opened), key=lambda task: task.index)

    def complete(self, tasks: list[TaskItem]) -> Any:
        return self.ledger.end_tasks(self.opened, [TaskEnding(task, result=result_of(task)) for task in tasks])

    def fail(self, tasks: list[TaskItem], error: str = "404 Not Found", **how: Any) -> Any:
        return self.ledger.end_tasks(self.opened, [TaskEnding(task, error=error, **how) for task in tasks])


@pytest.fixture
def new(ledger: Ledger, new_run_id: Callable[[], str]) -> Callable[[int], Tasks]:
    return lambda shard_count: Tasks(ledger, f"tasks-{new_run_id()}", shard_count)


@SHARDS
def test_tasks_are_in_the_partitions_that_follow_from_their_ids(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    run_id = tasks.opened.run_id
    by_shard = tasks.ledger.add_tasks(tasks.opened, 100, sources()).ids
    assert [
        name for names in by_shard.values() for name in names if by_shard[shard_of(name, shard_count)] is not names
    ] == []
    found = tasks.all()
    assert [(task.index, task.source) for task in found] == list(enumerate(sources(), 100))
    assert [task.task_id for task in found] == [task_id(run_id, index) for index in range(100, 100 + N)]
    assert {task.PK for task in found} == {partition(run_id, shard, shard_count) for shard in range(shard_count)}
    assert tasks.ledger.task(tasks.opened, found[3].task_id) == found[3]
    some = {task.task_id: task for task in found[::7]}
    assert tasks.ledger.read_tasks(tasks.opened, [*some, "0" * 64]) == some


@SHARDS
def test_tasks_that_are_added_again_stay_as_they_are(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    first = tasks.split()
    tasks.complete(first[:30])
    (begun,) = tasks.ledger.start_tasks(tasks.opened, [first[30]])
    before = tasks.all()
    again = tasks.ledger.add_tasks(tasks.opened, 0, ["https://example.com/other"] * N)
    assert sum(map(len, again.ids.values())) == N
    assert tasks.all() == before
    left = {task.task_id for task in first[30:]} - {begun.task_id}
    assert {name for names in again.to_send.values() for name in names} == left


@SHARDS
@pytest.mark.parametrize("there", [slice(0, 5), slice(5, 9)])
def test_the_missing_tasks_of_a_block_are_added(new: Callable[[int], Tasks], shard_count: int, there: slice) -> None:
    tasks = new(shard_count)
    tasks.ledger.add_tasks(tasks.opened, there.start, sources()[there])
    tasks.ledger.start_tasks(tasks.opened, tasks.all())
    added = tasks.ledger.add_tasks(tasks.opened, 0, sources())
    assert [task.source for task in tasks.all()] == sources()
    assert sum(map(len, added.ids.values())) == N
    assert sum(map(len, added.to_send.values())) == N - (there.stop - there.start)


def test_the_total_of_a_shard_is_set_once(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    added = tasks.ledger.add_tasks(tasks.opened, 0, sources())
    totals = [len(added.ids[shard]) for shard in range(4)]
    tasks.ledger.set_task_total(tasks.opened.run_id, totals)
    tasks.ledger.set_task_total(tasks.opened.run_id, totals)
    moved = [totals[0] + 1, totals[1] - 1, *totals[2:]]
    with pytest.raises(PermanentError, match="has a total other than"):
        tasks.ledger.set_task_total(tasks.opened.run_id, moved)
    assert [shard.total for shard in tasks.ledger.shards(tasks.opened)] == totals


def test_a_drain_that_read_the_shards_before_a_reopening_is_refused(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    items = tasks.split()
    tasks.fail(items)
    before = tasks.run
    tasks.ledger.reopen_tasks(before, tasks.all()[:3], "recovery")
    assert tasks.run.drained_at is None
    assert tasks.run.moves > before.moves, "a drain has the value that it read in its condition"


def test_a_late_success_that_read_the_run_before_its_drain_changes_the_sums_of_the_drain(
    new: Callable[[int], Tasks], dynamodb: DynamoDBClient
) -> None:
    tasks = new(4)
    failed, *others = tasks.split()
    tasks.fail([failed])
    (failed,) = (task for task in tasks.all() if task.index == failed.index)
    with before_request(dynamodb, 1, lambda: tasks.complete(others)):  # requests: the read of the run, the end
        tasks.complete([failed])
    run = tasks.run
    assert run.drained_at is not None
    assert (run.chunks_completed, run.chunks_failed) == (N, 0)


@SHARDS
def test_a_task_that_a_recovery_reopens_waits_no_longer_for_its_site(
    new: Callable[[int], Tasks], shard_count: int
) -> None:
    tasks = new(shard_count)
    started = tasks.ledger.start_tasks(tasks.opened, tasks.split())
    given = [GivenBackTask(task, "503", not_before="2999-01-01T00:00:00.000Z") for task in started]
    tasks.fail(tasks.ledger.give_back_tasks(tasks.opened, given))
    tasks.ledger.reopen_tasks(tasks.run, tasks.all(), "recovery")
    assert {(task.status, task.not_before) for task in tasks.all()} == {("PENDING", None)}


def test_a_run_that_has_ended_gets_no_queue(new: Callable[[int], Tasks]) -> None:
    """An ingestion that hangs may come late. Nobody would delete the queue."""
    tasks = new(4)
    tasks.complete(tasks.split())
    assert tasks.ledger.record_end(tasks.run, "completed")
    assert tasks.ledger.note_task_queue(tasks.opened, "queue").task_queue is None
    assert tasks.run.task_queue is None


@SHARDS
def test_every_attempt_at_a_task_is_added_to_the_runs_costs(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    tasks.split()
    first = tasks.ledger.start_tasks(tasks.opened, tasks.all())
    tasks.ledger.give_back_tasks(tasks.opened, [GivenBackTask(task, "503", duration_ms=2) for task in first])
    second = tasks.ledger.start_tasks(tasks.opened, tasks.all())
    tasks.ledger.end_tasks(
        tasks.opened, [TaskEnding(task, result=result_of(task), duration_ms=3) for task in second[1:]]
    )
    tasks.ledger.end_tasks(tasks.opened, [TaskEnding(second[0], error="404", duration_ms=3)])
    length = sum(result_of(task).length for task in second[1:])
    assert tasks.run.drained_at is not None
    assert tasks.ledger.counts(tasks.run).costs == Costs(5 * N, 2 * N, length)
    failed = tasks.ledger.task(tasks.opened, second[0].task_id)
    assert failed is not None
    assert [(each.attempt, each.error, each.duration_ms) for each in failed.errors] == [(1, "503", 2), (2, "404", 3)]
    tasks.ledger.reopen_tasks(tasks.run, [failed], "recovery")
    (third,) = tasks.ledger.start_tasks(tasks.opened, tasks.ledger.read_tasks(tasks.run, [failed.task_id]).values())
    assert tasks.ledger.counts(tasks.run).costs == Costs(5 * N, 2 * N, length), "a recovery subtracts nothing"
    tasks.ledger.end_tasks(tasks.opened, [TaskEnding(third, result=result_of(third), duration_ms=4)])
    assert tasks.ledger.counts(tasks.run).costs == Costs(5 * N + 4, 2 * N + 1, length + result_of(third).length)


@SHARDS
def test_the_last_task_drains_the_run(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    items = tasks.split()
    ended = tasks.complete(items[:-1])
    assert (len(ended.changed), ended.unchanged, ended.drained) == (N - 1, [], False)
    assert tasks.ledger.counts(tasks.run) == Counts(N, N - 1, 0)
    last = tasks.fail(items[-1:])
    assert last.drained
    assert (last.run.chunks_total, last.run.chunks_completed, last.run.chunks_failed) == (N, N - 1, 1)
    assert last.run == tasks.run
    task = tasks.all()[0]
    assert task.result == result_of(task)
    assert tasks.all()[-1].error == "404 Not Found"


def test_a_shard_with_something_left_to_do_costs_one_read(
    new: Callable[[int], Tasks], dynamodb: DynamoDBClient
) -> None:
    tasks = new(4)
    first, *_ = tasks.split()
    requests: list[str] = []
    events = dynamodb.meta.events
    note = lambda model, **_: requests.append(model.name)  # noqa: E731
    events.register("before-call.dynamodb", note)
    ended = tasks.complete([first])
    events.unregister("before-call.dynamodb", note)
    assert requests == ["TransactWriteItems", "GetItem"]
    assert ended.run is None


@SHARDS
def test_a_task_that_had_ended_is_returned_unchanged(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    items = tasks.split()
    tasks.fail(items[:2])
    tasks.complete(items[2:4])
    ended = tasks.fail(items[:6])
    assert {task.index for task in ended.changed} == {4, 5}
    assert {(task.index, task.status) for task in ended.unchanged} == {
        (0, "FAILED"),
        (1, "FAILED"),
        (2, "COMPLETED"),
        (3, "COMPLETED"),
    }
    assert tasks.ledger.counts(tasks.run) == Counts(N, 2, 4)


@SHARDS
def test_a_late_success_counts_as_one_and_removes_the_recorded_end(
    new: Callable[[int], Tasks], shard_count: int
) -> None:
    tasks = new(shard_count)
    items = tasks.split()
    tasks.fail(items)
    assert tasks.ledger.record_end(tasks.run, "failed")
    assert tasks.ledger.close_run(tasks.run)
    late = tasks.complete(items[:20])
    assert len(late.changed) == 20
    assert late.late == late.changed
    assert all(task.error is None for task in tasks.all()[:20])
    run = tasks.run
    assert (run.chunks_completed, run.chunks_failed, run.drains) == (20, N - 20, 1)
    assert (run.ended_at, run.GSI2_PK) == (None, "OPEN")


@pytest.mark.parametrize("request_number", range(4))
def test_a_late_success_while_the_run_drains_is_in_the_sums(
    new: Callable[[int], Tasks], dynamodb: DynamoDBClient, request_number: int
) -> None:
    """The late success takes place before each request of a latch: the latch, the reads of run and shards, the drain.

    Its worker dies right after the transaction, so it does not drain the run itself.
    """

    def succeed_and_die() -> None:
        with suppress(DiedError), before_request(dynamodb, 2, die):
            tasks.complete(failed[:1])

    def die() -> None:
        raise DiedError

    tasks = new(4)
    by_shard = tasks.ledger.add_tasks(tasks.opened, 0, sources()).ids
    tasks.ledger.set_task_total(tasks.opened.run_id, [len(by_shard[shard]) for shard in range(4)])
    items = tasks.all()
    tasks.fail(items)
    failed = tasks.all()
    with before_request(dynamodb, request_number, succeed_and_die):
        tasks.ledger.latch(tasks.opened.run_id)
    run = tasks.run
    assert run.drained_at is not None
    assert (run.chunks_completed, run.chunks_failed, run.drains) == (1, N - 1, 1)


@SHARDS
def test_reopened_tasks_are_tried_again_and_the_run_drains_again(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    tasks.ledger.start_tasks(tasks.opened, tasks.split())
    tasks.complete(tasks.all()[:20])
    tasks.fail(tasks.all()[20:])
    failed = list(tasks.ledger.tasks(tasks.opened, status=TaskStatus.FAILED))
    stale = failed[0].model_copy(update={"attempts": 9})
    reopened = tasks.ledger.reopen_tasks(tasks.opened, [*failed[1:], stale, *tasks.all()[:3]], "recovery-1")
    assert {task.task_id for task in reopened} == {task.task_id for task in failed[1:]}
    assert tasks.ledger.counts(tasks.run) == Counts(N, 20, 1)
    assert tasks.run.drained_at is None
    task = reopened[0]
    assert tasks.ledger.task(tasks.opened, task.task_id) == task
    assert (task.status, task.recovery, task.last_error, task.attempts - task.interruptions) == (
        "PENDING",
        "recovery-1",
        "404 Not Found",
        0,
    )
    assert tasks.fail(failed[1:3]).changed == [], "an error from before the recovery says nothing"
    assert tasks.complete(reopened).run.drains == 2


def test_a_recovery_reopens_a_task_once(new: Callable[[int], Tasks]) -> None:
    """A process of the recovery stood still while another one finished it, and the task has failed again."""
    tasks = new(4)
    tasks.fail(tasks.split())
    tasks.fail(tasks.ledger.reopen_tasks(tasks.opened, tasks.all(), "recovery-1"))
    assert tasks.ledger.reopen_tasks(tasks.opened, tasks.all(), "recovery-1") == []
    assert {task.status for task in tasks.all()} == {"FAILED"}
    assert len(tasks.ledger.reopen_tasks(tasks.opened, tasks.all(), "recovery-2")) == N


def test_an_attempt_is_begun_again_and_given_back_once(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    items = tasks.split()
    first = tasks.ledger.start_tasks(tasks.opened, items)
    assert len(first) == N
    assert sorted(first, key=lambda task: task.index) == tasks.all()
    second = tasks.ledger.start_tasks(tasks.opened, items[:5])  # with a read from before the first attempt
    assert {task.attempts for task in second} == {2}
    assert {task.first_started_at for task in second} == {first[0].first_started_at}
    later = timestamp()
    given = [GivenBackTask(task, "503", interrupted=True, not_before=later) for task in first[:5]]
    assert tasks.ledger.give_back_tasks(tasks.opened, given) == [], "another attempt has begun"
    again = GivenBackTask(second[0], "503", interrupted=True, not_before=later)
    (back,) = tasks.ledger.give_back_tasks(tasks.opened, [again])
    assert (back.status, back.last_error, back.interruptions, back.not_before) == ("PENDING", "503", 1, later)
    assert tasks.ledger.task(tasks.opened, back.task_id) == back


def test_a_task_that_always_collides_with_other_workers_is_left_to_them(
    new: Callable[[int], Tasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = new(1)
    items = tasks.split(2)
    read_tasks, starting = tasks.ledger.read_tasks, 0

    def read_too_early(*arguments: Any) -> Any:
        """Another worker begins an attempt after each read."""
        nonlocal starting
        found = read_tasks(*arguments)
        if found and not starting:
            starting += 1
            assert tasks.ledger.start_tasks(tasks.opened, found.values())
            starting -= 1
        return found

    monkeypatch.setattr(tasks.ledger, "read_tasks", read_too_early)
    tasks.ledger.start_tasks(tasks.opened, items[:1])
    assert [task.index for task in tasks.ledger.start_tasks(tasks.opened, items)] == [1]
    assert tasks.all()[0].attempts > 1


def test_a_task_that_has_ended_is_not_started(new: Callable[[int], Tasks]) -> None:
    tasks = new(1)
    items = tasks.split(3)
    tasks.complete(items[:1])
    tasks.fail(items[1:2])
    assert [task.index for task in tasks.ledger.start_tasks(tasks.opened, items)] == [2]


def test_a_task_is_not_given_up_if_an_attempt_has_begun_since(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    items = tasks.split(2)
    tasks.ledger.start_tasks(tasks.opened, items[:1])
    ended = tasks.fail(items, "Given up.", unless_changed=True)
    assert [task.index for task in ended.changed] == [1]
    assert [task.status for task in ended.unchanged] == ["IN_PROGRESS"]


@SHARDS
def test_pages_hold_every_task_once_in_one_request_each(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    items = tasks.split()
    tasks.fail(items[::5])
    for status, expected in ((None, items), (TaskStatus.FAILED, items[::5])):
        found: list[str] = []
        for shard in range(shard_count):
            after: str | None = None
            while True:
                page = tasks.ledger.page_of_tasks(tasks.opened, shard, after=after, limit=7, status=status)
                assert len(page.tasks) <= 7
                found += [task.task_id for task in page.tasks]
                after = page.after
                if after is None:
                    break
        assert sorted(found) == sorted(task.task_id for task in expected)


def test_only_one_of_two_ingestions_continues(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    mine = tasks.ledger.checkpoint(tasks.opened, '{"index": 100}', n_rejected=2, rejects_key="jobs/j/rejects.jsonl")
    assert mine is not None
    assert (mine.checkpoint, mine.n_rejected, mine.rejects_key) == ('{"index": 100}', 2, "jobs/j/rejects.jsonl")
    assert tasks.ledger.checkpoint(tasks.opened, '{"index": 50}') is None
    assert tasks.ledger.checkpoint(mine, '{"index": 200}') is not None
    tasks.split()
    assert tasks.ledger.checkpoint(tasks.run, '{"index": 300}') is None, "the run is latched"


def test_a_run_has_one_queue_of_its_own(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    assert tasks.ledger.note_task_queue(tasks.opened, "queue-a").task_queue == "queue-a"
    run = tasks.ledger.note_task_queue(tasks.opened, "queue-b")
    assert run.task_queue == "queue-a"
    assert tasks.ledger.forget_task_queue(run)
    assert tasks.run.task_queue is None


def test_a_run_that_continues_meanwhile_keeps_its_queue(new: Callable[[int], Tasks]) -> None:
    tasks = new(4)
    tasks.ledger.note_task_queue(tasks.opened, "queue")
    tasks.fail(tasks.split())
    assert tasks.ledger.record_end(tasks.run, "failed")
    ended = tasks.run
    tasks.ledger.reopen_tasks(ended, tasks.all(), "recovery")
    assert not tasks.ledger.forget_task_queue(ended)
    assert tasks.run.task_queue == "queue"


@SHARDS
def test_a_repeat_of_a_died_call_sets_the_complete_total(
    new: Callable[[int], Tasks], dynamodb: DynamoDBClient, shard_count: int
) -> None:
    tasks = new(shard_count)
    tasks.ledger.add_tasks(tasks.opened, 0, sources(shard_count))
    totals = [2] * shard_count
    for _ in dying(dynamodb, lambda: tasks.ledger.set_task_total(tasks.opened.run_id, totals)):
        assert tasks.run.chunks_total in (None, 2 * shard_count)
    assert tasks.run.chunks_total == 2 * shard_count
    if shard_count > 1:
        assert [shard.total for shard in tasks.ledger.shards(tasks.run)] == totals
    tasks.ledger.latch(tasks.opened.run_id)
    with pytest.raises(PermanentError, match="a total other than"):
        tasks.ledger.set_task_total(tasks.opened.run_id, [3] * shard_count)


@SHARDS
def test_an_empty_list_drains_at_once(new: Callable[[int], Tasks], shard_count: int) -> None:
    tasks = new(shard_count)
    tasks.split(0)
    assert tasks.run.drained_at is not None
    assert tasks.ledger.counts(tasks.run) == Counts(0, 0, 0)


@SHARDS
def test_a_task_with_a_status_of_a_newer_release_stays_as_it_is(
    new: Callable[[int], Tasks], table: Table, shard_count: int
) -> None:
    tasks = new(shard_count)
    first, *others = tasks.split(5)
    table.update({"PK": first.PK, "SK": first.SK}, Change({"status": "ARCHIVED"}))
    newer = tasks.all()[0]
    assert {task.task_id for task in tasks.ledger.start_tasks(tasks.run, [newer, *others])} == {
        task.task_id for task in others
    }
    assert tasks.complete([newer]).changed == []
    assert tasks.fail([newer]).changed == []
    assert tasks.ledger.reopen_tasks(tasks.run, [newer], "op") == []
    assert tasks.all()[0] == newer
    tasks.complete(others)
    assert tasks.ledger.counts(tasks.run) == Counts(5, 4, 0)
    assert tasks.run.drained_at is None
