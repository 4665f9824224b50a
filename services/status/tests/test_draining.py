"""A run that has drained is ended by its execution, or without it if that is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prismline_contracts import Envelope, RunDrained, StatusUpdate
from prismline_runtime import Delivery, Message
from prismline_status.lifecycle import on_run_drained, on_run_submitted
from prismline_status.update import update_status

pytestmark = pytest.mark.emulator


class Lost:
    """The executions of an emulator that was restarted."""

    def __init__(self, *, running: bool = False) -> None:
        self.running = running

    def start(self, *_: Any) -> None:
        """Start one that is lost at once."""

    def is_running(self, _run_id: str) -> bool:
        return self.running


def message(data: Any) -> Message:
    return Message(Envelope.wrap(data, source="test", traceparent=None), Delivery("q", "m", "h", "", 1))


def drained(stage: Any, run_id: str, failed: int) -> RunDrained:
    """Drain the run in the ledger: four chunks, of which some failed."""
    stage.ledger.open_run(run_id=run_id, survey="s", job_id="j", workload="spectra", params=None, traceparent=None)
    new = stage.new_chunks(4)
    stage.ledger.add_chunks(run_id, new)
    stage.ledger.set_total(run_id, jobs_total=4, n_spectra=4, n_blank=0)
    stage.ledger.latch(run_id)
    for index, chunk in enumerate(new):
        if index < failed:
            done = stage.ledger.fail_chunk(run_id, chunk.chunk_id, "because")
        else:
            done = stage.ledger.complete_chunk(run_id, chunk.chunk_id, output_key="o", duration_ms=1)
    return RunDrained.of(done.drained)


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize(("failed", "status"), [(1, "completed"), (2, "failed")])
def test_a_run_whose_execution_is_gone_is_ended_from_the_ledger(
    stage: Any, waited: bool, failed: int, status: str
) -> None:
    deps, run_id = replace(stage.deps, executions=Lost()), "lost"
    submitted = stage.submitted(run_id, 25.0)
    on_run_submitted(submitted, message(submitted), deps)
    if waited:
        update_status(StatusUpdate(job_id=run_id, status="RUNNING"), deps)
        assert deps.table.remember_waiting(run_id, "the token of an execution that is gone")
    event = drained(stage, run_id, failed)
    for _ in range(2):
        on_run_drained(event, message(event), deps)
    run = stage.run(run_id)
    assert run.status == status
    assert run.error_message == (
        "TooManyFailures: 2 of 4 chunks failed (50 %), 25 % are tolerated." if status == "failed" else None
    )
    assert stage.endings(run_id) == [f"prismline.run.{status}.v1"]


def test_a_run_whose_execution_is_under_way_is_left_to_it(stage: Any) -> None:
    deps, run_id = replace(stage.deps, executions=Lost(running=True)), "under-way"
    submitted = stage.submitted(run_id)
    on_run_submitted(submitted, message(submitted), deps)
    event = drained(stage, run_id, failed=0)
    on_run_drained(event, message(event), deps)
    assert stage.run(run_id).status == "pending"


def test_an_execution_that_was_never_started_is_not_running(stage: Any) -> None:
    assert not stage.deps.executions.is_running("nobody")
    run_id = stage.submit()
    stage.split_command(run_id)
    assert stage.deps.executions.is_running(run_id)
    stage.stepfunctions.stop_execution(executionArn=stage.deps.executions.arn(run_id))
    assert not stage.deps.executions.is_running(run_id)
