"""Cancelling: the service stops the execution. If that has no effect, the execution ends when its task is answered."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue, queue_name
from prismline_contracts.events import RunCancelRequested, RunSplitCompleted


def cancel(stage: Any, run_id: str) -> None:
    stage.publish(RunCancelRequested(run_id=run_id, requested_at=timestamp()))
    stage.wait_for_status(run_id, "cancelled")


def runs_queue_is_empty(stage: Any) -> bool:
    url = stage.sqs.get_queue_url(QueueName=queue_name(stage.environment, Queue.RUNS))["QueueUrl"]
    counts = stage.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return all(counts[f"ApproximateNumberOfMessages{kind}"] == "0" for kind in ("", "NotVisible", "Delayed"))


@pytest.mark.emulator
def test_a_cancelled_runs_execution_is_aborted(stage: Any) -> None:
    run_id = stage.submit()
    stage.split_command(run_id)
    cancel(stage, run_id)
    stage.wait_for(lambda: stage.execution_status(run_id) != "RUNNING", "the execution to end")
    assert stage.execution_status(run_id) == "ABORTED"


@pytest.mark.emulator
def test_an_execution_that_cannot_be_stopped_ends_because_its_task_fails(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.deps.executions, "stop", lambda *_: None)
    run_id = stage.submit()
    stage.split(run_id)
    stage.wait_for(lambda: (run := stage.run(run_id)) and run.tokens, "the state machine to wait")
    cancel(stage, run_id)
    stage.wait_for(lambda: stage.execution_status(run_id) == "SUCCEEDED", "the execution to end")
    assert stage.endings(run_id) == ["prismline.run.cancelled.v1"]


@pytest.mark.emulator
def test_a_run_that_was_cancelled_before_it_was_split_has_its_chunks_skipped(stage: Any) -> None:
    run_id = stage.submit()
    stage.split_command(run_id)
    cancel(stage, run_id)
    stage.wait_for(lambda: stage.execution_status(run_id) == "ABORTED", "the execution to be aborted")
    stage.wait_for(lambda: runs_queue_is_empty(stage), "the messages about its end to be processed")
    stage.open(run_id, 1)
    assert stage.ledger.run(run_id).stop_reason == "cancelled", "the run is stopped as soon as it is opened"
    stage.publish(RunSplitCompleted(run_id=run_id, survey="s", chunks_total=1, n_items=1, n_blank=0))
    stage.wait_for(lambda: stage.ledger.run(run_id).ended_status == "cancelled", "its end to be recorded")
