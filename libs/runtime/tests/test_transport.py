"""Sending in batches when part of a batch is refused. The tests of the consumer send to real queues."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunFailed
from prismline_runtime import Delivery, PermanentError, TransientError, Transport, batches, transport
from prismline_runtime.errors import aws_errors

RUN_ID = "7b0b3f0e-2f5e-5d0c-8c39-9a1f3c1f7a11"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(transport, "LAST_WAIT_SECONDS", 0.0)


class Refusing:
    """SQS and EventBridge that refuse the first message of a batch `refusals` times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.taken: list[str] = []
        self.calls = 0

    def get_queue_url(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803
        return {"QueueUrl": f"http://queues/{QueueName}"}

    def _take(self, bodies: list[str]) -> bool:
        """Whether the first message is refused."""
        self.calls += 1
        refused = self.refusals > 0
        self.refusals -= 1
        self.taken += bodies[1:] if refused else bodies
        return refused

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        refused = self._take([entry["MessageBody"] for entry in Entries])
        return {"Failed": [{"Id": Entries[0]["Id"]}]} if refused else {}

    def put_events(self, *, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        refused = self._take([entry["Detail"] for entry in Entries])
        answers: list[dict[str, str]] = [{"EventId": "e"} for _ in Entries]
        if refused:
            answers[0] = {"ErrorCode": "ThrottlingException"}
        return {"Entries": answers}


def make_transport(aws: Any) -> Transport:
    return Transport(environment="test", service="test", sqs=aws, events=aws, stepfunctions=aws)


def events(count: int) -> list[Envelope]:
    data = RunFailed(run_id=RUN_ID, completed_at=timestamp(), error="x")
    return [Envelope.wrap(data, source="test", traceparent=None, key=(str(n),)) for n in range(count)]


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_only_what_was_refused_is_sent_again(refusals: int) -> None:
    aws = Refusing(refusals)
    sent = events(12)
    make_transport(aws).send("runs", sent)
    assert sorted(aws.taken) == sorted(event.to_json() for event in sent)
    assert aws.calls == 2 + refusals


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_only_events_that_were_refused_are_published_again(refusals: int) -> None:
    aws = Refusing(refusals)
    sent = events(12)
    make_transport(aws).publish(*sent)
    assert sorted(aws.taken) == sorted(event.to_json() for event in sent)
    assert aws.calls == 2 + refusals


def test_a_message_that_is_refused_again_and_again_is_a_transient_error() -> None:
    with pytest.raises(TransientError, match="Could not send to runs: 1 of 3 messages were refused"):
        make_transport(Refusing(1000)).send("runs", events(3))


def test_an_event_larger_than_eventbridge_takes_is_a_permanent_error_and_sends_nothing() -> None:
    aws = Refusing(0)
    [small] = events(1)
    large = small.model_copy(update={"data": small.data | {"error": "é" * 130 * 1024}})
    with pytest.raises(PermanentError, match="larger than 262144 bytes"):
        make_transport(aws).publish(small, large)
    assert aws.calls == 0


@given(st.lists(st.integers(), max_size=50), st.integers(min_value=1, max_value=12))
def test_batches_hold_everything_in_order_and_no_batch_is_too_long(items: list[int], size: int) -> None:
    made = list(batches(iter(items), size))
    assert [item for batch in made for item in batch] == items
    assert all(len(batch) == size for batch in made[:-1])
    assert all(made)


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("NoSuchKey", PermanentError),
        ("404", PermanentError),
        ("ValidationException", PermanentError),
        ("ProvisionedThroughputExceededException", TransientError),
        ("ThrottlingException", TransientError),
        ("InternalError", TransientError),
        ("AccessDenied", TransientError),
    ],
)
def test_errors_of_aws_are_mapped_by_their_code(code: str, family: type[Exception]) -> None:
    error = ClientError({"Error": {"Code": code, "Message": "m"}}, "GetObject")
    with pytest.raises(family, match=r"Could not read s3://b/k"), aws_errors("read s3://b/k"):
        raise error


def test_a_connection_that_fails_is_transient() -> None:
    with pytest.raises(TransientError), aws_errors("read"):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


class Recording(Refusing):
    """SQS that accepts and records everything."""

    def __init__(self) -> None:
        super().__init__(0)
        self.batches: list[list[dict[str, Any]]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self.batches.append(Entries)
        return {}

    def send_message(self, **arguments: Any) -> None:
        self.batches.append([arguments])


@given(st.lists(st.integers(0, 400_000), max_size=25))
def test_messages_are_sent_back_unchanged_in_order_and_in_batches_that_sqs_accepts(sizes: list[int]) -> None:
    aws = Recording()
    bodies = [f"{number:02}" + "x" * size for number, size in enumerate(sizes)]
    make_transport(aws).send_back("chunks", [(body, {"attempt": "2"}) for body in bodies])
    entries = [entry for batch in aws.batches for entry in batch]
    assert [entry["MessageBody"] for entry in entries] == bodies
    assert all(entry["MessageAttributes"]["attempt"]["StringValue"] == "2" for entry in entries)
    for batch in aws.batches:
        assert len(batch) <= 10
        assert sum(len(entry["MessageBody"]) for entry in batch) <= 2**20


def test_a_message_keeps_its_history_when_it_becomes_a_dead_letter() -> None:
    aws = Recording()
    first = "2026-03-01T12:00:00.000Z"
    attributes = {"attempt": "3", "recovery": "op/m-1", "first_sent": first, "error": "old", "other": "x"}
    delivery = Delivery("prismline-test-split", "m", "h", "body", 1, attributes=attributes)
    make_transport(aws).dead_letter(delivery, {"error": "new"})
    ((sent,),) = aws.batches
    values = {name: value["StringValue"] for name, value in sent["MessageAttributes"].items()}
    history = {"attempt": "3", "recovery": "op/m-1", "first_sent": first}
    assert values == {"error": "new", "source_queue": "prismline-test-split", **history}


def test_a_dead_letter_of_a_runs_own_queue_goes_to_the_shared_one_and_back_to_its_queue() -> None:
    aws = Recording()
    delivery = Delivery("prismline-test-tasks-run-1", "m", "h", "body", 1)
    make_transport(aws).dead_letter(delivery, {"error": "new"})
    ((sent,),) = aws.batches
    assert sent["QueueUrl"].endswith("/prismline-test-tasks-dlq")
    assert sent["MessageAttributes"]["source_queue"]["StringValue"] == "prismline-test-tasks"


def test_a_reason_with_characters_that_sqs_refuses_is_sent_without_them() -> None:
    aws = Recording()
    delivery = Delivery("prismline-test-split", "m", "h", "body", 1)
    make_transport(aws).dead_letter(delivery, {"error": "The card \x00 is \ud800 no text."})
    ((sent,),) = aws.batches
    assert sent["MessageAttributes"]["error"]["StringValue"] == "The card \ufffd is \ufffd no text."


@pytest.mark.parametrize(("queue", "last"), [("split", 5), ("alerts", 100), ("tasks-run-1", 5)])
def test_the_last_receive_is_the_one_after_which_sqs_would_move_the_message(queue: str, last: int) -> None:
    transport = make_transport(Recording())
    seen = [
        transport.is_last(Delivery(f"prismline-test-{queue}", "m", "h", "body", count)) for count in (last - 1, last)
    ]
    assert seen == [False, True]


@pytest.mark.parametrize("code", ["MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"])
def test_a_message_that_is_already_visible_is_not_hidden_again(code: str) -> None:
    """The emulators use the short name of the error code, AWS uses the long one."""

    class Back(Recording):
        def change_message_visibility(self, **arguments: Any) -> None:
            self.batches.append([arguments])
            raise ClientError({"Error": {"Code": code}}, "ChangeMessageVisibility")

    aws = Back()
    make_transport(aws).postpone(Delivery("prismline-test-chunks", "m", "h", "body", 1), 60)
    assert len(aws.batches) == 1, "there is one request and no retry"


class Noting(Refusing):
    """SQS that records the entries that it accepts."""

    def __init__(self) -> None:
        super().__init__(0)
        self.entries: list[dict[str, str]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        self.entries += Entries
        return super().send_message_batch(QueueUrl=QueueUrl, Entries=Entries)


@pytest.mark.parametrize(
    ("fair", "queue", "groups"),
    [(True, Queue.TASKS, {RUN_ID}), (True, "tasks-of-a-run", {None}), (False, Queue.TASKS, {None})],
)
def test_fair_queues_have_the_run_as_message_group_where_runs_share_a_queue(
    fair: bool, queue: str, groups: set[str | None]
) -> None:
    aws: Any = Noting()
    sender = Transport(environment="test", service="test", sqs=aws, events=aws, stepfunctions=aws, fair_queues=fair)
    sender.send(queue, events(3))
    assert {entry.get("MessageGroupId") for entry in aws.entries} == groups
