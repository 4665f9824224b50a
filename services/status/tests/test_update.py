"""Status updates with a real table: what the service answers, writes, counts and publishes."""

from __future__ import annotations

import json
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismline_contracts.items import WorkflowStateItem
from prismline_status.transitions import ALLOWED_FROM
from prismline_status.update import update_status

pytestmark = pytest.mark.emulator

STATUSES = [status.value for status in ALLOWED_FROM]
NOW = "2026-03-01T12:00:00.000Z"


def new_run(stage: Any, status: str = "PENDING", execution_arn: str | None = None) -> str:
    run_id = str(uuid4())
    item = WorkflowStateItem(run_id=run_id, status=status.lower(), updated_at=NOW, execution_arn=execution_arn)
    assert stage.deps.table.create(item)
    return run_id


def update(stage: Any, run_id: str, status: str, **fields: Any) -> dict[str, Any]:
    return update_status({"job_id": run_id, "status": status, **fields}, stage.deps).to_step_functions()


def test_each_of_the_25_transitions_is_allowed_or_refused_as_documented(stage: Any) -> None:
    for before, after in product(STATUSES, STATUSES):
        run_id = new_run(stage, before)
        answer = update(stage, run_id, after)
        allowed = before in {source.value for source in ALLOWED_FROM[after]}
        data: dict[str, Any] = {"job_id": run_id, "status": after.lower(), "updated": allowed}
        if not allowed:
            data["reason"] = "stale_or_invalid_transition"
        body = {"success": True, "data": data, "environment": stage.environment}
        assert answer == {"statusCode": 200, "body": body}, (before, after)
        assert stage.run(run_id).status == (after if allowed else before).lower()


def test_an_update_creates_no_run_that_was_never_submitted(stage: Any) -> None:
    assert update(stage, "nobody", "RUNNING")["body"]["data"]["updated"] is False
    assert stage.run("nobody") is None


def test_another_execution_cannot_overwrite_the_state(stage: Any) -> None:
    run_id = new_run(stage)
    assert update(stage, run_id, "RUNNING", execution_arn="arn:first")["body"]["data"]["updated"]
    assert not update(stage, run_id, "FAILED", execution_arn="arn:second")["body"]["data"]["updated"]
    assert update(stage, run_id, "COMPLETED", execution_arn="arn:first")["body"]["data"]["updated"]
    assert stage.run(run_id).execution_arn == "arn:first"


def test_every_field_of_an_update_is_written(stage: Any) -> None:
    run_id = new_run(stage)
    fields = {
        "trace_id": "trace-1",
        "execution_arn": "arn:e",
        "started_at": NOW,
        "completed_at": NOW,
        "ecs_task_arn": "arn:t",
    }
    error = {"Error": "States.TaskFailed", "Cause": "y" * 3000}
    update(stage, run_id, "FAILED", error=error, **fields)
    written = stage.run(run_id).model_dump()
    assert {name: written[name] for name in fields} == fields
    assert written["error_message"] == ("States.TaskFailed: " + "y" * 3000)[:2000]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"status": "RUNNING"}, "job_id"),
        ({"job_id": "r", "status": "running"}, "The status running is not known here."),
        ({"job_id": "r", "status": "RUNNING", "started_at": "yesterday"}, "started_at"),
        ([], "dictionary"),
    ],
)
def test_invalid_input_is_answered_with_400_and_the_reason(stage: Any, document: Any, message: str) -> None:
    answer = update_status(document, stage.deps).to_step_functions()
    assert answer["statusCode"] == 400
    assert answer["body"]["success"] is False
    assert message in answer["body"]["error"]


def metrics(printed: str) -> list[dict[str, Any]]:
    """The metrics in EMF lines: name and dimensions."""
    lines = [json.loads(line) for line in printed.splitlines() if '"_aws"' in line]
    return [
        {"name": metric["Name"], **{name: line[name] for name in directive["Dimensions"][0]}}
        for line in lines
        for directive in line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
        if directive["Namespace"] == "Prismline/WorkflowStatus"
    ]


def test_updates_and_terminations_are_counted_with_their_dimensions(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id, env = new_run(stage, "RUNNING"), {"Environment": stage.environment}
    capsys.readouterr()
    update(stage, run_id, "COMPLETED")
    update(stage, run_id, "COMPLETED")
    update(stage, run_id, "FAILED")
    assert metrics(capsys.readouterr().out) == [
        {"name": "StatusUpdates", "Status": "completed", "Success": "true", **env},
        {"name": "JobsTerminated", "Status": "completed", **env},
        {"name": "StatusUpdates", "Status": "completed", "Success": "true", **env},
        {"name": "StatusUpdates", "Status": "failed", "Success": "false", **env},
    ]


def test_an_ending_is_published_once_however_often_it_is_repeated(stage: Any) -> None:
    run_id = new_run(stage, "RUNNING")
    for _ in range(3):
        update(stage, run_id, "COMPLETED")
    stage.wait_for(lambda: stage.endings(run_id), "the completion to be announced")
    marker = new_run(stage, "RUNNING")
    update(stage, marker, "COMPLETED")
    stage.wait_for(lambda: stage.endings(marker), "an event that was published after all repeats")
    events = [event["type"] for event in stage.observed if event["runid"] == run_id]
    assert events.count("prismline.run.completed.v1") == 1
    assert set(events) == {"prismline.run.completed.v1", "prismline.run.check.requested.v1"}


def test_the_first_reason_and_time_of_a_failure_stay(stage: Any) -> None:
    run_id = new_run(stage, "RUNNING")
    update(stage, run_id, "FAILED", error="TooManyFailures: 3 of 4 chunks failed.", completed_at=NOW)
    later = "2026-03-02T00:00:00.000Z"
    update(stage, run_id, "FAILED", completed_at=later)
    update(stage, run_id, "FAILED", error="States.Timeout", completed_at=later)
    run = stage.run(run_id)
    assert (run.error_message, run.completed_at) == ("TooManyFailures: 3 of 4 chunks failed.", NOW)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sequence=st.lists(st.tuples(st.sampled_from(STATUSES), st.sampled_from(["arn:a", "arn:b", None])), max_size=8))
def test_any_sequence_of_updates_ends_where_the_table_allows(
    stage: Any, sequence: list[tuple[str, str | None]]
) -> None:
    run_id, status, owner = new_run(stage), "PENDING", None
    for target, arn in sequence:
        allowed = status in {source.value for source in ALLOWED_FROM[target]}  # type: ignore[index]
        allowed = allowed and (arn is None or owner in (None, arn))
        fields = {"execution_arn": arn} if arn else {}
        assert update(stage, run_id, target, **fields)["body"]["data"]["updated"] is allowed
        if allowed:
            status, owner = target, arn or owner
    assert stage.run(run_id).status == status.lower()
