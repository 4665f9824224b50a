"""Which status may follow which, and that no request contains anything that DynamoDB would refuse."""

from __future__ import annotations

import re

import pytest
from boto3.dynamodb.conditions import BuiltConditionExpression, ConditionExpressionBuilder
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.commands import RunStatus, StatusUpdate, StepFunctionsError
from prismline_status.transitions import (
    ALLOWED_FROM,
    NO_REASON,
    build_change,
    build_transition_condition,
    error_message,
)

#: The transition table of the source document: each status, and the statuses from which it may be reached.
DOCUMENTED = {
    "PENDING": {"PENDING"},
    "RUNNING": {"PENDING", "RUNNING"},
    "COMPLETED": {"RUNNING", "COMPLETED"},
    "FAILED": {"PENDING", "RUNNING", "FAILED"},
    "CANCELLED": {"PENDING", "RUNNING", "CANCELLED"},
}

timestamps = st.none() | st.just("2026-03-01T12:00:00.000Z")
names = st.none() | st.text(min_size=1, max_size=20)
updates = st.builds(
    StatusUpdate,
    job_id=st.just("run-1"),
    status=st.sampled_from(list(DOCUMENTED)),
    trace_id=names,
    execution_arn=names,
    started_at=timestamps,
    completed_at=timestamps,
    ecs_task_arn=names,
    error=st.none() | st.text() | st.builds(StepFunctionsError, Error=names, Cause=names),
)


def test_the_transition_table_is_the_documented_one() -> None:
    assert {to.value: {source.value for source in sources} for to, sources in ALLOWED_FROM.items()} == DOCUMENTED


def built(update: StatusUpdate) -> BuiltConditionExpression:
    """The condition of `update` as it is sent to DynamoDB."""
    condition = build_transition_condition(RunStatus(update.status), update.execution_arn)
    return ConditionExpressionBuilder().build_expression(condition)


@given(updates)
def test_the_placeholders_in_a_condition_are_exactly_those_that_are_sent(update: StatusUpdate) -> None:
    sent = built(update)
    assert set(re.findall(r":\w+", sent.condition_expression)) == set(sent.attribute_value_placeholders)
    assert set(re.findall(r"#\w+", sent.condition_expression)) == set(sent.attribute_name_placeholders)


@given(updates)
def test_a_condition_checks_the_item_its_status_and_if_it_is_given_the_execution(update: StatusUpdate) -> None:
    sent = built(update)
    names = {"run_id", "status"} | ({"execution_arn"} if update.execution_arn is not None else set())
    assert set(sent.attribute_name_placeholders.values()) == names
    arn = {update.execution_arn} - {None}
    assert set(sent.attribute_value_placeholders.values()) == {s.lower() for s in DOCUMENTED[update.status]} | arn


@given(updates)
def test_only_what_was_given_is_written(update: StatusUpdate) -> None:
    change = build_change(update, "now")
    written = {**change.sets, **change.defaults}
    optional = {"execution_arn", "started_at", "completed_at", "ecs_task_arn", "trace_id"}
    given = {name for name in optional if getattr(update, name) is not None}
    reason = {"error_message"} if update.status == "FAILED" else set()
    assert set(written) == {"status", "updated_at"} | given | reason
    assert written["status"] == update.status.lower()
    assert len(written.get("error_message", "")) <= 2000


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StepFunctionsError(Error="States.TaskFailed", Cause="exit code 1"), "States.TaskFailed: exit code 1"),
        (StepFunctionsError(Cause="exit code 1"), "exit code 1"),
        ("plain words", "plain words"),
        (None, NO_REASON),
        (StepFunctionsError(), NO_REASON),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_an_error_message_has_at_most_two_thousand_characters(
    error: StepFunctionsError | str | None, message: str
) -> None:
    assert error_message(error) == message
