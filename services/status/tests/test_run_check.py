"""Every message about a run repeats the announcement of its end, until the end is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from status_scene import Crash, StatusScene, refused

from prismline_contracts.base import timestamp
from prismline_contracts.commands import StatusUpdate
from prismline_contracts.events import (
    RunCancelRequested,
    RunCleanupRequested,
    RunDrained,
    RunRecovered,
    RunTasksRecovered,
)

pytestmark = pytest.mark.emulator

#: Receipts after which SQS moves a message of the service's queues to the dead-letter queue.
RECEIPTS = 5


def drained(scene: StatusScene) -> RunDrained:
    return RunDrained.of(scene.item())


def recovered(scene: StatusScene, chunk_id: str) -> RunRecovered:
    return RunRecovered(chunk_id=chunk_id, **drained(scene).model_dump(exclude={"drained_at", "drains"}))


def cancelling(scene: StatusScene) -> RunCancelRequested:
    return RunCancelRequested(run_id=scene.run_id, requested_at=timestamp())


def completing(scene: StatusScene) -> StatusUpdate:
    return StatusUpdate(job_id=scene.run_id, status="COMPLETED")


def failing(scene: StatusScene, error: str) -> StatusUpdate:
    return StatusUpdate(job_id=scene.run_id, status="FAILED", error=error, completed_at=timestamp())


def outage(code: str = "ThrottlingException") -> Callable[[str], None]:
    """A hook that makes every call fail."""

    def fail(moment: str) -> None:
        if moment == "before":
            raise refused(code)

    return fail


class TestDrained:
    def test_the_task_that_waits_is_answered_with_the_counts(self, scene: StatusScene) -> None:
        chunks = scene.running()
        assert scene.wait("t")
        scene.drain(chunks, failed=1)
        assert scene.deliver(drained(scene))
        answer = scene.stepfunctions.answers["t"]
        assert (answer["jobs_total"], answer["jobs_failed"], answer["failed_percent"]) == (4, 1, 25.0)
        assert scene.run().status == "running", "its execution ends the run"

    @pytest.mark.parametrize(("failures", "answered"), [(0, False), (1, True)])
    def test_the_task_that_waits_fails_if_a_number_of_failures_is_exceeded_that_the_state_machine_does_not_know(
        self, scene: StatusScene, failures: int, answered: bool
    ) -> None:
        chunks = scene.running(failures=failures)
        assert scene.wait("t")
        scene.drain(chunks, failed=1)
        assert scene.deliver(drained(scene))
        told = scene.stepfunctions.answers["t"]
        assert told["jobs_failed"] == 1 if answered else told == "TooManyFailures"

    def test_a_check_of_the_run_finds_a_drain_that_was_never_announced(self, scene: StatusScene) -> None:
        chunks = scene.running()
        assert scene.wait("t")
        scene.drain(chunks)
        assert scene.check()
        assert scene.stepfunctions.answers["t"]["jobs_completed"] == 4

    def test_a_drain_that_was_never_announced_is_announced_before_the_end_is_recorded(self, scene: StatusScene) -> None:
        """The splitter or worker that drained the run died before it announced that. The execution ended the run."""
        scene.drain(scene.running())
        assert scene.wait("t")
        assert scene.deliver(completing(scene))
        assert scene.item().ended_status == "completed"
        assert scene.drains_announced() == [1]

    def test_a_task_that_begins_to_wait_after_the_drain_is_answered(self, scene: StatusScene) -> None:
        scene.drain(scene.running())
        assert scene.wait("t")
        assert scene.stepfunctions.answers["t"]["jobs_completed"] == 4

    def test_every_task_that_waits_is_answered_whichever_came_last(self, scene: StatusScene) -> None:
        """A redelivered older command does not replace the token with which the execution waits now."""
        chunks = scene.running()
        assert scene.wait("of a question that timed out")
        assert scene.wait("the one that waits")
        assert scene.wait("of a question that timed out")
        scene.stepfunctions.waiting = {"the one that waits"}
        scene.drain(chunks)
        assert scene.deliver(drained(scene))
        assert list(scene.stepfunctions.answers) == ["the one that waits"]
        assert scene.run().tokens == [], "no task waits any more"

    def test_a_token_that_version_1_0_stored_is_answered(self, scene: StatusScene) -> None:
        chunks = scene.running()
        scene.clients[0].update_item(
            TableName=f"prismline-{scene.environment}-workflow-state",
            Key={"run_id": {"S": "run"}},
            UpdateExpression="SET waiting_token = :token",
            ExpressionAttributeValues={":token": {"S": "old"}},
        )
        scene.stepfunctions.waiting.add("old")
        scene.drain(chunks)
        assert scene.check()
        assert "old" in scene.stepfunctions.answers
        assert scene.run().tokens == []

    @pytest.mark.parametrize("started", [False, True])
    @pytest.mark.parametrize(("failed", "status"), [(1, "completed"), (2, "failed")])
    def test_a_run_whose_execution_is_gone_is_ended_from_the_ledger(
        self, scene: StatusScene, started: bool, failed: int, status: str
    ) -> None:
        if started:
            chunks = scene.running(tolerated=25.0)
            assert scene.wait("of an execution that is gone")
        else:
            scene.submit(tolerated=25.0)
            chunks = scene.open()
        scene.stepfunctions.waiting.clear()
        scene.stepfunctions.running.clear()
        scene.drain(chunks, failed=failed)
        for _ in range(2):
            assert scene.deliver(drained(scene))
        reason = "TooManyFailures: 2 of 4 chunks failed (50 %), 25 % are tolerated."
        assert (scene.run().status, scene.run().error_message) == (status, reason if failed == 2 else None)
        assert (scene.item().ended_status, scene.announced()[0]) == (status, status)

    def test_a_run_whose_execution_is_running_is_not_ended_from_the_ledger(self, scene: StatusScene) -> None:
        scene.submit()
        scene.drain(scene.open())
        assert scene.check()
        assert scene.run().status == "pending"
        assert scene.item().ended_at is None, "the sweeper keeps requesting checks"

    def test_a_run_that_was_never_submitted_gets_no_status(self, scene: StatusScene) -> None:
        scene.drain(scene.open())
        assert scene.check()
        assert scene.table.get("run") is None


class TestOutages:
    """If a message fails, the next message about the run does its work."""

    def test_step_functions_being_down_for_all_receives_of_a_drain_fails_no_run(self, scene: StatusScene) -> None:
        chunks = scene.running()
        assert scene.wait("t")
        scene.drain(chunks)
        scene.stepfunctions.hook = outage("ServiceUnavailable")
        assert not any(scene.deliver(drained(scene)) for _ in range(RECEIPTS))
        scene.stepfunctions.hook = lambda _: None
        assert scene.check()
        assert scene.stepfunctions.answers["t"]["jobs_completed"] == 4

    @pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
    def test_a_throttled_table_refuses_no_task_and_loses_no_status(self, scene: StatusScene, code: str) -> None:
        scene.running()
        completed, token = completing(scene), "t"
        scene.stepfunctions.waiting.add(token)
        scene.on_calls(outage(code))
        assert not any(scene.deliver(completed, token=token) for _ in range(RECEIPTS))
        scene.on_calls(None)
        assert not scene.stepfunctions.answers, "the state machine waits and repeats its command"
        assert scene.deliver(completed, token=token)
        assert scene.stepfunctions.answers[token]["data"]["updated"]
        assert scene.announced() == ["completed", "started"]

    def test_an_announcement_that_the_bus_refuses_is_repeated(self, scene: StatusScene) -> None:
        scene.drain(scene.running())
        scene.clients[1].meta.events.register("before-call", _refuse, unique_id="bus")
        assert not scene.deliver(completing(scene))
        scene.clients[1].meta.events.unregister("before-call", unique_id="bus")
        assert scene.item().ended_at is None, "the sweeper keeps requesting checks"
        assert scene.check()
        assert scene.announced() == ["completed", "started"]
        assert scene.item().ended_status == "completed"


def _refuse(**_: Any) -> None:
    raise ClientError({"Error": {"Code": "InternalFailure", "Message": "no"}}, "PutEvents")


class TestFailedThenRecovered:
    def test_a_recovery_that_is_announced_before_the_failure_is_written_completes_the_run(
        self, scene: StatusScene
    ) -> None:
        chunks = scene.running()
        scene.drain(chunks, failed=1)
        scene.end_chunk(chunks[-1])
        assert scene.deliver(recovered(scene, chunks[-1]))
        assert scene.deliver(failing(scene, "TooManyFailures: 1 of 4 chunks failed."))
        assert (scene.run().status, scene.run().error_message) == ("completed", None)
        assert scene.announced() == ["completed", "started"], "the failure is never announced"

    def test_a_late_success_of_a_task_after_the_failure_completes_the_run(self, scene: StatusScene) -> None:
        units = scene.running()
        scene.drain(units, failed=1)
        assert scene.deliver(failing(scene, "TooManyFailures: 1 of 4 tasks failed."))
        assert scene.run().status == "failed"
        scene.end_chunk(units[-1])
        assert scene.deliver(RunTasksRecovered.of(scene.item(), ["0" * 64]))
        assert (scene.run().status, scene.run().error_message) == ("completed", None)

    def test_a_late_success_after_the_failure_completes_the_run(self, scene: StatusScene) -> None:
        chunks = scene.running()
        scene.drain(chunks, failed=1)
        assert scene.deliver(failing(scene, "TooManyFailures: 1 of 4 chunks failed."))
        assert scene.item().ended_status == "failed"
        scene.end_chunk(chunks[-1])
        assert scene.check()
        assert scene.run().status == "completed"
        assert scene.announced() == ["completed", "failed", "started"]
        assert scene.item().ended_status == "completed"

    def test_a_late_success_while_the_failure_is_announced_is_seen(self, scene: StatusScene) -> None:
        """It comes after the ledger was read. The end is not recorded, because the run has changed since then."""
        chunks = scene.running()
        scene.drain(chunks, failed=1)
        late = iter([True])

        def end_late(_moment: str) -> None:
            if scene.run().announced == "failed" and next(late, False):
                scene.end_chunk(chunks[-1])

        scene.on_calls(end_late)
        assert not scene.deliver(failing(scene, "TooManyFailures: 1 of 4 chunks failed."))
        scene.on_calls(None)
        assert scene.check()
        assert (scene.run().status, scene.item().ended_status) == ("completed", "completed")

    @pytest.mark.parametrize("gone", [False, True])
    @pytest.mark.parametrize("announced", [False, True])
    def test_of_a_late_success_and_a_failure_at_once_one_sees_the_other(
        self, scene: StatusScene, gone: bool, announced: bool
    ) -> None:
        """The late success comes before each of the calls in turn. Its message is delivered at once or late. The
        failure comes from the execution or, if that is gone, from the ledger.
        """
        for number in range(100):
            scene.run_id, calls = f"run-{number}", itertools.count()
            chunks = scene.running()
            scene.drain(chunks, failed=1)
            if gone:
                scene.stepfunctions.running.clear()
            message = drained(scene) if gone else failing(scene, "TooManyFailures")
            seen: list[str] = []

            def succeed(moment: str, at: int = number, seen: list[str] = seen, calls: Iterator[int] = calls) -> None:
                if moment == "before" and next(calls) == at:
                    seen.append(scene.run().status)
                    scene.on_calls(None)
                    scene.end_chunk(chunks[-1])  # noqa: B023  called in this round only
                    assert not announced or scene.deliver(recovered(scene, chunks[-1]))  # noqa: B023

            scene.on_calls(succeed)
            assert any(scene.deliver(message) for _ in range(3))
            scene.on_calls(None)
            if not seen:
                break
            assert announced or scene.deliver(recovered(scene, chunks[-1]))
            assert (scene.run().status, scene.item().ended_status) == ("completed", "completed"), number
            if seen == ["running"]:
                assert "failed" not in scene.announced(), "the run never failed"
        assert number > 4

    def test_an_execution_that_ends_badly_after_a_good_drain_completes_its_run(self, scene: StatusScene) -> None:
        scene.drain(scene.running())
        assert scene.deliver(scene.execution_ended("TIMED_OUT"))
        assert (scene.run().status, scene.announced()) == ("completed", ["completed", "started"])

    def test_an_execution_that_ends_badly_after_a_bad_drain_does_not_hide_the_reason(self, scene: StatusScene) -> None:
        scene.drain(scene.running(), failed=2)
        assert scene.deliver(scene.execution_ended("TIMED_OUT"))
        assert scene.run().error_message == "TooManyFailures: 2 of 4 chunks failed (50 %), 0 % are tolerated."

    def test_an_execution_that_ends_before_the_drain_fails_its_run(self, scene: StatusScene) -> None:
        scene.running()
        assert scene.deliver(scene.execution_ended("ABORTED", cause="maintenance"))
        error = "The state machine execution was stopped before the run had ended: maintenance."
        assert (scene.run().status, scene.run().error_message) == ("failed", error)
        assert (scene.item().stop_reason, scene.item().ended_status) == ("failed", "failed")

    def test_chunks_that_were_in_progress_when_the_run_failed_may_complete_it(self, scene: StatusScene) -> None:
        chunks = scene.running()
        scene.drain(chunks[:-1])
        assert scene.deliver(scene.execution_ended("ABORTED"))
        scene.end_chunk(chunks[-1])
        assert scene.check()
        assert (scene.run().status, scene.item().ended_status) == ("completed", "completed")

    @pytest.mark.parametrize("stopped", [False, True])
    def test_a_recovery_that_is_under_way_is_not_stopped(self, scene: StatusScene, stopped: bool) -> None:
        """A cleanup that is delivered late does not stop it either."""
        chunks = scene.running()
        if stopped:
            scene.drain(chunks[:1], failed=1)
            assert scene.deliver(scene.execution_ended("ABORTED"))
        else:
            scene.drain(chunks, failed=2)
            assert scene.deliver(failing(scene, "TooManyFailures"))
        scene.reopen(chunks[0] if stopped else chunks[-1])
        for message in (scene.check, lambda: scene.deliver(RunCleanupRequested(run_id=scene.run_id))):
            assert message()
            assert scene.item().cancelled_at is None
        assert scene.run().status == "failed", "the status stays until the run has drained again"
        scene.drain(chunks)
        assert scene.check()
        assert (scene.run().status, scene.item().ended_status) == ("completed", "completed")

    def test_a_failure_that_is_written_while_a_recovery_is_under_way_stops_nothing(self, scene: StatusScene) -> None:
        chunks = scene.running()
        scene.drain(chunks, failed=1)
        scene.reopen(chunks[-1])
        assert scene.deliver(RunCleanupRequested(run_id=scene.run_id))
        assert scene.deliver(failing(scene, "TooManyFailures"))
        assert scene.item().cancelled_at is None
        scene.end_chunk(chunks[-1])
        assert scene.check()
        assert scene.run().status == "completed"

    def test_the_first_completion_of_a_recovered_run_sets_its_time(self, scene: StatusScene) -> None:
        scene.running()
        assert scene.deliver(failing(scene, "TooManyFailures"))
        assert scene.table.complete_recovered(scene.run_id) is not None
        first = scene.run()
        assert scene.table.complete_recovered(scene.run_id) is None
        assert scene.run() == first

    def test_a_completed_run_stays_completed_while_its_tolerated_failures_are_recovered(
        self, scene: StatusScene
    ) -> None:
        chunks = scene.running(tolerated=25.0)
        scene.drain(chunks, failed=1)
        assert scene.deliver(completing(scene))
        scene.reopen(chunks[-1])
        assert scene.check()
        assert (scene.run().status, scene.item().cancelled_at) == ("completed", None)
        scene.end_chunk(chunks[-1])
        assert scene.check()
        assert scene.item().ended_status == "completed"
        assert scene.announced() == ["completed", "started"]


class TestStopped:
    def test_a_cancel_before_the_split_stops_the_run_when_it_is_opened(self, scene: StatusScene) -> None:
        scene.submit()
        assert scene.deliver(cancelling(scene))
        scene.open()
        assert scene.item().stop_reason == "cancelled"
        assert scene.check()
        assert scene.item().ended_status == "cancelled"
        assert scene.announced() == ["cancelled"]

    def test_cancelling_a_run_stops_its_chunks_and_its_execution_and_fails_waiting_tasks(
        self, scene: StatusScene
    ) -> None:
        scene.running()
        assert scene.wait("t")
        for _ in range(2):
            assert scene.deliver(cancelling(scene))
        assert (scene.run().status, scene.item().stop_reason) == ("cancelled", "cancelled")
        assert not scene.stepfunctions.running
        assert scene.stepfunctions.answers == {"t": "RunEnded"}
        assert scene.announced() == ["cancelled", "started"]

    def test_a_cancel_is_not_recorded_before_the_execution_is_stopped(self, scene: StatusScene) -> None:
        scene.running()
        scene.stepfunctions.hook = outage("ServiceUnavailable")
        assert not scene.deliver(cancelling(scene))
        assert scene.item().stop_reason == "cancelled", "chunks are skipped at once"
        scene.stepfunctions.hook = lambda _: None
        assert scene.item().ended_at is None
        assert scene.check()
        assert not scene.stepfunctions.running
        assert scene.item().ended_status == "cancelled"

    def test_a_run_that_cannot_be_split_fails_without_an_item_in_the_ledger(self, scene: StatusScene) -> None:
        scene.submit()
        for _ in range(2):
            assert scene.deliver(failing(scene, "ValidationFailed: The cube is empty."), token="t")
        assert scene.run().error_message == "ValidationFailed: The cube is empty."
        assert scene.announced() == ["failed"]
        scene.open()
        assert scene.item().stop_reason == "failed", "a late split does not begin"

    def test_a_run_that_was_stopped_and_never_failed_is_failed(self, scene: StatusScene) -> None:
        scene.running()
        assert scene.deliver(RunCleanupRequested(run_id=scene.run_id))
        assert (scene.item().stop_reason, scene.run().status) == ("failed", "running")
        scene.stepfunctions.running.clear()
        assert scene.check()
        assert "its history says why" in (scene.run().error_message or "")
        assert (scene.item().ended_status, scene.announced()) == ("failed", ["failed", "started"])

    def test_a_task_that_begins_to_wait_while_the_run_is_cancelled_is_failed(self, scene: StatusScene) -> None:
        """The cancel comes before each of the calls in turn."""
        for number in range(100):
            scene.run_id, calls, cancelled = f"run-{number}", itertools.count(), []
            scene.running()

            def cancel(
                moment: str, at: int = number, calls: Iterator[int] = calls, cancelled: list[bool] = cancelled
            ) -> None:
                if moment == "before" and next(calls) == at:
                    scene.on_calls(None)
                    cancelled.append(scene.deliver(cancelling(scene)))

            scene.on_calls(cancel)
            assert scene.wait(scene.run_id)
            scene.on_calls(None)
            if not cancelled:
                break
            assert scene.stepfunctions.answers[scene.run_id] == "RunEnded", number
        assert number > 2

    def test_a_task_that_begins_to_wait_after_the_run_has_ended_is_failed(self, scene: StatusScene) -> None:
        scene.running()
        assert scene.deliver(cancelling(scene))
        assert scene.wait("t")
        assert scene.stepfunctions.answers == {"t": "RunEnded"}


@dataclass(frozen=True)
class End:
    """One way in which a run ends: its state before, the message that arrives, and the status that follows."""

    name: str
    ended_chunks: int
    message: Callable[[StatusScene], Any]
    status: str
    waits: bool = False
    execution_is_gone: bool = False
    failed: int = 0


ENDS = [
    End("completed by its execution", 4, completing, "completed"),
    End("failed by its execution", 1, lambda scene: failing(scene, "SplitTimedOut"), "failed"),
    End("failed for its chunks", 4, lambda scene: failing(scene, "TooManyFailures"), "failed", failed=2),
    End("failed and recovered", 4, lambda scene: failing(scene, "TooManyFailures"), "completed"),
    End("cancelled", 1, cancelling, "cancelled", waits=True),
    End("drained without an execution", 4, drained, "completed", waits=True, execution_is_gone=True),
    End("ended without its execution", 1, StatusScene.execution_ended, "failed", execution_is_gone=True),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name.replace(" ", "-"))
def test_if_the_service_dies_between_any_two_steps_the_next_messages_do_the_rest(scene: StatusScene, end: End) -> None:
    """It dies before and after each of its calls to AWS in turn. Then come the sweeper's check and a redelivery."""
    for number in range(100):
        scene.run_id, calls = f"run-{number}", itertools.count()
        scene.drain(scene.running()[: end.ended_chunks], failed=end.failed)
        if end.waits:
            scene.table.add_waiting(scene.run_id, "token")
        if end.execution_is_gone:
            scene.stepfunctions.running.clear()
        message = end.message(scene)

        def die(_moment: str, at: int = number, calls: Iterator[int] = calls) -> None:
            if next(calls) == at:
                raise Crash

        scene.on_calls(die)
        finished = scene.deliver(message)
        scene.on_calls(None)
        assert scene.check()
        assert scene.deliver(message)
        run, item = scene.run(), scene.item()
        assert (run.status, item.ended_status, run.announced) == (end.status,) * 3, number
        assert run.tokens == [], number
        assert (item.cancelled_at is None) == (item.drained_at is not None), number
        if end.status == "cancelled":
            assert scene.run_id not in scene.stepfunctions.running
        if finished:
            break
    assert number > 8, "a run's end takes several calls"
    for died in range(number):
        scene.run_id = f"run-{died}"
        assert scene.announced() == [end.status, "started"], died
        assert scene.drains_announced() == [1] * scene.item().drains, died


class TestGoesOnAfterCancel:
    @staticmethod
    def _goes_on(scene: StatusScene, *, tolerated: float = 0.0) -> list[str]:
        """Cancel a run, record its end, and continue it. Return the chunks' ids."""
        chunks = scene.running(tolerated=tolerated)
        assert scene.deliver(cancelling(scene))
        assert scene.item().ended_status == "cancelled"
        assert scene.ledger.resume_run(scene.item(), cancelled_at=scene.item().cancelled_at)
        return chunks

    @pytest.mark.parametrize(("failed", "status"), [(0, "completed"), (1, "completed"), (2, "failed")])
    def test_it_ends_by_the_same_rule_as_any_other_and_announces_that_once(
        self, scene: StatusScene, failed: int, status: str
    ) -> None:
        chunks = self._goes_on(scene, tolerated=25.0)
        assert scene.check()
        assert (scene.run().status, scene.item().cancelled_at) == ("cancelled", None), "the run continues"
        scene.drain(chunks, failed=failed)
        for _ in range(2):
            assert scene.deliver(drained(scene))
        assert (scene.run().status, scene.item().ended_status) == (status, status)
        assert (scene.run().error_message is not None) == (status == "failed")
        assert scene.announced() == sorted(["cancelled", "started", status])

    def test_late_messages_from_before_do_not_stop_it(self, scene: StatusScene) -> None:
        request = cancelling(scene)
        chunks = self._goes_on(scene)
        assert scene.deliver(request)
        assert scene.deliver(RunCleanupRequested(run_id=scene.run_id))
        assert scene.deliver(scene.execution_ended("ABORTED"))
        assert scene.deliver(failing(scene, "late"))
        assert scene.item().cancelled_at is None
        scene.drain(chunks)
        assert scene.check()
        assert scene.run().status == "completed"

    def test_a_request_that_saw_it_continued_cancels_it_again(self, scene: StatusScene) -> None:
        chunks = self._goes_on(scene)
        again = cancelling(scene).model_copy(update={"uncancelled_at": scene.item().uncancelled_at})
        assert scene.deliver(again)
        assert (scene.item().stop_reason, scene.item().ended_status) == ("cancelled", "cancelled")
        scene.drain(chunks)
        assert scene.check()
        assert scene.run().status == "cancelled"
        assert scene.announced() == ["cancelled", "started"]

    def test_a_cancellation_that_pauses_anywhere_does_not_stop_a_recovery(self, scene: StatusScene) -> None:
        """While it pauses, the run drains and fails, its end is recorded, and a recovery reopens the chunk."""
        for pauses_at in itertools.count():
            scene.run_id, calls = f"run-{pauses_at}", itertools.count()
            chunks = self._goes_on(scene)
            again = cancelling(scene).model_copy(update={"uncancelled_at": scene.item().uncancelled_at})

            def pause(
                moment: str, at: int = pauses_at, calls: Iterator[int] = calls, chunks: list[str] = chunks
            ) -> None:
                if moment == "before" and next(calls) == at:
                    scene.on_calls(None)
                    if scene.item().cancelled_at is None:
                        scene.drain(chunks, failed=1)
                        assert scene.check()
                        assert scene.item().ended_status == "failed"
                        scene.reopen(chunks[-1])

            scene.on_calls(pause)
            scene.deliver(again)
            scene.on_calls(None)
            assert scene.deliver(again)
            assert (scene.run().status, scene.item().stop_reason) in {("cancelled", "cancelled"), ("failed", None)}
            if next(calls) <= pauses_at:
                break
        assert pauses_at > 4, "a cancellation takes several calls"

    def test_it_fails_if_it_cannot_be_split(self, scene: StatusScene) -> None:
        self._goes_on(scene)
        scene.ledger.stop_run(scene.run_id, "failed", resumed_at=scene.item().resumed_at)
        assert scene.check()
        assert scene.run().status == scene.item().ended_status == "failed"
        assert "could not be split" in (scene.run().error_message or "")

    def test_its_end_is_announced_wherever_the_service_dies(self, scene: StatusScene) -> None:
        """If the service dies before any of its calls, the next message ends the run."""
        chunks = self._goes_on(scene)
        scene.drain(chunks)
        for dies_at in itertools.count(1):
            calls = itertools.count(1)

            def die(moment: str, calls: Iterator[int] = calls, dies_at: int = dies_at) -> None:
                if moment == "before" and next(calls) == dies_at:
                    raise Crash

            scene.on_calls(die)
            done = scene.check()
            scene.on_calls(None)
            if done:
                break
        assert scene.check()
        assert (scene.run().status, scene.item().ended_status) == ("completed", "completed")
        assert scene.announced() == ["cancelled", "completed", "started"]


# ---- updates of newer releases


@pytest.mark.parametrize("newer", [{"status": "PAUSED"}, {"status": "RUNNING", "wait_for": "paused"}])
def test_an_update_that_only_a_newer_release_understands_waits_for_it(
    scene: StatusScene, newer: dict[str, str]
) -> None:
    scene.submit()
    before = scene.run()
    scene.stepfunctions.waiting.add("t")
    assert scene.deliver(StatusUpdate(job_id=scene.run_id, **newer), token="t")
    assert (scene.run(), scene.stepfunctions.answers) == (before, {})
    [reason] = scene.unknown_to_it()
    assert "known here" in reason
