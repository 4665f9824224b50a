"""Tasks whose messages are dead letters or lost, tasks that failed, runs of tasks that end or pass their deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from dlq_world import DlqConsumerWorld

from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import RUN_QUEUE_TAG, TasksProcess, run_queue_name
from prismline_contracts.deadletters import DeadLetterRecord, DeadlettersRecover, RecoveryOperationItem
from prismline_contracts.envelope import Envelope
from prismline_contracts.finalization import Finalization, due_finalization
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, TaskResult, TaskStatus, shard_of, task_id
from prismline_dlq_consumer import dead_letter_handling
from prismline_dlq_consumer.recovery import failed_tasks
from prismline_dlq_consumer.sweep_decisions import MessageLocation
from prismline_dlq_consumer.sweeper import SweepCounts, SweeperDependencies, sweep
from prismline_ledger import GivenBackTask, NewRun, TaskEnding, Tolerance
from prismline_ledger.testing import ingest_run

pytestmark = pytest.mark.emulator

RESULT = TaskResult(key="k", http_status=200, length=0, sha256="0" * 64, final_url="https://example.org/")


def task_run(
    world: DlqConsumerWorld, n_tasks: int = 4, *, run_id: str = "r", shards: int = 1, **fields: Any
) -> RunItem:
    """A run whose tasks were ingested and whose messages are not in any queue."""
    sources = [f"https://example.org/{n}" for n in range(n_tasks)]
    ingest_run(world.ledger, run_id, sources, shard_count=shards, **{"params": '{"timeout_s": 5}'} | fields)
    return world.ledger.run(run_id)


def tasks(world: DlqConsumerWorld, run: RunItem) -> list[TaskItem]:
    return sorted(world.ledger.tasks(run), key=lambda task: task.index)


def statuses(world: DlqConsumerWorld, run: RunItem) -> list[str]:
    return [task.status for task in tasks(world, run)]


def end(world: DlqConsumerWorld, run: RunItem, *indices: int, error: str | None = None) -> None:
    """Let a worker end these tasks."""
    ending = [task for task in tasks(world, run) if task.index in indices]
    result = None if error else RESULT
    world.ledger.end_tasks(run, [TaskEnding(task, result=result, error=error) for task in ending])


def attempt(world: DlqConsumerWorld, run: RunItem, *indices: int, times: int = 1, ago: float = 0.0, dead: bool) -> None:
    """Let a worker begin attempts at these tasks, `ago` seconds ago. dead: it does not end the last one."""
    ledger = world.ledger_at(now() - timedelta(seconds=ago))
    for n in range(times):
        started = ledger.start_tasks(run, [task for task in tasks(world, run) if task.index in indices])
        if not dead or n < times - 1:
            ledger.give_back_tasks(run, [GivenBackTask(task, "The site said 503.") for task in started])


def message(run: RunItem, items: list[TaskItem], **fields: Any) -> str:
    """A `tasks.process` command as the splitter sends it."""
    names = [task.task_id for task in items]
    command = TasksProcess(
        run_id=run.run_id,
        job_id=run.job_id,
        workload=run.workload,
        survey=run.survey,
        bucket="b",
        shard=shard_of(names[0], run.shard_count),
        shard_count=run.shard_count,
        task_ids=names,
        params=json.loads(run.params or "{}"),
        **fields,
    )
    return Envelope.wrap(command, source="prismline/test", traceparent=None, key=(names[0],)).to_json()


def sent(world: DlqConsumerWorld, queue: str = "tasks") -> list[TasksProcess]:
    """Take the messages of tasks out of a queue."""
    if queue not in world.urls:
        world.urls[queue] = world.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    return [TasksProcess.model_validate(body["data"]) for body in world.taken(queue)]


def dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def archive(world: DlqConsumerWorld, body: str, message_id: str) -> None:
    """Put a record into the archive as the consumer does."""
    record = DeadLetterRecord(
        body=body, messageId=message_id, source_queue="tasks", run_id="r", archived_at="2026-03-01T12:00:00.000Z"
    )
    key = f"dead-letter-archive/sqs/2026-03-01/{message_id}.json"
    world.bucket.write(key, json.dumps(dict(record)).encode())


def ask(world: DlqConsumerWorld, **fields: Any) -> None:
    request = DeadlettersRecover(operation_id="op-1", requested_at=timestamp(), **fields)
    world.send("recoveries", Envelope.wrap(request, source="prismline/test", traceparent=None, key=("op-1",)).to_json())


def recovered(world: DlqConsumerWorld) -> RecoveryOperationItem:
    """Continue the recovery until it is over. Returns its operation."""
    world.drain("recoveries")
    found = world.deps.operations.get("op-1")
    assert found is not None
    assert found.status == "COMPLETED"
    return found


# ---- dead letters


def test_the_tasks_of_a_dead_letter_are_archived_and_sent_one_by_one(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    end(world, run, 1)
    world.send("tasks-dlq", message(run, tasks(world, run), attempt=2, max_concurrency=3))
    assert world.handle("tasks-dlq") == []
    singles = sent(world)
    assert [single.task_ids for single in singles] == [[t.task_id] for t in tasks(world, run) if t.index != 1]
    assert {(single.attempt, single.max_concurrency, single.params["timeout_s"]) for single in singles} == {(3, 3, 5)}
    (record,) = world.records().values()
    assert record["run_id"] == "r"
    assert statuses(world, run) == ["PENDING", "COMPLETED", "PENDING", "PENDING"]
    (event,) = world.events("deadletter.archived")
    assert event["data"]["decision"] == "divide"


def test_the_tasks_of_a_large_run_go_back_to_its_own_queue(world: DlqConsumerWorld) -> None:
    run = with_queue(world, task_run(world))
    world.send("tasks-dlq", message(run, tasks(world, run)))
    assert world.handle("tasks-dlq") == []
    assert len(sent(world, run.task_queue or "")) == 4
    assert sent(world) == []


def test_a_task_that_kills_its_workers_fails_alone(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    attempt(world, run, 2, times=5, ago=86_400.0, dead=True)
    world.send("tasks-dlq", message(run, tasks(world, run)))
    assert world.handle("tasks-dlq") == []
    assert [len(single.task_ids) for single in sent(world)] == [1, 1, 1]
    assert statuses(world, run) == ["PENDING", "PENDING", "FAILED", "PENDING"]
    assert tasks(world, run)[2].error == "The site said 503. Given up after 5 attempts."


@pytest.mark.parametrize("shards", [1, 4])
def test_the_last_tasks_of_a_run_fail_and_its_drain_is_announced(world: DlqConsumerWorld, shards: int) -> None:
    run = task_run(world, shards=shards)
    end(world, run, 0, 1, 2)
    attempt(world, run, 3, times=5, ago=86_400.0, dead=True)
    world.send("tasks-dlq", message(run, tasks(world, run)[3:]))
    assert world.handle("tasks-dlq") == []
    assert statuses(world, run) == ["COMPLETED"] * 3 + ["FAILED"]
    (event,) = world.events("run.drained")
    assert (event["data"]["jobs_completed"], event["data"]["jobs_failed"]) == (3, 1)
    assert sent(world) == []


def test_a_task_is_not_given_up_while_its_last_attempt_may_be_under_way(world: DlqConsumerWorld) -> None:
    run = task_run(world, 1)
    attempt(world, run, 0, times=4, ago=86_400.0, dead=False)
    attempt(world, run, 0, ago=10.0, dead=True)
    world.send("tasks-dlq", message(run, tasks(world, run)))
    left = world.handle("tasks-dlq")
    assert left is not None
    assert len(left) == 1
    assert statuses(world, run) == ["IN_PROGRESS"]
    assert sent(world) == []


def test_a_message_is_judged_again_if_a_worker_begins_one_of_its_tasks_while_they_are_given_up(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, give_up = task_run(world, 2), dead_letter_handling.give_up_tasks
    attempt(world, run, 0, 1, times=5, ago=86_400.0, dead=False)

    def begin_first(*arguments: Any) -> None:
        attempt(world, run, 0, dead=True)
        give_up(*arguments)

    monkeypatch.setattr(dead_letter_handling, "give_up_tasks", begin_first)
    world.send("tasks-dlq", message(run, tasks(world, run)))
    assert len(world.handle("tasks-dlq") or ()) == 1, "the message is left"
    assert statuses(world, run) == ["IN_PROGRESS", "FAILED"]


def test_a_message_that_can_never_work_fails_all_its_tasks_that_have_not_ended(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    end(world, run, 1)
    world.send("tasks-dlq", message(run, tasks(world, run)), error="There is no such parameter.", source_queue="tasks")
    assert world.handle("tasks-dlq") == []
    assert statuses(world, run) == ["FAILED", "COMPLETED", "FAILED", "FAILED"]
    assert {task.error for task in tasks(world, run) if task.error} == {"There is no such parameter."}


def test_an_error_from_before_a_recovery_does_not_fail_its_tasks(world: DlqConsumerWorld) -> None:
    run = task_run(world, 1)
    old = message(run, tasks(world, run))
    end(world, run, 0, error="no")
    world.ledger.reopen_tasks(run, tasks(world, run), "op-1")
    world.send("tasks-dlq", old, error="no", source_queue="tasks")
    assert world.handle("tasks-dlq") == []
    assert statuses(world, run) == ["PENDING"]


def test_a_message_whose_tasks_have_ended_is_deleted_and_the_drain_is_announced_again(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    end(world, run, 0, 1, 2, 3)
    for _ in range(2):
        world.send("tasks-dlq", message(run, tasks(world, run)))
        assert world.handle("tasks-dlq") == []
        assert len(world.events("run.drained")) == 1
    assert sent(world) == []


def test_nothing_is_sent_for_a_run_that_was_stopped_or_does_not_exist(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    body = message(run, tasks(world, run))
    world.ledger.stop_run("r", "cancelled")
    world.send("tasks-dlq", body)
    world.send("tasks-dlq", body.replace('"r"', '"other"'))
    assert world.handle("tasks-dlq") == []
    assert sent(world) == []
    assert len(world.records()) == 2


# ---- recoveries


@pytest.mark.parametrize("shards", [1, 4])
def test_a_retry_of_a_run_sends_its_failed_tasks_and_no_others(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    monkeypatch.setattr(failed_tasks, "RETRY_TASKS", 3)
    run = task_run(world, 20, shards=shards)
    end(world, run, *range(0, 20, 2))
    end(world, run, *range(1, 20, 2), error="no")
    assert world.item("r").drained_at is not None
    ask(world, only_run="r", retry=True)
    operation = recovered(world)
    assert (operation.n_records, operation.n_sent) == (10, 10)
    again = sent(world)
    assert sorted(name for each in again for name in each.task_ids) == sorted(
        task.task_id for task in tasks(world, run) if task.index % 2
    )
    assert {each.recovery for each in again} == {"op-1"}
    assert {shard_of(name, shards) == each.shard for each in again for name in each.task_ids} == {True}
    assert statuses(world, run) == ["COMPLETED", "PENDING"] * 10
    assert world.item("r").drained_at is None


def test_a_retry_that_dies_after_it_reopened_tasks_sends_them_in_the_end(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = task_run(world, 6)
    end(world, run, *range(6), error="no")
    ask(world, only_run="r", retry=True)
    world.set(recovery_lease_seconds=0)
    with monkeypatch.context() as patch:
        patch.setattr(failed_tasks, "fault_point", dies)
        with pytest.raises(KeyboardInterrupt):
            world.handle("recoveries", visibility=0)
    assert statuses(world, run) == ["PENDING"] * 6
    assert sent(world) == []
    operation = recovered(world)
    assert operation.n_sent == 6
    assert {name for each in sent(world) for name in each.task_ids} == {task.task_id for task in tasks(world, run)}


def test_a_rehearsed_retry_counts_and_changes_nothing(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    end(world, run, 0, 1, 2, 3, error="no")
    ask(world, only_run="r", retry=True, dry_run=True)
    assert recovered(world).n_sent == 4
    assert statuses(world, run) == ["FAILED"] * 4
    assert sent(world) == []


def test_a_retry_leaves_a_cancelled_run_as_it_is(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    end(world, run, 0, error="no")
    world.ledger.stop_run("r", "cancelled")
    ask(world, only_run="r", retry=True)
    operation = recovered(world)
    assert (operation.n_sent, operation.n_left) == (0, 1)
    assert sent(world) == []


OLD, NEW = "a" * 64, "b" * 64


def test_a_retry_moves_a_run_to_other_code_before_it_sends_anything(world: DlqConsumerWorld) -> None:
    run = task_run(world, workload="measure", code=OLD)
    end(world, run, 0)
    end(world, run, 1, error="no")
    ask(world, only_run="r", retry=True, code=NEW)
    recovered(world)
    assert world.ledger.run("r").code == NEW
    assert statuses(world, run) == ["COMPLETED", "PENDING", "PENDING", "PENDING"]
    assert [each.task_ids for each in sent(world)] == [[tasks(world, run)[1].task_id]]


@pytest.mark.parametrize(("code", "fields"), [(None, {}), (OLD, {"dry_run": True}), (OLD, {"code": None})])
def test_a_run_keeps_its_code_unless_a_retry_moves_it(
    world: DlqConsumerWorld, code: str | None, fields: dict[str, Any]
) -> None:
    run = task_run(world, workload="measure", code=code)
    end(world, run, 0, error="no")
    ask(world, **{"only_run": "r", "retry": True, "code": NEW} | fields)
    recovered(world)
    assert world.ledger.run("r").code == code


def test_a_retry_leaves_the_code_of_a_cancelled_run(world: DlqConsumerWorld) -> None:
    run = task_run(world, workload="measure", code=OLD)
    end(world, run, 0, error="no")
    world.ledger.stop_run("r", "cancelled")
    ask(world, only_run="r", retry=True, code=NEW)
    recovered(world)
    assert world.ledger.run("r").code == OLD


def test_a_message_of_tasks_with_several_records_is_sent_once(world: DlqConsumerWorld) -> None:
    """Each of its dispatches during an outage has left one."""
    run = task_run(world)
    first, *others = tasks(world, run)
    for dispatch in (1, 2, 3):
        archive(world, message(run, [first], attempt=dispatch, deferrals=dispatch), f"first-{dispatch}")
        archive(world, message(run, others, attempt=dispatch, deferrals=dispatch), f"others-{dispatch}")
    ask(world)
    operation = recovered(world)
    assert (operation.n_records, operation.n_sent, operation.n_settled) == (6, 2, 4)
    assert sorted(len(each.task_ids) for each in sent(world)) == [1, 3]
    assert world.records("dead-letter-archive/") == {}


def test_an_archived_message_is_sent_again_after_its_failed_tasks_are_reopened(world: DlqConsumerWorld) -> None:
    run = task_run(world)
    archive(world, message(run, tasks(world, run)), "m-1")
    end(world, run, 0)
    end(world, run, 1, error="no")
    ask(world)
    assert recovered(world).n_sent == 1
    assert statuses(world, run) == ["COMPLETED", "PENDING", "PENDING", "PENDING"]
    (again,) = sent(world)
    assert (again.attempt, again.recovery) == (1, "op-1")
    assert world.records("dead-letter-archive/") == {}


# ---- sweeps


def with_queue(world: DlqConsumerWorld, run: RunItem) -> RunItem:
    """The run with a queue of its own."""
    name = run_queue_name(world.environment, run.run_id)
    world.sqs.create_queue(QueueName=name, tags={RUN_QUEUE_TAG: run.run_id})
    return world.ledger.note_task_queue(run, name)


def swept(world: DlqConsumerWorld, *, minutes: float = 0.0) -> SweepCounts:
    return sweep(world.deps.sweeper, now=now() + timedelta(minutes=minutes))


def queues(world: DlqConsumerWorld) -> Iterator[str]:
    for url in world.sqs.list_queues(QueueNamePrefix=f"prismline-{world.environment}-tasks-").get("QueueUrls", []):
        yield url.rpartition("/")[2]


@pytest.mark.parametrize("shards", [1, 4])
def test_tasks_whose_messages_are_lost_are_sent_again(world: DlqConsumerWorld, shards: int) -> None:
    run = task_run(world, 120, shards=shards)
    end(world, run, *range(10))
    assert swept(world).tasks_resent == 0, "the first sweep only looks"
    assert swept(world, minutes=4).tasks_resent == 0
    assert swept(world, minutes=6).tasks_resent == 110
    found = sent(world)
    assert sorted(name for each in found for name in each.task_ids) == sorted(
        task.task_id for task in tasks(world, run) if task.index >= 10
    )
    for each in found:
        assert {shard_of(name, shards) for name in each.task_ids} == {each.shard}
    assert max(len(each.task_ids) for each in found) <= 100


def test_tasks_are_not_sent_again_while_the_run_makes_progress_or_its_queue_has_messages(
    world: DlqConsumerWorld,
) -> None:
    run = task_run(world)
    swept(world)
    end(world, run, 0)
    assert swept(world, minutes=6).tasks_resent == 0, "it made progress"
    world.send("tasks", message(run, tasks(world, run)))
    assert swept(world, minutes=60).tasks_resent == 0, "its message may be in the queue"
    sent(world)
    world.send("tasks-dlq", message(run, tasks(world, run)))
    assert swept(world, minutes=50).tasks_resent == 0, "its message may be a dead letter"
    assert swept(world, minutes=62).tasks_resent == 3


def test_resends_without_progress_become_rarer(world: DlqConsumerWorld) -> None:
    task_run(world)
    swept(world)
    assert swept(world, minutes=6).tasks_resent == 4
    sent(world)
    assert swept(world, minutes=6).tasks_resent == 0
    assert swept(world, minutes=11).tasks_resent == 4


def test_tasks_are_not_sent_again_if_the_run_made_progress_while_the_sweep_looked_at_its_queue(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = task_run(world)
    swept(world)
    locate = SweeperDependencies.locate

    def slow(deps: SweeperDependencies, queue: str) -> MessageLocation:
        end(world, run, 0, 1)
        world.ledger.record_progress(world.item("r"), 2, resent=False)
        return locate(deps, queue)

    monkeypatch.setattr(SweeperDependencies, "locate", slow)
    assert swept(world, minutes=6).tasks_resent == 0
    assert world.item("r").progress_ended == 2, "the later observation stays"


def test_a_run_that_is_deleted_while_the_sweep_looks_at_its_queue_is_no_error(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = task_run(world)
    swept(world)
    locate = SweeperDependencies.locate

    def slow(deps: SweeperDependencies, queue: str) -> MessageLocation:
        for _ in world.ledger.delete_run(run):
            pass
        return locate(deps, queue)

    monkeypatch.setattr(SweeperDependencies, "locate", slow)
    counts = swept(world, minutes=6)
    assert (counts.runs_swept, counts.runs_not_swept, counts.tasks_resent) == (1, 0, 0)


def test_the_queue_of_a_run_is_deleted_when_its_end_is_recorded(world: DlqConsumerWorld) -> None:
    run = with_queue(world, task_run(world))
    end(world, run, 0, 1, 2, 3)
    assert swept(world).drains_announced == 1
    assert run.task_queue in queues(world), "its end is not recorded"
    assert world.ledger.record_end(world.item("r"), "completed")
    assert swept(world).queues_deleted == 1
    assert run.task_queue not in queues(world)
    assert world.item("r").task_queue is None
    assert list(world.ledger.open_runs()) == []


def test_the_queue_of_a_run_that_is_retried_during_the_sweep_is_kept(
    world: DlqConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_queue(world, task_run(world))
    end(world, run, 0, 1, 2)
    end(world, run, 3, error="no")
    assert world.ledger.record_end(world.item("r"), "failed")
    ended = world.ledger.drain("r")
    world.ledger.reopen_tasks(ended, tasks(world, run)[3:], "op-1")
    monkeypatch.setattr(world.deps.sweeper.ledger, "drain", lambda run_id: ended)
    assert swept(world).queues_deleted == 0
    assert run.task_queue in queues(world)
    assert world.item("r").task_queue == run.task_queue


def test_leftover_queues_are_deleted_and_queues_in_use_are_not(world: DlqConsumerWorld) -> None:
    names = {}
    for run_id in ("gone", "ended", "new", "going"):
        names[run_id] = run_queue_name(world.environment, run_id)
        world.sqs.create_queue(QueueName=names[run_id], tags={RUN_QUEUE_TAG: run_id})
    ended = task_run(world, run_id="ended")
    end(world, ended, 0, 1, 2, 3)
    assert world.ledger.record_end(world.item("ended"), "completed")
    task_run(world, run_id="new")
    world.ledger.note_task_queue(task_run(world, run_id="going"), names["going"])
    swept(world)
    assert {*queues(world)} - {f"prismline-{world.environment}-tasks-dlq"} == {names["new"], names["going"]}


def test_a_run_whose_own_queue_is_gone_gets_it_back_with_its_tasks(world: DlqConsumerWorld) -> None:
    """An emulator is killed right after the queue was recorded, or somebody deletes the queue."""
    run = world.ledger.note_task_queue(task_run(world), run_queue_name(world.environment, "r"))
    swept(world)
    assert swept(world, minutes=6).tasks_resent == 4
    ((name, run_id),) = world.deps.sweeper.run_queues.list()
    assert (name, run_id) == (run.task_queue, "r")
    (command,) = sent(world, name)
    assert len(command.task_ids) == 4
    url = world.sqs.get_queue_url(QueueName=name)["QueueUrl"]
    attributes = world.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"] == world.arn("tasks-dlq")


@pytest.mark.parametrize("error", ["AccessDenied", "ServiceUnavailable"])
def test_an_error_at_one_queue_ends_no_sweep(world: DlqConsumerWorld, error: str) -> None:
    """The sweep of "other" comes after that of "broken", which counts the messages of a queue that does not answer."""
    broken, other = with_queue(world, task_run(world, run_id="broken")), task_run(world, run_id="other")
    swept(world)
    count = world.sqs.get_queue_attributes

    def fails(QueueUrl: str, **rest: Any) -> Any:  # noqa: N803
        if QueueUrl.endswith(broken.task_queue or ""):
            raise ClientError({"Error": {"Code": error, "Message": "no"}}, "GetQueueAttributes")
        return count(QueueUrl=QueueUrl, **rest)

    world.clients["sqs"].answer("get_queue_attributes", fails)
    counts = swept(world, minutes=6)
    assert (counts.runs_swept, counts.runs_not_swept, counts.tasks_resent) == (2, 1, 4)
    assert {command.run_id for command in sent(world)} == {other.run_id}


def test_a_queue_that_cannot_be_deleted_ends_no_sweep(world: DlqConsumerWorld) -> None:
    world.sqs.create_queue(QueueName=run_queue_name(world.environment, "gone"), tags={RUN_QUEUE_TAG: "gone"})
    world.clients["sqs"].fail("delete_queue")
    assert swept(world).queues_deleted == 0
    world.clients["sqs"].mend()
    assert swept(world).queues_deleted == 1


def test_a_run_is_failed_at_its_deadline_with_the_reason(world: DlqConsumerWorld) -> None:
    deadline = timestamp(now() + timedelta(minutes=5))
    task_run(world, deadline_at=deadline)
    world.run("without", 1)
    assert swept(world).deadlines_passed == 0
    assert swept(world, minutes=6).deadlines_passed == 1
    (update,) = world.taken("status")
    assert (update["data"]["job_id"], update["data"]["status"]) == ("r", "FAILED")
    assert update["data"]["error"]["Error"] == "DeadlineExceeded"
    assert deadline in update["data"]["error"]["Cause"]


@pytest.mark.parametrize(("tolerance", "stops"), [(Tolerance(failures=1), 2), (Tolerance(percent=50), 3)])
def test_a_run_is_failed_while_it_goes_on_as_soon_as_too_many_tasks_have_failed(
    world: DlqConsumerWorld, tolerance: Tolerance, stops: int
) -> None:
    run = task_run(world, tolerance=tolerance)
    for failed in range(1, stops):
        end(world, run, failed - 1, error="spoiled")
        assert swept(world).stopped_early == 0
    end(world, run, stops - 1, error="spoiled")
    assert swept(world).stopped_early == 1
    (update,) = world.taken("status")
    assert (update["data"]["job_id"], update["data"]["status"]) == ("r", "FAILED")
    assert update["data"]["error"] == {
        "Error": "TooManyFailures",
        "Cause": f"{stops} of 4 tasks failed ({25 * stops} %), {tolerance.text} "
        f"{'is' if tolerance.failures else 'are'} tolerated. The remaining tasks are skipped.",
    }


def test_a_run_that_was_stopped_early_goes_on_to_its_end_after_a_recovery(world: DlqConsumerWorld) -> None:
    run = task_run(world, tolerance=Tolerance(failures=0))
    end(world, run, 0, error="spoiled")
    assert swept(world).stopped_early == 1
    world.ledger.stop_run("r", "failed")
    (failed,) = world.ledger.tasks(run, status=TaskStatus.FAILED)
    world.ledger.reopen_tasks(run, [failed], "again")
    assert world.ledger.resume_run(world.ledger.run("r"))
    end(world, run, 0, 1, error="spoiled")
    assert swept(world).stopped_early == 0
    end(world, run, 2, 3)
    assert world.ledger.run("r").drained_at is not None


def test_a_run_that_has_drained_has_kept_its_deadline(world: DlqConsumerWorld) -> None:
    run = task_run(world, deadline_at=timestamp(now() + timedelta(minutes=5)))
    end(world, run, 0, 1, 2, 3)
    assert swept(world, minutes=6).deadlines_passed == 0


@pytest.mark.parametrize("latched", [False, True])
def test_a_run_whose_submission_died_is_announced_until_its_end_is_recorded(
    world: DlqConsumerWorld, latched: bool
) -> None:
    """The api opens the runs of small jobs. It may die before it announces them."""
    opened = {"survey": "pages", "job_id": "j", "workload": "urls", "params": None, "traceparent": None}
    if latched:
        task_run(world, manifest_key="jobs/j/m.json")
    else:
        world.ledger.open_run(NewRun(run_id="r", **opened, unit="task", manifest_key="jobs/j/m.json"))
    assert swept(world, minutes=4).splits_resent == 0
    assert swept(world, minutes=6).splits_resent == 1
    (command,) = world.taken("split")
    assert command["type"] == "prismline.job.ingest.v1"
    assert command["data"] == {
        "run_id": "r",
        "job_id": "j",
        "bucket": world.bucket.name,
        "manifest_key": "jobs/j/m.json",
        "in_advance": False,
    }
    assert swept(world, minutes=10).splits_resent == 0
    assert swept(world, minutes=22).splits_resent == 1


def opened(world: DlqConsumerWorld, manifest_key: str | None) -> RunItem:
    """A run of tasks that is neither latched nor has a total."""
    return world.ledger.open_run(
        NewRun(run_id="r", survey="pages", job_id="j", workload="urls", unit="task", manifest_key=manifest_key)
    )


def commands(world: DlqConsumerWorld) -> list[str]:
    """The types of the messages to the splitter, in order."""
    return [body["type"].removeprefix("prismline.").removesuffix(".v1") for body in world.taken("split")]


@pytest.mark.parametrize("was_open", [False, True])
def test_a_cancelled_run_that_continues_before_it_was_latched_is_split(world: DlqConsumerWorld, was_open: bool) -> None:
    """The run of a short list whose request died, or of an open job: the splitter tells the ledger its manifest."""
    run = opened(world, manifest_key=None if was_open else "jobs/j/m.json")
    world.ledger.stop_run("r", "cancelled")
    assert world.ledger.record_end(world.item("r"), "cancelled")
    stopped = world.item("r")
    assert world.ledger.resume_run(stopped, cancelled_at=stopped.cancelled_at)
    if was_open:
        world.ledger.note_manifest("r", "jobs/j/m.json")
        world.ledger.note_manifest("r", "jobs/j/other.json")
        assert world.item("r").manifest_key == "jobs/j/m.json"
    for minutes in range(0, 60, 6):
        swept(world, minutes=minutes)
    assert set(commands(world)) == {"run.split"}, "its status exists already, so nothing else would split it"
    assert run.split_token is None


def test_a_run_whose_announcements_split_nothing_is_split_all_the_same(world: DlqConsumerWorld) -> None:
    """The api opened the run and died. The execution that `job.ingest` started is gone."""
    opened(world, manifest_key="jobs/j/m.json")
    for minutes in range(0, 42, 6):
        swept(world, minutes=minutes)
    assert set(commands(world)) == {"job.ingest"}
    swept(world, minutes=58)
    assert commands(world) == ["job.ingest", "run.split"]


def test_a_run_that_its_state_machine_had_split_is_not_announced_again(world: DlqConsumerWorld) -> None:
    task_run(world, manifest_key="jobs/j/m.json", split_token="t")
    assert swept(world, minutes=600).splits_resent == 0


def finalized(world: DlqConsumerWorld, **fields: Any) -> RunItem:
    """A run of a function whose items have ended, and how far its finalization has come."""
    run = task_run(world, 2, workload="measure", code=OLD, finalization=Finalization().as_json())
    end(world, run, 0, 1)
    run = world.ledger.run("r")
    if fields:
        found = world.ledger.set_finalization(run, Finalization(drains=1, at=timestamp(now()), **fields))
        assert found is not None
        run = found
    assert world.ledger.record_end(run, "completed")
    return run


@pytest.mark.parametrize("fields", [{}, {"status": "IN_PROGRESS", "attempts": 1}, {"status": "PENDING", "attempts": 1}])
def test_a_run_whose_finalization_is_lost_is_finalized_before_it_is_closed(
    world: DlqConsumerWorld, fields: dict[str, Any]
) -> None:
    finalized(world, **fields)
    swept(world, minutes=4)
    assert sent(world) == [], "a worker may be about to do it"
    swept(world, minutes=6)
    assert [each.task_ids for each in sent(world)] == [[task_id("r", 0)]]
    assert world.ledger.run("r").GSI2_PK == "OPEN"
    done = Finalization(status="COMPLETED", drains=1, attempts=1)
    assert world.ledger.set_finalization(world.ledger.run("r"), done) is not None
    swept(world, minutes=12)
    assert sent(world) == []
    assert world.ledger.run("r").GSI2_PK is None


def test_a_retry_has_a_failed_finalization_tried_again(world: DlqConsumerWorld) -> None:
    finalized(world, status="FAILED", attempts=3, error="a bug")
    ask(world, only_run="r", retry=True, code=NEW)
    operation = recovered(world)
    assert (operation.n_records, operation.n_sent) == (1, 1)
    run = world.ledger.run("r")
    due = due_finalization(run)
    assert due is not None
    assert (due.status, due.attempts, run.code, run.GSI2_PK) == ("PENDING", 0, NEW, "OPEN")
    assert [each.task_ids for each in sent(world)] == [[task_id("r", 0)]]


def test_a_retry_of_failed_items_leaves_the_finalization_to_the_next_end(world: DlqConsumerWorld) -> None:
    run = task_run(world, 2, workload="measure", code=OLD, finalization=Finalization().as_json())
    end(world, run, 0)
    end(world, run, 1, error="no")
    failed = Finalization(status="FAILED", drains=1, failed=1, attempts=3)
    assert world.ledger.set_finalization(world.ledger.run("r"), failed) is not None
    ask(world, only_run="r", retry=True)
    assert recovered(world).n_sent == 1
    assert [each.task_ids for each in sent(world)] == [[task_id("r", 1)]]
    assert due_finalization(world.ledger.run("r")) is None
    end(world, run, 1)
    due = due_finalization(world.ledger.run("r"))
    assert due is not None
    assert (due.status, due.drains, due.failed, due.attempts) == ("PENDING", 2, 0, 0)
