"""A run that failed because of failed chunks completes when they are recovered. Its execution stays failed."""

from __future__ import annotations

from typing import Any

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunCancelRequested, RunDrained, RunRecovered

pytestmark = pytest.mark.emulator


def fail_chunks(stage: Any, run_id: str, chunk_ids: list[str], *, failed: int) -> None:
    """Act as the worker: the last `failed` chunks fail, the others complete, and the run drains."""
    stage.publish(RunDrained.of(stage.end_chunks(run_id, chunk_ids, failed=failed)))


def recover_chunk(stage: Any, run_id: str, chunk_id: str) -> None:
    """Act as the worker that completes a recovered chunk."""
    drained = RunDrained.of(stage.end_chunk(run_id, chunk_id))
    counts = drained.model_dump(exclude={"drained_at", "drains"})
    recovered = RunRecovered(chunk_id=chunk_id, **counts)
    stage.deps.transport.publish(Envelope.wrap(recovered, source="test", traceparent=None, key=(chunk_id,)))


def test_a_failed_run_completes_when_no_more_than_tolerated_have_failed(stage: Any) -> None:
    run_id = stage.submit(tolerated=25.0)
    chunk_ids = stage.split(run_id)
    fail_chunks(stage, run_id, chunk_ids, failed=3)
    stage.wait_for_status(run_id, "failed")
    stage.wait_for(lambda: stage.execution_status(run_id) == "FAILED", "the execution to fail")
    recover_chunk(stage, run_id, chunk_ids[-1])
    stage.wait_for(lambda: not depth(stage, Queue.RUNS), "the event to be processed")
    assert stage.run(run_id).status == "failed", "two of four are still failed"
    recover_chunk(stage, run_id, chunk_ids[-2])
    run = stage.wait_for_status(run_id, "completed")
    assert run.error_message is None
    stage.wait_for(lambda: len(stage.endings(run_id)) == 2, "the completion to be announced")
    assert sorted(stage.endings(run_id)) == ["prismline.run.completed.v1", "prismline.run.failed.v1"]
    assert stage.execution_status(run_id) == "FAILED"


def test_a_recovery_that_is_announced_twice_completes_a_run_once(stage: Any) -> None:
    run_id = stage.submit()
    chunk_ids = stage.split(run_id)
    fail_chunks(stage, run_id, chunk_ids, failed=1)
    stage.wait_for_status(run_id, "failed")
    for _ in range(2):
        recover_chunk(stage, run_id, chunk_ids[-1])
    before = stage.wait_for_status(run_id, "completed")
    stage.wait_for(lambda: not depth(stage, Queue.RUNS), "the events to be processed")
    assert stage.run(run_id).completed_at == before.completed_at
    assert stage.endings(run_id).count("prismline.run.completed.v1") == 1


def test_a_cancelled_run_stays_cancelled(stage: Any) -> None:
    run_id = stage.submit()
    chunk_ids = stage.split(run_id)
    stage.wait_for_status(run_id, "running")
    stage.publish(RunCancelRequested(run_id=run_id, requested_at=timestamp()))
    stage.wait_for_status(run_id, "cancelled")
    stage.end_chunks(run_id, chunk_ids, failed=1)
    recover_chunk(stage, run_id, chunk_ids[-1])
    stage.wait_for(lambda: not depth(stage, Queue.RUNS), "the event to be processed")
    assert stage.run(run_id).status == "cancelled"


def depth(stage: Any, queue: str) -> int:
    url = stage.sqs.get_queue_url(QueueName=f"prismline-{stage.environment}-{queue}")["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = stage.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)
