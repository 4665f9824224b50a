"""The state machine: checks of its document, and executions in which the test acts as splitter and worker."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.events import RunCancelRequested, RunDrained

DEFINITION = Path(__file__).parents[1] / "statemachine" / "run.asl.json"
SEND = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
HOUR, DAY, WEEK = 3600, 86_400, 604_800
PUBLISH = "arn:aws:states:::events:putEvents"


def states() -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = json.loads(DEFINITION.read_text())["States"]
    return document


def successors(state: dict[str, Any]) -> set[str]:
    following = {state.get("Next"), state.get("Default")}
    following |= {choice["Next"] for choice in state.get("Choices", [])}
    following |= {catch["Next"] for catch in state.get("Catch", [])}
    return {name for name in following if name}


def test_every_state_is_reached_and_every_path_ends() -> None:
    found, todo = set(), ["Split"]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(successors(states()[name]))
    assert found == set(states())
    for name, state in states().items():
        assert successors(state) or state["Type"] in {"Succeed", "Fail"}, name


def test_it_talks_to_services_only_by_queue_and_bus() -> None:
    tasks = {name: state for name, state in states().items() if state["Type"] == "Task"}
    assert {state["Resource"] for state in tasks.values()} == {SEND, PUBLISH}
    for name, state in tasks.items():
        assert state["Retry"], name
        assert state["Catch"], name
        assert state["TimeoutSeconds"] > 0, name


def retried(state: dict[str, Any], error: str) -> int:
    """For how many seconds the state's task is retried after `error`: the sum of tries and waits."""
    retry = next(retry for retry in state["Retry"] if error in retry["ErrorEquals"])
    rate, longest = retry.get("BackoffRate", 2), retry.get("MaxDelaySeconds", math.inf)
    waits = [min(longest, retry["IntervalSeconds"] * rate**n) for n in range(min(retry["MaxAttempts"], 1000))]
    tries = state["TimeoutSeconds"] * (len(waits) + 1) if error == "States.Timeout" else 0
    return int(sum(waits) + tries)


QUESTIONS = [name for name, state in states().items() if state.get("Resource") == SEND]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_command_that_nobody_answers_is_repeated_for_a_week(name: str) -> None:
    """So an outage of a day, of the service that answers or of its queue, fails no run."""
    state = states()[name]
    assert retried(state, "States.Timeout") >= WEEK
    for error in ("SQS.AmazonSQSException", "SQS.SdkClientException", "SQS.ThrottlingException"):
        assert retried(state, error) >= WEEK
    assert state["TimeoutSeconds"] <= (DAY if name == "AwaitChunks" else HOUR), "a lost command is repeated"


def test_the_chunks_have_fourteen_days() -> None:
    assert 14 * DAY <= retried(states()["AwaitChunks"], "States.Timeout") < 14 * DAY + HOUR


def test_an_execution_that_repeats_its_commands_until_it_gives_up_stays_below_the_event_limit() -> None:
    """Step Functions ends an execution after 25,000 events. A try of a task makes at most five."""
    tries = sum(1 + sum(retry["MaxAttempts"] for retry in states()[name]["Retry"]) for name in QUESTIONS)
    assert 5 * tries < 25_000


def test_a_task_that_fails_because_the_run_has_ended_ends_the_execution_without_an_error() -> None:
    for name in ("Split", "AwaitChunks"):
        caught = next(catch for catch in states()[name]["Catch"] if "RunEnded" in catch["ErrorEquals"])
        assert states()[caught["Next"]]["Type"] == "Succeed"


@pytest.fixture
def definition(stage: Any) -> Iterator[dict[str, Any]]:
    """The definition of the state machine. It is restored after the test."""
    arn = stage.state_machine_arn
    before = stage.stepfunctions.describe_state_machine(stateMachineArn=arn)["definition"]
    yield json.loads(before)
    stage.stepfunctions.update_state_machine(stateMachineArn=arn, definition=before)


@pytest.mark.emulator
class TestDriven:
    def test_a_run_whose_chunks_all_complete_is_completed(self, stage: Any) -> None:
        run_id = stage.submit()
        chunks = stage.split(run_id)
        stage.wait_for_status(run_id, "running")
        finish(stage, run_id, chunks)
        run = stage.wait_for_status(run_id, "completed")
        assert run.execution_arn == stage.deps.executions.arn(run_id)
        assert run.started_at
        assert run.completed_at
        stage.wait_for(lambda: stage.execution_status(run_id) == "SUCCEEDED", "the execution to succeed")
        assert stage.endings(run_id) == ["prismline.run.completed.v1"]

    def test_a_run_that_drains_before_a_task_waits_is_completed(self, stage: Any) -> None:
        run_id = stage.submit()
        envelope = stage.split_command(run_id)
        stage.open(run_id, 0)
        stage.publish(RunDrained.of(stage.ledger.run(run_id)))
        stage.deps.transport.answer(envelope.tasktoken, {"jobs_total": 0})
        assert stage.wait_for_status(run_id, "completed").started_at

    def test_more_failures_than_tolerated_fail_the_run_and_say_how_many(self, stage: Any) -> None:
        run_id = stage.submit(tolerated=20.0)
        finish(stage, run_id, stage.split(run_id), failed=1)
        run = stage.wait_for_status(run_id, "failed")
        assert run.error_message == "TooManyFailures: 1 of 4 chunks failed (25 %), 20 % are tolerated."
        stage.wait_for(lambda: stage.execution_status(run_id) == "FAILED", "the execution to fail")
        assert stage.endings(run_id) == ["prismline.run.failed.v1"]

    def test_tolerated_failures_do_not_fail_the_run(self, stage: Any) -> None:
        run_id = stage.submit(tolerated=25.0)
        finish(stage, run_id, stage.split(run_id), failed=1)
        assert stage.wait_for_status(run_id, "completed").error_message is None

    @pytest.mark.parametrize(
        ("failures", "reason"),
        [(0, "TooManyFailures: 1 of 4 chunks failed (25 %), 0 failures are tolerated."), (1, None)],
    )
    def test_a_number_of_failures_is_tolerated_whatever_the_percentage(
        self, stage: Any, failures: int, reason: str | None
    ) -> None:
        run_id = stage.submit(failures=failures)
        finish(stage, run_id, stage.split(run_id), failed=1)
        assert stage.wait_for_status(run_id, "failed" if reason else "completed").error_message == reason

    def test_an_invalid_submission_fails_with_the_splitters_reason(self, stage: Any) -> None:
        run_id = stage.submit()
        token = stage.split_command(run_id).tasktoken
        stage.deps.transport.refuse(token, "ValidationFailed", "The cube is empty.")
        assert stage.wait_for_status(run_id, "failed").error_message == "ValidationFailed: The cube is empty."

    def test_a_split_command_that_is_never_answered_is_repeated_and_then_fails_the_run(
        self, stage: Any, definition: dict[str, Any]
    ) -> None:
        arn = stage.state_machine_arn
        split = definition["States"]["Split"]
        split["TimeoutSeconds"] = 2
        for retry in split["Retry"]:
            retry["MaxAttempts"] = 1
        stage.stepfunctions.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))
        run_id = stage.submit()
        first, second = stage.split_command(run_id), stage.split_command(run_id)
        assert first.id == second.id, "a repeated command has the same id"
        assert "was not split within seven days" in stage.wait_for_status(run_id, "failed").error_message

    def test_a_cleanup_that_cannot_be_published_does_not_hide_the_reason(
        self, stage: Any, definition: dict[str, Any]
    ) -> None:
        arn = stage.state_machine_arn
        cleanup = definition["States"]["Cleanup"]
        cleanup["Parameters"]["Entries"] = "no list"
        cleanup["Retry"] = []
        stage.stepfunctions.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))
        run_id = stage.submit()
        finish(stage, run_id, stage.split(run_id), failed=1)
        reason = stage.wait_for_status(run_id, "failed").error_message
        assert reason == "TooManyFailures: 1 of 4 chunks failed (25 %), 0 % are tolerated."

    def test_a_cancelled_run_stops_its_chunks_and_its_execution(self, stage: Any) -> None:
        run_id = stage.submit()
        stage.split(run_id)
        stage.wait_for_status(run_id, "running")
        for _ in range(2):
            stage.publish(RunCancelRequested(run_id=run_id, requested_at=timestamp()))
        stage.wait_for_status(run_id, "cancelled")
        stage.wait_for(lambda: stage.ledger.run(run_id).cancelled_at, "the run to be stopped in the ledger")
        stage.wait_for(lambda: stage.execution_status(run_id) != "RUNNING", "the execution to end")
        stage.wait_for(lambda: stage.endings(run_id), "the cancellation to be announced")
        assert stage.endings(run_id) == ["prismline.run.cancelled.v1"]

    def test_an_execution_that_somebody_stops_fails_its_run(self, stage: Any) -> None:
        run_id = stage.submit()
        stage.split(run_id)
        stage.wait_for_status(run_id, "running")
        stage.stepfunctions.stop_execution(executionArn=stage.deps.executions.arn(run_id), cause="maintenance")
        run = stage.wait_for_status(run_id, "failed")
        assert "was stopped before the run had ended" in run.error_message
        stage.wait_for(lambda: stage.ledger.run(run_id).cancelled_at, "the run to be stopped in the ledger")
        stage.wait_for(lambda: stage.endings(run_id), "the failure to be announced")
        assert stage.endings(run_id) == ["prismline.run.failed.v1"]

    def test_a_submission_that_is_announced_twice_starts_one_execution(self, stage: Any) -> None:
        run_id = stage.submit()
        from_first = stage.split_command(run_id)
        stage.publish(stage.submitted(run_id))
        stage.deps.transport.refuse(from_first.tasktoken, "ValidationFailed", "no")
        stage.wait_for_status(run_id, "failed")
        arn = stage.state_machine_arn
        names = [e["name"] for e in stage.stepfunctions.list_executions(stateMachineArn=arn)["executions"]]
        assert names.count(run_id) == 1


def finish(stage: Any, run_id: str, chunk_ids: list[str], failed: int = 0) -> None:
    """Act as the worker: end all chunks, of which the last `failed` fail, and announce the drain."""
    stage.publish(RunDrained.of(stage.end_chunks(run_id, chunk_ids, failed=failed)))
