"""Event source mappings: batches, partial failures, windows, throttling and concurrency."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prismline_localstack.functions.environment import Outcome
from prismline_localstack.functions.function import THROTTLED
from prismline_localstack.functions.mapping import EventSourceMapping, Source
from prismline_localstack.state import make_client
from prismline_localstack.waiting import wait_until
from prismline_runtime import service_logger

pytestmark = pytest.mark.emulator


class Probe:
    """A queue, a mapping to a fake function, and the records with which the function was invoked."""

    def __init__(self, env: dict[str, str]) -> None:
        self.sqs: Any = make_client("sqs", env)
        name = f"{env['ENVIRONMENT']}-probe"
        self.url = self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]
        self._arn = attributes["QueueArn"]
        self.batches: list[list[str]] = []
        self.answer: Callable[[list[dict[str, Any]]], Outcome] = lambda _: Outcome(b"null")
        self._mapping: EventSourceMapping | None = None

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def start(self, *, concurrency: int = 1, **mapping: Any) -> None:
        described = {"UUID": "u", "EventSourceArn": self._arn, "FunctionArn": "a:a:a:a:a:a:probe", **mapping}
        source = Source.model_validate({"FunctionResponseTypes": ["ReportBatchItemFailures"], **described})
        logger = service_logger("probe")
        self._mapping = EventSourceMapping(source, self.sqs, self._invoke, concurrency, logger)

    def _invoke(self, event: bytes) -> Outcome:
        records = json.loads(event)["Records"]
        self.batches.append([record["body"] for record in records])
        return self.answer(records)

    def depth(self) -> tuple[int, int]:
        """The numbers of visible and of hidden messages."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def stop(self) -> None:
        if self._mapping is not None:
            self._mapping.stop()
            self._mapping.join(10)


@pytest.fixture
def probe(aws_env: dict[str, str]) -> Iterator[Probe]:
    probe = Probe(aws_env)
    yield probe
    probe.stop()


def failing(*bodies: str) -> Callable[[list[dict[str, Any]]], Outcome]:
    """A function whose answer says that the messages with these bodies failed."""

    def answer(records: list[dict[str, Any]]) -> Outcome:
        failed = [{"itemIdentifier": record["messageId"]} for record in records if record["body"] in bodies]
        return Outcome(json.dumps({"batchItemFailures": failed}).encode())

    return answer


def test_messages_that_succeeded_are_deleted_and_the_others_stay_hidden(probe: Probe) -> None:
    probe.answer = failing("b")
    probe.send("a", "b", "c")
    probe.start(BatchSize=10)
    assert wait_until(lambda: probe.depth() == (0, 1), 20)
    assert [body for batch in probe.batches for body in batch] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Outcome(None, "LookupError", "nothing there"), 2),
        (Outcome(b'{"batchItemFailures": [{"itemIdentifier": "unknown"}]}'), 2),
        (Outcome(b"not JSON"), 2),
        (Outcome(b'{"batchItemFailures": []}'), 0),
        (Outcome(b"null"), 0),
    ],
)
def test_the_answer_decides_which_messages_are_deleted(probe: Probe, outcome: Outcome, left: int) -> None:
    probe.answer = lambda _: outcome
    probe.send("a", "b")
    probe.start()
    assert wait_until(lambda: sum(map(len, probe.batches)) == 2 and probe.depth() == (0, left), 20)


def test_without_partial_answers_any_answer_means_that_all_messages_succeeded(probe: Probe) -> None:
    probe.answer = failing("a")
    probe.send("a")
    probe.start(FunctionResponseTypes=[])
    assert wait_until(lambda: probe.batches == [["a"]] and probe.depth() == (0, 0), 20)


def test_a_batch_is_never_larger_than_the_batch_size(probe: Probe) -> None:
    probe.send(*"abcde")
    probe.start(BatchSize=2)
    assert wait_until(lambda: sum(map(len, probe.batches)) == 5, 20)
    assert max(map(len, probe.batches)) == 2


def test_a_window_collects_what_comes_later(probe: Probe) -> None:
    probe.send("a")
    probe.start(BatchSize=2, MaximumBatchingWindowInSeconds=30)
    probe.send("b")
    assert wait_until(lambda: [sorted(batch) for batch in probe.batches] == [["a", "b"]], 20)


@pytest.mark.parametrize(("maximum", "expected"), [(2, 2), (None, 3)])
def test_there_are_never_more_invocations_than_the_mapping_allows(
    probe: Probe, maximum: int | None, expected: int
) -> None:
    go_on = threading.Event()

    def wait(_: list[dict[str, Any]]) -> Outcome:
        go_on.wait(20)
        return Outcome(b"null")

    probe.answer = wait
    probe.send(*"abcde")
    probe.start(concurrency=3, BatchSize=1, **({"ScalingConfig": {"MaximumConcurrency": maximum}} if maximum else {}))
    assert wait_until(lambda: len(probe.batches) == expected, 20)
    assert probe.depth() == (5 - expected, expected), "no other message was received"
    go_on.set()
    assert wait_until(lambda: probe.depth() == (0, 0), 20)


def test_a_batch_waits_for_a_function_that_has_no_concurrency_left(probe: Probe) -> None:
    outcomes = iter([THROTTLED, Outcome(b"null")])
    probe.answer = lambda _: next(outcomes)
    probe.send("a")
    probe.start()
    assert wait_until(lambda: probe.depth() == (0, 0), 20)
    assert probe.batches == [["a"], ["a"]]


def test_a_message_of_a_throttled_function_is_received_again(probe: Probe) -> None:
    received: list[int] = []

    def throttled(records: list[dict[str, Any]]) -> Outcome:
        received.append(int(records[0]["attributes"]["ApproximateReceiveCount"]))
        return THROTTLED if received[-1] == 1 else Outcome(b"null")

    probe.answer = throttled
    probe.sqs.set_queue_attributes(QueueUrl=probe.url, Attributes={"VisibilityTimeout": "2"})
    probe.send("a")
    probe.start()
    assert wait_until(lambda: probe.depth() == (0, 0) and received[-1:] == [2], 20)
    assert received.count(1) >= 2, "the mapping tried the batch until its messages were visible again"
