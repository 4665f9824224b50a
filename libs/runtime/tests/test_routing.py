"""What happens to a message, depending on what its function does."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from prismline_contracts.base import timestamp
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import ChunkFailed, RunDrained, RunSubmitted
from prismline_ledger.testing import Context, lambda_event_of
from prismline_runtime import (
    SENT_AGAIN,
    Delivery,
    Message,
    PermanentError,
    ResourceUnavailableError,
    TransientError,
    UnavailableError,
    Work,
    describe_error,
    queue_handler,
    service_logger,
)
from prismline_runtime.routing import MAX_BACKOFF_SECONDS, MAX_ERROR_CHARS, backoff_seconds

RUN_ID = "7b0b3f0e-2f5e-5d0c-8c39-9a1f3c1f7a11"
OBJECT_CREATED = {
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {"object": {"key": "manifests/a.json"}},
}
#: A notification as SNS delivers it to a queue.
NOTIFICATION = {"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:1:alarms", "Message": "{}"}


class FakeTransport:
    """Records the calls."""

    source = "prismline/test/tester"

    def __init__(self) -> None:
        self.dead: list[tuple[str, Mapping[str, str]]] = []
        self.postponed: list[tuple[str, int]] = []

    def dead_letter(self, delivery: Delivery, why: Mapping[str, str]) -> None:
        self.dead.append((delivery.body, why))

    def is_last(self, delivery: Delivery) -> bool:
        return delivery.receive_count >= 5

    def postpone(self, delivery: Delivery, seconds: int) -> None:
        self.postponed.append((delivery.body, seconds))


class FakeNotes:
    """Records the notes about errors, or raises `lost`."""

    def __init__(self, lost: Exception | None = None) -> None:
        self.noted: list[tuple[Work, str | None]] = []
        self._lost = lost

    def note_error(self, work: Work, *, service: str, error: str) -> None:
        self.noted.append((work, f"{service}: {error}"))
        if self._lost:
            raise self._lost

    def forget_error(self, work: Work) -> None:
        self.noted.append((work, None))
        if self._lost:
            raise self._lost


def record(body: str, message_id: str = "m", receive_count: int = 1) -> dict[str, Any]:
    event = lambda_event_of(body, "test", "runs", message_id=message_id, receive_count=receive_count)
    (only,) = event["Records"]
    return dict(only)


def drained() -> Envelope:
    data = RunDrained(
        run_id=RUN_ID, chunks_total=2, chunks_completed=2, chunks_failed=0, failed_percent=0.0, drained_at=timestamp()
    )
    return Envelope.wrap(data, source="prismline/test/test", traceparent=None)


def chunk_envelope() -> Envelope:
    data = ChunkFailed(run_id=RUN_ID, chunk_id="chunk-0000500", error="no")
    return Envelope.wrap(data, source="prismline/test/test", traceparent=f"00-{1:032x}-{1:016x}-01")


class Service:
    """A handler with a route for an event of Prismline and one for AWS events, whose functions raise `error`."""

    def __init__(
        self,
        error: Exception | None = None,
        *,
        answer: str | None = None,
        logger: Logger | None = None,
        lost: Exception | None = None,
    ) -> None:
        self.transport = FakeTransport()
        self.notes = FakeNotes(lost)
        self._answer = answer
        self.seen: list[Any] = []
        self._error = error
        self.handler = queue_handler(
            self.transport,  # type: ignore[arg-type]
            logger or service_logger("test"),
            {RunDrained: self._on_drained, ChunkFailed: self._on_drained},
            {"aws.s3/Object Created": self._on_aws_event, "aws.sns/Notification": self._on_aws_event},
            errors=self.notes,
        )

    def _on_drained(self, event: RunDrained | ChunkFailed, message: Message) -> str | None:
        self.seen.append((event, message))
        if self._error:
            raise self._error
        return self._answer

    def _on_aws_event(self, event: dict[str, Any], delivery: Delivery) -> None:
        self.seen.append((event, delivery))

    def failed(self, *records: dict[str, Any]) -> list[str]:
        """Handle `records`. Return the ids of those that SQS shall deliver again."""
        answer = self.handler({"Records": list(records)}, Context(1.0))
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def test_a_message_reaches_the_function_of_its_type() -> None:
    service = Service()
    sent = drained()
    assert service.failed(record(sent.to_json(), receive_count=2)) == []
    [(event, message)] = service.seen
    assert event.chunks_completed == 2
    assert message.envelope == sent
    assert message.delivery.queue == "prismline-test-runs"
    assert message.delivery.receive_count == 2
    assert message.delivery.remaining_ms() == 1000
    assert not service.transport.dead
    assert not service.transport.postponed


def test_an_event_that_eventbridge_could_not_deliver_and_a_person_redrove_reaches_its_function() -> None:
    service, sent = Service(), drained()
    event = {"detail-type": sent.type, "source": sent.source, "detail": json.loads(sent.to_json())}
    assert service.failed(record(json.dumps(event))) == []
    [(_, message)] = service.seen
    assert message.envelope == sent
    assert not service.transport.dead


@pytest.mark.parametrize("event", [OBJECT_CREATED, NOTIFICATION])
def test_an_aws_event_reaches_the_function_of_its_source_and_type(event: dict[str, Any]) -> None:
    service = Service()
    assert service.failed(record(json.dumps(event))) == []
    assert service.seen[0][0] == event


def test_a_permanent_error_is_dead_lettered_with_its_reason_and_acknowledged() -> None:
    service = Service(PermanentError("The cube has no spectral axis."))
    body = drained().to_json()
    assert service.failed(record(body)) == []
    assert service.transport.dead == [(body, {"error": "The cube has no spectral axis."})]
    assert not service.transport.postponed


def test_work_whose_resource_is_down_waits_in_the_dead_letter_queue_at_once() -> None:
    service = Service(ResourceUnavailableError("There is no GPU.", resource="gpu"))
    body = drained().to_json()
    assert service.failed(record(body)) == []
    assert service.transport.dead == [(body, {"waits_for": "gpu"})]
    assert not service.transport.postponed


@pytest.mark.parametrize("message_type", ["prismline.run.drained.v2", RunSubmitted.TYPE])
def test_a_message_of_a_type_that_the_service_does_not_take_waits_for_a_release_that_does(message_type: str) -> None:
    service = Service()
    body = drained().to_json().replace(RunDrained.TYPE, message_type)
    assert service.failed(record(body)) == []
    why = {"unknown": f"The message type {message_type} is not one that this service takes."}
    assert service.transport.dead == [(body, why)]


def test_a_transient_error_is_postponed_and_kept() -> None:
    service = Service(TransientError("The table is busy.", retry_after=17))
    body = drained().to_json()
    assert service.failed(record(body)) == ["m"]
    assert service.transport.postponed == [(body, 17)]
    assert not service.transport.dead


def test_an_unexpected_error_is_treated_as_transient() -> None:
    service = Service(ZeroDivisionError())
    assert service.failed(record(drained().to_json(), receive_count=4)) == ["m"]
    [(_, seconds)] = service.transport.postponed
    assert 4 <= seconds <= 8
    assert not service.transport.dead


def test_the_log_line_of_an_unexpected_error_names_the_run_and_the_chunk() -> None:
    stream = io.StringIO()
    service = Service(ZeroDivisionError(), logger=Logger(service="lines", stream=stream))
    service.failed(record(chunk_envelope().to_json()))
    line = json.loads(stream.getvalue())
    assert (line["message"], line["exception_name"]) == ("message_postponed", "ZeroDivisionError")
    assert (line["run_id"], line["chunk_id"], line["trace_id"]) == (RUN_ID, "chunk-0000500", f"{1:032x}")


def test_the_log_line_of_an_unexpected_error_names_the_tasks_of_a_valid_message_only() -> None:
    stream = io.StringIO()
    service = Service(ZeroDivisionError(), logger=Logger(service="tasks", stream=stream))
    for task_ids in ["a" * 64, "b" * 64], ["s3cret"]:
        service.failed(record(chunk_envelope().model_copy(update={"data": {"task_ids": task_ids}}).to_json()))
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["task_ids"] == ["a" * 64, "b" * 64]
    assert "task_ids" not in second


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (MemoryError(), "MemoryError"),
        (TransientError("The table is busy.", retry_after=17), "TransientError: The table is busy."),
        (ValueError("first line\nsecond line"), "ValueError: first line"),
        (
            OSError("no answer from https://me:pass@host.example/key?X-Amz-Signature=abc, again"),
            "OSError: no answer from https://host.example/key?..., again",
        ),
    ],
)
def test_a_message_that_raises_at_its_last_receive_is_dead_lettered_with_the_type_and_text_of_the_error(
    error: Exception, message: str
) -> None:
    service = Service(error)
    body = drained().to_json()
    assert service.failed(record(body, receive_count=5)) == []
    assert service.transport.dead == [(body, {"raised": message})]
    assert not service.transport.postponed


def test_a_message_whose_copy_is_refused_at_its_last_receive_stays_in_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise UnavailableError("Could not move a message.")

    service = Service(ZeroDivisionError())
    monkeypatch.setattr(service.transport, "dead_letter", refuse)
    assert service.failed(record(drained().to_json(), receive_count=5)) == ["m"]


def test_the_text_of_an_error_is_short_and_quotes_no_invalid_value() -> None:
    with pytest.raises(ValidationError) as invalid:
        RunDrained.model_validate({"run_id": RUN_ID, "jobs_total": "s3cret"})
    assert "s3cret" not in describe_error(invalid.value)
    assert len(describe_error(ValueError("x" * 10_000))) <= MAX_ERROR_CHARS


CHUNK_FAILED = Work(RUN_ID, ChunkFailed.TYPE, "chunk-0000500")


@pytest.mark.parametrize("receive_count", [1, 5])
def test_an_unexpected_error_is_noted_for_the_run_with_the_service_and_the_chunk(receive_count: int) -> None:
    service = Service(ZeroDivisionError("division by zero"))
    service.failed(record(chunk_envelope().to_json(), receive_count=receive_count))
    assert service.notes.noted == [(CHUNK_FAILED, "tester: ZeroDivisionError: division by zero")]


@pytest.mark.parametrize(
    "error",
    [
        PermanentError("No."),
        TransientError("The table is busy."),
        UnavailableError("Could not read."),
        ResourceUnavailableError("There is no GPU.", resource="gpu"),
        ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
def test_a_foreseen_error_or_an_outage_is_not_noted(error: Exception) -> None:
    service = Service(error)
    service.failed(record(drained().to_json()))
    assert service.notes.noted == []


def test_a_request_that_aws_calls_invalid_is_an_unexpected_error() -> None:
    service = Service(ClientError({"Error": {"Code": "ValidationException", "Message": "no"}}, "PutItem"))
    service.failed(record(drained().to_json()))
    assert len(service.notes.noted) == 1


def test_a_message_that_succeeds_after_it_may_have_raised_is_noted_too() -> None:
    service = Service()
    body = chunk_envelope().to_json()
    service.failed(record(body))
    assert service.notes.noted == [], "it is new"
    service.failed(record(body, receive_count=2))
    sent_back = record(body) | {"messageAttributes": {"attempt": {"stringValue": "2", "dataType": "String"}}}
    service.failed(sent_back)
    sweeper_sent = chunk_envelope().model_copy(update={"data": chunk_envelope().data | {"attempt": 2}})
    service.failed(record(sweeper_sent.to_json()))
    assert service.notes.noted == [(CHUNK_FAILED, None)] * 3


def test_a_message_that_its_function_sent_again_has_not_succeeded() -> None:
    service = Service(answer=SENT_AGAIN)
    assert service.failed(record(drained().to_json(), receive_count=2)) == []
    assert service.notes.noted == []


@pytest.mark.parametrize("receive_count", [2, 5])
@pytest.mark.parametrize("error", [None, ZeroDivisionError("division by zero")])
def test_a_note_that_cannot_be_written_changes_nothing_for_the_message(
    error: Exception | None, receive_count: int
) -> None:
    outcomes, body = [], drained().to_json()
    for lost in (None, UnavailableError("The table does not answer."), RuntimeError("a bug")):
        service = Service(error, lost=lost)
        failed = service.failed(record(body, receive_count=receive_count))
        assert len(service.notes.noted) == 1
        outcomes.append((failed, service.transport.dead, len(service.transport.postponed)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_the_end_of_an_execution_is_work_for_the_run_that_the_execution_is_named_after() -> None:
    event = {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": {"name": "r"}}
    assert Work.of(event) == Work("r", "aws.states/Step Functions Execution Status Change")
    assert Work.of(OBJECT_CREATED) is None


def test_one_bad_message_of_a_batch_does_not_touch_the_others() -> None:
    service = Service()
    good = drained().to_json()
    assert service.failed(record(good, "a"), record("{", "b"), record(good, "c")) == []
    assert len(service.seen) == 2
    assert [body for body, _ in service.transport.dead] == ["{"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (r'{"specversion": "\ud800"}', "not JSON"),  # half of a surrogate pair
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "neither an envelope nor an AWS event"),
        (json.dumps(OBJECT_CREATED | {"source": "aws.ec2"}), "neither an envelope nor an AWS event"),
        ('{"specversion": "1.0"}', "not a valid envelope: id: Field required"),
        (drained().to_json().replace('"1.0"', '"0.3"'), "not a valid envelope: specversion"),
        (drained().to_json().replace('"jobs_total":2', '"jobs_total":"many"'), "is invalid: jobs_total"),
    ],
)
def test_an_invalid_message_is_dead_lettered_with_the_reason(body: str, reason: str) -> None:
    service = Service()
    assert service.failed(record(body)) == []
    [(dead_body, why)] = service.transport.dead
    assert dead_body == body
    assert reason in why["error"]
    assert not service.seen


def test_a_reason_does_not_quote_the_message() -> None:
    service = Service()
    service.failed(record(drained().to_json().replace('"jobs_total":2', '"jobs_total":"s3cret"')))
    assert "s3cret" not in service.transport.dead[0][1]["error"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
#: Documents that look like messages, with arbitrary values in some of their fields.
near_messages = st.dictionaries(st.sampled_from([*drained().model_dump(), "detail-type", "detail"]), json_values).map(
    lambda fields: json.dumps(json.loads(drained().to_json()) | fields)
)


@settings(deadline=None)
@given(st.text() | json_values.map(json.dumps) | near_messages)
def test_no_message_is_lost_whatever_its_content(body: str) -> None:
    service = Service()
    assert service.failed(record(body)) == []
    assert len(service.seen) + len(service.transport.dead) == 1


@given(st.integers(min_value=1, max_value=1000))
def test_the_backoff_doubles_at_each_receive_up_to_its_limit(receive_count: int) -> None:
    longest = min(MAX_BACKOFF_SECONDS, 2 ** (receive_count - 1))
    assert max(1, longest // 2) <= backoff_seconds(receive_count) <= longest
