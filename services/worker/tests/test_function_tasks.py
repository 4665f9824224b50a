"""Items of functions from their message to their end, with real runner processes."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from tasks_world import RUN_ID, TasksWorld, tasks_world

from prismline.supervisor import Supervisor
from prismline_contracts.base import now, timestamp
from prismline_contracts.commands import FunctionTasksProcess, TasksProcess
from prismline_contracts.envelope import Envelope
from prismline_contracts.finalization import Finalization, finalization_of
from prismline_contracts.tasks import TaskItem, TaskValue, task_id
from prismline_contracts.workloads import LocalEnvironment, RegisteredWorkload, workload_key
from prismline_ledger import TaskEnding, waiting_for
from prismline_ledger.testing import Context, ingest_run, lambda_event_of
from prismline_localstack.standins.site import Site
from prismline_localstack.testing import ValkeyServer
from prismline_localstack.waiting import wait_until
from prismline_runtime import Bucket
from prismline_worker import finalizing, run_state_cache

pytestmark = pytest.mark.emulator

AUTHOR = """
import os
import time

from prismline import Context, Permanent, Retry, workload


@workload(timeout=5, attempts=2, retry={ConnectionError: Retry(attempts=3, delay=7)})
def work(item, context: Context, *, factor: int = 2):
    match item:
        case {"exit": code}:
            os._exit(code)
        case {"hang": True}:
            time.sleep(60)
        case {"sleep": seconds}:
            time.sleep(seconds)
        case {"refuse": why}:
            raise Permanent(why)
        case {"raise": why}:
            raise ValueError(why)
        case {"reset": True}:
            raise ConnectionError("reset")
        case {"long": length}:
            return "x" * length
        case {"who": True}:
            return [context.item_id, context.attempt]
    return item * factor if isinstance(item, int) else None
"""


@dataclass
class FunctionsWorld:
    """A run of the function `author:work`, and one worker."""

    tasks: TasksWorld
    folder: Path
    code: str

    def open_run(self, items: Sequence[object], *, code: str | None = None, **fields: Any) -> list[str]:
        """Open a run over the items. Return the ids of its tasks."""
        sources = [json.dumps(item) for item in items]
        opened = {"workload": "author:work", "code": code or self.code, "survey": "list"} | fields
        ingest_run(self.tasks.ledger, RUN_ID, sources, **opened)
        return [task_id(RUN_ID, index) for index in range(len(items))]

    def process(
        self,
        ids: Sequence[str],
        *,
        model: type[TasksProcess] = FunctionTasksProcess,
        seconds: float = 900.0,
        **changes: Any,
    ) -> bool:
        """Deliver a message to an invocation with so many seconds. Return whether it was acknowledged."""
        given = {"workload": "author:work", "params": {}} | changes
        command = model(**{**dict(self.tasks.command(ids)), **given})
        body = Envelope.wrap(command, source="test", traceparent=None).to_json()
        answer = self.tasks.handler(lambda_event_of(body, self.tasks.environment, "tasks"), Context(seconds))
        return not answer["batchItemFailures"]

    def register(self) -> str:
        """Register the function as it is now. Return the digest of its code."""
        with Supervisor("author:work", paths=[str(self.folder)]) as supervisor:
            described = json.loads(supervisor.description.model_dump_json())
        described["limits"]["timeout"] = float(described["limits"]["timeout"])
        local = LocalEnvironment(python=sys.executable, paths=[str(self.folder)])
        registered = RegisteredWorkload.model_validate({**described, "registered_at": timestamp(), "local": local})
        key = workload_key(registered.name, registered.code)
        Bucket(boto3.client("s3"), self.tasks.bucket).write(key, registered.model_dump_json().encode())
        return registered.code


@pytest.fixture
def world(
    aws_env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    site: tuple[str, Site],
    valkey_server: ValkeyServer,
    tmp_path: Path,
) -> FunctionsWorld:
    (tmp_path / "author.py").write_text(AUTHOR)
    monkeypatch.setenv("FUNCTIONS_LOCAL", "true")
    monkeypatch.setenv("FUNCTIONS_RUNNERS", "2")
    made = FunctionsWorld(tasks_world(aws_env["ENVIRONMENT"], monkeypatch, site, valkey_server), tmp_path, "")
    made.code = made.register()
    return made


def ended(world: FunctionsWorld, ids: Sequence[str]) -> list[TaskItem]:
    return world.tasks.tasks(ids)


def test_the_values_of_all_items_are_in_the_ledger_and_the_run_drains(world: FunctionsWorld) -> None:
    ids = world.open_run([1, 2, 3, 4, 5], params_given='{"factor": 10}')
    assert world.process(ids)
    assert [task.value.text for task in ended(world, ids) if task.value] == ["10", "20", "30", "40", "50"]
    assert {task.code for task in ended(world, ids)} == {world.code}
    assert world.tasks.run.drained_at is not None
    assert [kind for kind, _ in world.tasks.announced()] == ["run.drained"]


def test_an_item_that_spoils_its_process_fails_alone(world: FunctionsWorld) -> None:
    ids = world.open_run([1, {"exit": 3}, 2, {"refuse": "This is no picture."}, 3])
    assert world.process(ids)
    found = ended(world, ids)
    assert [task.status for task in found] == ["COMPLETED", "PENDING", "COMPLETED", "FAILED", "COMPLETED"]
    assert found[1].last_error == "The item ended its process with exit code 3."
    assert (found[3].error, found[3].error_type) == ("This is no picture.", "prismline.Permanent")
    (again,) = world.tasks.take(wait=4)
    assert again.task_ids == [ids[1]]


def test_a_class_of_errors_has_its_own_attempts_and_delay(world: FunctionsWorld) -> None:
    ids = world.open_run([{"raise": "why"}, {"reset": True}])
    assert world.process(ids)
    value, reset = ended(world, ids)
    waits = [task.not_before for task in (value, reset)]
    assert all(wait is not None for wait in waits)
    assert world.tasks.ledger.run(RUN_ID).drained_at is None
    for task in (value, reset):
        table = boto3.resource("dynamodb").Table(world.tasks.deps.settings.runs_table)
        table.update_item(Key={"PK": task.PK, "SK": task.SK}, UpdateExpression="REMOVE not_before")
    assert world.process(ids)
    value, reset = ended(world, ids)
    assert (value.status, value.error, value.error_type, value.attempts) == ("FAILED", "why", "ValueError", 2)
    assert (reset.status, reset.attempts) == ("PENDING", 2)
    assert reset.not_before is not None
    assert timestamp(now()) < reset.not_before, "it waits for 14 seconds before the third attempt"


def test_a_long_value_has_an_object_of_its_own(world: FunctionsWorld) -> None:
    (name,) = world.open_run([{"long": 5000}])
    assert world.process([name])
    (task,) = ended(world, [name])
    assert task.value is not None
    assert task.value.text is None
    body = boto3.client("s3").get_object(Bucket=world.tasks.bucket, Key=task.value.key)["Body"].read()
    assert json.loads(body) == "x" * 5000
    assert task.value.length == len(body) == 5002


def test_the_id_of_an_item_is_the_same_in_each_attempt(world: FunctionsWorld) -> None:
    (name,) = world.open_run([{"who": True}])
    assert world.process([name])
    (task,) = ended(world, [name])
    assert task.value is not None
    assert json.loads(task.value.text or "") == [f"{RUN_ID}.{name}", 1]


@pytest.mark.parametrize("broken", ["raise RuntimeError('no licence')", "def work(item:", ""])
def test_items_wait_while_the_function_cannot_be_loaded(world: FunctionsWorld, broken: str) -> None:
    """They use up no attempt, and the run says what they wait for. When it can be loaded again, they go on."""
    ids = world.open_run([1, 2])
    (world.folder / "author.py").write_text(broken)
    assert world.process(ids)
    assert [task.attempts for task in ended(world, ids)] == [0, 0]
    waits = waiting_for(world.tasks.run, now())
    assert waits is not None
    assert "author:work" in waits
    (again,) = world.tasks.take(wait=4)
    assert sorted(again.task_ids) == sorted(ids)
    (world.folder / "author.py").write_text(AUTHOR)
    fresh = FunctionsWorld(world.tasks.worker(), world.folder, world.code)
    assert fresh.process(again.task_ids, deferrals=again.deferrals)
    assert [task.status for task in ended(world, ids)] == ["COMPLETED", "COMPLETED"]


def test_a_run_keeps_the_code_that_it_began_with(world: FunctionsWorld) -> None:
    ids = world.open_run([1])
    (world.folder / "author.py").write_text(AUTHOR.replace("item * factor", "item * factor + 1"))
    assert world.process(ids)
    assert [task.attempts for task in ended(world, ids)] == [0]
    waits = waiting_for(world.tasks.run, now()) or ""
    assert f"is not {world.code[:12]}" in waits
    assert "`prismline retry RUN --code latest`" in waits


def test_a_run_that_waits_is_logged_once_a_minute_however_many_messages_it_has(
    world: FunctionsWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = world.open_run([1, 2, 3])
    (world.folder / "author.py").write_text(AUTHOR.replace("item * factor", "item * factor + 1"))

    def logged() -> list[str]:
        return [record.__dict__["reason"] for record in caplog.records if record.message == "run_waits"]

    for name in ids:
        assert world.process([name])
    assert len(logged()) == 1
    assert f"is not {world.code[:12]}" in logged()[0]
    monkeypatch.setattr(run_state_cache, "LOGGED_SECONDS", 0.0)
    assert world.process(ids)
    assert len(logged()) == 2


def test_a_message_of_a_recovery_is_processed_with_the_code_that_the_run_was_moved_to(world: FunctionsWorld) -> None:
    """The worker has read the run a moment before."""
    ids = world.open_run([1, 2])
    assert world.process(ids[:1])
    (world.folder / "author.py").write_text(AUTHOR.replace("item * factor", "-item"))
    newer = world.register()
    assert world.tasks.ledger.move_to_code(world.tasks.run, newer) is not None
    assert world.process(ids[1:], recovery="op-1")
    found = ended(world, ids)
    assert [(task.code, task.value.text) for task in found if task.value] == [(world.code, "2"), (newer, "-2")]


def test_a_function_that_nobody_registered_waits(world: FunctionsWorld) -> None:
    ids = world.open_run([1], code="0" * 64)
    assert world.process(ids)
    assert [task.attempts for task in ended(world, ids)] == [0]
    assert waiting_for(world.tasks.run, now()) == "author:work is not registered with the code 000000000000."


def test_a_redelivery_of_ended_items_ends_although_the_function_is_missing_by_then(world: FunctionsWorld) -> None:
    ids = world.open_run([1])
    assert world.process(ids)
    assert [task.status for task in ended(world, ids)] == ["COMPLETED"]
    boto3.client("s3").delete_object(Bucket=world.tasks.bucket, Key=workload_key("author:work", world.code))
    other = FunctionsWorld(world.tasks.worker(functions_local=True), world.folder, world.code)
    assert other.process(ids)
    assert world.tasks.depth() == 0, "a new message would circulate for as long as the function is missing"


def test_a_worker_of_others_does_not_run_programs_that_a_registration_names(world: FunctionsWorld) -> None:
    ids = world.open_run([1])
    other = FunctionsWorld(world.tasks.worker(functions_local=False), world.folder, world.code)
    assert other.process(ids)
    assert [task.attempts for task in ended(world, ids)] == [0]
    assert "registered on another machine" in (waiting_for(world.tasks.run, now()) or "")


def test_a_message_of_an_older_dead_letter_consumer_is_understood(world: FunctionsWorld) -> None:
    """It sends the tasks of every run as the first version of the message."""
    ids = world.open_run([1])
    assert world.process(ids, model=TasksProcess)
    assert [task.status for task in ended(world, ids)] == ["COMPLETED"]


def test_a_run_with_a_limit_has_no_more_items_under_way(world: FunctionsWorld) -> None:
    ids = world.open_run([1, 2])
    taken = world.tasks.leases.take(f"run:{RUN_ID}", 1, 1)
    assert world.process(ids, max_concurrency=1)
    assert [task.attempts for task in ended(world, ids)] == [0, 0]
    world.tasks.leases.release(taken)
    assert world.process(ids, max_concurrency=1)
    assert [task.status for task in ended(world, ids)] == ["COMPLETED", "COMPLETED"]


def test_a_stop_during_the_work_leaves_the_other_items(world: FunctionsWorld) -> None:
    ids = world.open_run([{"sleep": 0.5}] * 60)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(world.process, ids)
        assert wait_until(lambda: any(task.attempts for task in ended(world, ids)), 30.0)
        world.tasks.ledger.stop_run(RUN_ID, "cancelled")
        assert done.result()
    attempts = [task.attempts for task in ended(world, ids)]
    assert 0 < sum(attempts) < 50
    assert all(task.state.terminal or not task.attempts for task in ended(world, ids))


def test_items_that_an_invocation_has_no_time_for_are_sent_again(world: FunctionsWorld) -> None:
    ids = world.open_run([1, 2])
    assert world.process(ids, seconds=30.0)
    assert [task.attempts for task in ended(world, ids)] == [0, 0]
    (again,) = world.tasks.take(wait=4)
    assert sorted(again.task_ids) == sorted(ids)


VECTORIZED = """
import os

from prismline import workload


@workload(vectorized=True, timeout=5, attempts=2)
def work(items, *, factor: int = 2):
    with open(__file__ + ".calls", "a") as calls:
        calls.write(f"{len(items)}" + chr(10))
    if "exit" in items:
        os._exit(3)
    return [item * factor for item in items]
"""


@pytest.fixture
def vectorized(world: FunctionsWorld) -> FunctionsWorld:
    (world.folder / "author.py").write_text(VECTORIZED)
    world.code = world.register()
    return world


def calls(world: FunctionsWorld) -> list[int]:
    """How many items each call of the function had."""
    return [int(line) for line in (world.folder / "author.py.calls").read_text().splitlines()]


def test_the_items_of_a_message_go_to_a_vectorized_function_in_one_call(vectorized: FunctionsWorld) -> None:
    ids = vectorized.open_run([1, 2, 3, 4, 5], params_given='{"factor": 10}')
    assert vectorized.process(ids)
    assert [task.value.text for task in ended(vectorized, ids) if task.value] == ["10", "20", "30", "40", "50"]
    assert calls(vectorized) == [5]
    assert vectorized.tasks.run.drained_at is not None


def test_an_item_that_breaks_the_call_fails_alone_and_is_tried_again_alone(vectorized: FunctionsWorld) -> None:
    ids = vectorized.open_run([1, "exit", 3])
    assert vectorized.process(ids)
    found = ended(vectorized, ids)
    assert [task.status for task in found] == ["COMPLETED", "PENDING", "COMPLETED"]
    assert [task.attempts for task in found] == [1, 1, 1]
    first, *alone = calls(vectorized)
    assert (first, set(alone)) == (3, {1})
    (again,) = vectorized.tasks.take(wait=4)
    assert vectorized.process(again.task_ids)
    assert [task.status for task in ended(vectorized, again.task_ids)] == ["FAILED"]


def test_the_limit_of_a_run_is_that_of_a_call_of_a_vectorized_function(vectorized: FunctionsWorld) -> None:
    ids = vectorized.open_run([1, 2, 3, 4, 5])
    assert vectorized.process(ids, max_concurrency=2)
    assert [task.status for task in ended(vectorized, ids)] == ["COMPLETED"] * 5
    assert calls(vectorized) == [2, 2, 1]


# ---- finalize

FINAL = """

@work.finalize
def total(results, context: Context, *, factor: int):
    values = [each.value for each in results if each.status == "completed"]
    if "long" in str(values[:1]):
        return "x" * 5000
    if 13 in values and context.attempt == 1:
        raise ConnectionError("not yet")
    if 12 in values:
        raise Permanent("There are too many.")
    failed = [[each.index, each.item, each.error] for each in results if each.status == "failed"]
    return [sum(each for each in values if isinstance(each, int)), factor, failed, context.item_id, context.attempt]
"""


def final_world(world: FunctionsWorld, items: Sequence[object], **fields: Any) -> list[str]:
    """A run of a function with a `finalize`. Returns the ids of its tasks."""
    (world.folder / "author.py").write_text(AUTHOR + FINAL)
    world.code = world.register()
    return world.open_run(items, finalization=Finalization().as_json(), params_given='{"factor": 1}', **fields)


def final(world: FunctionsWorld) -> Finalization:
    found = finalization_of(world.tasks.run)
    assert found is not None
    return found


@pytest.mark.parametrize("shards", [1, 4])
def test_a_run_is_finalized_with_all_results_once_its_items_have_ended(world: FunctionsWorld, shards: int) -> None:
    ids = final_world(world, [1, {"refuse": "no"}, 3], shard_count=shards)
    assert world.process(ids[:1])
    assert (final(world).status, final(world).attempts) == ("PENDING", 0)
    for name in ids[1:]:
        assert world.process([name])
    found = final(world)
    assert (found.status, found.drains, found.failed, found.error) == ("COMPLETED", 1, 1, None)
    assert found.value is not None
    item_id = f"{RUN_ID}.final.1.1"
    assert json.loads(found.value.text or "") == [4, 1, [[1, {"refuse": "no"}, "no"]], item_id, 1]
    assert world.process(ids), "a redelivery"
    assert final(world) == found
    assert world.tasks.depth() == 0
    assert [kind for kind, _ in world.tasks.announced()].count("run.drained") >= 1


def test_a_finalization_that_fails_is_tried_again_and_then_has_failed(world: FunctionsWorld) -> None:
    ids = final_world(world, [13])
    assert world.process(ids)
    found = final(world)
    assert (found.status, found.attempts, found.error, found.error_type) == ("PENDING", 1, "not yet", "ConnectionError")
    (again,) = world.tasks.take(wait=20)
    assert again.task_ids == ids
    assert world.process(ids)
    assert (final(world).status, final(world).attempts, final(world).error) == ("COMPLETED", 2, None)


def test_a_finalization_that_can_never_succeed_has_failed_at_once(world: FunctionsWorld) -> None:
    assert world.process(final_world(world, [12]))
    found = final(world)
    assert (found.status, found.attempts, found.error) == ("FAILED", 1, "There are too many.")
    assert world.tasks.depth() == 0


def test_a_long_value_of_a_finalization_has_an_object_of_its_own(world: FunctionsWorld) -> None:
    ids = final_world(world, [{"long": 3000}])
    (world.folder / "author.py").write_text(
        AUTHOR + FINAL.replace('"long" in str(values[:1])', "len(values[0]) == 3000")
    )
    world.code = world.register()
    assert world.tasks.ledger.move_to_code(world.tasks.run, world.code) is not None
    assert world.process(ids)
    value = final(world).value
    assert value is not None
    body = boto3.client("s3").get_object(Bucket=world.tasks.bucket, Key=value.key)["Body"].read()
    assert json.loads(body) == "x" * 5000


@pytest.mark.parametrize("point", ["finalize.begun", "finalize.called", "finalize.recorded"])
def test_a_finalization_goes_on_after_its_worker_has_died(
    world: FunctionsWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ids = final_world(world, [1, 2])

    def dies(name: str, **_: Any) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finalizing, "fault_point", dies)
        with pytest.raises(KeyboardInterrupt):
            world.process(ids)
    if point != "finalize.recorded":
        assert final(world).status == "IN_PROGRESS"
        assert world.process(ids), "its worker may still be alive"
        (later,) = world.tasks.take(wait=0) or [None]
        assert later is None, "the message waits until that attempt counts as dead"
        assert world.tasks.depth() == 1
        monkeypatch.setattr(finalizing, "GRACE_SECONDS", -5.0)
        assert world.process(ids)
    assert final(world).status == "COMPLETED"
    assert final(world).attempts == (1 if point == "finalize.recorded" else 2)


def test_a_finalization_whose_workers_die_each_time_has_failed(world: FunctionsWorld) -> None:
    ids = final_world(world, [1])
    assert world.process(ids)
    died = final(world).model_copy(update={"status": "IN_PROGRESS", "attempts": 2, "at": "2026-01-01T00:00:00.000Z"})
    assert world.tasks.ledger.set_finalization(world.tasks.run, died) is not None
    assert world.process(ids)
    assert final(world).status == "FAILED"
    assert "in the last of 2 attempts" in (final(world).error or "")


def test_results_that_an_invocation_cannot_write_down_fail_the_finalization_and_not_for_ever(
    world: FunctionsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = final_world(world, [1, 2, 3])
    monkeypatch.setattr(finalizing, "BLOCK", 1)
    for status in ("PENDING", "FAILED"):
        with monkeypatch.context() as patch:
            patch.setattr(finalizing, "time", ClockThatJumps(after=3))
            assert world.process(ids)
        found = final(world)
        assert (found.status, found.attempts, found.error_type) == (status, 0, "TooManyResults")
        assert "only 2 of 3 results" in (found.error or "")
        assert world.tasks.depth() == (1 if status == "PENDING" else 0), "a message for another invocation"
        world.tasks.take(wait=2)


def test_results_that_do_not_fit_on_the_disk_fail_the_finalization(
    world: FunctionsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = final_world(world, [1, 2])

    def full(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(finalizing, "result_line", full)
        assert world.process(ids)
        assert final(world).status == "PENDING", "another worker may have a larger disk"
        assert world.process(ids)
    assert final(world).status == "FAILED"
    assert "temporary folder is full" in (final(world).error or "")


class ClockThatJumps:
    """The module `time`, whose clock jumps by an hour after some readings."""

    def __init__(self, after: int) -> None:
        self._left = after

    def monotonic(self) -> float:
        self._left -= 1
        return time.monotonic() + (0 if self._left >= 0 else 3600)


def test_a_finalization_waits_while_the_function_cannot_be_loaded(world: FunctionsWorld) -> None:
    ids = final_world(world, [1])
    assert world.process(ids)
    assert world.tasks.ledger.set_finalization(world.tasks.run, Finalization(drains=1)) is not None
    (world.folder / "author.py").write_text("raise RuntimeError('no licence')")
    other = FunctionsWorld(world.tasks.worker(), world.folder, world.code)
    assert other.process(ids)
    assert (final(world).status, final(world).attempts) == ("PENDING", 0)
    assert "no licence" in (waiting_for(world.tasks.run, now()) or "")
    (again,) = world.tasks.take(wait=4)
    assert (again.task_ids, again.deferrals) == (ids, 1)
    (world.folder / "author.py").write_text(AUTHOR + FINAL)
    third = FunctionsWorld(world.tasks.worker(), world.folder, world.code)
    assert third.process(ids)
    assert final(world).status == "COMPLETED"


def test_the_result_of_an_earlier_end_is_not_that_of_a_later_one(
    world: FunctionsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed item succeeds late, while the function is called with the results of before."""
    ids = final_world(world, [1, {"refuse": "no"}])

    def succeeds(name: str, **_: Any) -> None:
        task = next(each for each in world.tasks.tasks(ids) if each.index == 1)
        if name == "finalize.called" and task.status == "FAILED":
            value = TaskValue(text="7", length=1)
            world.tasks.ledger.end_tasks(world.tasks.run, [TaskEnding(task, result=value)])

    monkeypatch.setattr(finalizing, "fault_point", succeeds)
    assert world.process(ids)
    assert (final(world).status, final(world).failed) == ("PENDING", 0)
    (again,) = world.tasks.take(wait=2)
    assert world.process(again.task_ids)
    found = final(world)
    assert found.value is not None
    assert json.loads(found.value.text or "")[:3] == [8, 1, []]
