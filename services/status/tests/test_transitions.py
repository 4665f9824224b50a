"""Which status may follow which, and that DynamoDB is sent nothing it would refuse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts import RunStatus, StatusUpdate, StepFunctionsError
from prismline_status.transitions import (
    ALLOWED_FROM,
    NO_REASON,
    Expression,
    build_transition_condition,
    build_update,
    changed_fields,
    error_message,
)

#: The transition table of the source document: target status, statuses it may be reached from.
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


def placeholders(expression: Expression, kind: str) -> set[str]:
    return set(re.findall(rf"{kind}\w+", expression.text))


@given(updates)
def test_every_name_and_value_that_is_sent_is_used_and_every_used_one_is_sent(update: StatusUpdate) -> None:
    condition = build_transition_condition(RunStatus(update.status), update.execution_arn)
    change = build_update(changed_fields(update, "2026-03-01T12:00:00.000Z"))
    for expression in (condition, change):
        assert placeholders(expression, ":") == set(expression.values)
        assert placeholders(expression, "#") == set(expression.names)
    assert not set(condition.values) & set(change.values), "one must not overwrite the other's"


@given(updates)
def test_a_condition_asks_for_an_existing_item_and_for_the_execution_only_if_it_is_known(update: StatusUpdate) -> None:
    condition = build_transition_condition(RunStatus(update.status), update.execution_arn)
    assert "attribute_exists(run_id)" in condition.text
    assert ("execution_arn" in condition.text) == (update.execution_arn is not None)


@given(updates)
def test_only_what_was_given_is_written(update: StatusUpdate) -> None:
    fields = changed_fields(update, "now")
    optional = {"execution_arn", "started_at", "completed_at", "ecs_task_arn", "trace_id"}
    given = {name for name in optional if getattr(update, name) is not None}
    reason = {"error_message"} if update.status == "FAILED" else set()
    assert set(fields) == {"status", "updated_at"} | given | reason
    assert fields["status"] == update.status.lower()
    assert len(fields.get("error_message", "")) <= 2000


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StepFunctionsError(Error="States.TaskFailed", Cause="exit code 1"), "States.TaskFailed: exit code 1"),
        (StepFunctionsError(Cause="exit code 1"), "exit code 1"),
        ("plain words", "plain words"),
        (None, NO_REASON),
        (StepFunctionsError(), NO_REASON),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_an_error_is_told_in_at_most_two_thousand_characters(error: StepFunctionsError | str | None, said: str) -> None:
    assert error_message(error) == said
