"""The consumer and the router on real queues of the emulator."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from prismline_contracts.commands import ChunkProcess, dead_letter_queue_name, queue_name
from prismline_contracts.envelope import Envelope
from prismline_runtime import (
    Message,
    PermanentError,
    TransientError,
    Transport,
    clients,
    consumer,
    queue_handler,
    service_logger,
)
from prismline_runtime.consumer import Consumer, Polled, polled_in_turns, unfinished, work_of
from prismline_runtime.delivery import Delivery
from prismline_runtime.settings import ConsumerSettings
from prismline_runtime.transport import TOKEN_GONE_CODES

#: Far longer, in seconds, than any test. A hidden message that becomes visible before was released.
LONG = 600
RUN_ID = "7b0b3f0e-2f5e-5d0c-8c39-9a1f3c1f7a11"

pytestmark = pytest.mark.emulator
logger = service_logger("test")


@dataclass
class Queue:
    """A queue, its dead-letter queue and a client."""

    name: str
    sqs: Any
    environment: str

    def send(self, *bodies: str) -> None:
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        assert not self.sqs.send_message_batch(QueueUrl=self.url(), Entries=entries).get("Failed")

    def url(self, name: str = "") -> str:
        return self.sqs.get_queue_url(QueueName=name or self.name)["QueueUrl"]

    def receive(self, seconds: int, name: str = "", visibility: int = LONG) -> list[dict[str, Any]]:
        """The messages that arrive within `seconds`."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url(name),
            WaitTimeSeconds=seconds,
            MaxNumberOfMessages=10,
            VisibilityTimeout=visibility,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return answer.get("Messages", [])

    def depth(self) -> tuple[int, int]:
        """Numbers of messages: visible, in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url(), AttributeNames=names)["Attributes"]
        return int(attributes[names[0]]), int(attributes[names[1]])

    def wait_for_depth(self, depth: tuple[int, int], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while self.depth() != depth:
            assert time.monotonic() < deadline, f"the queue's depth is {self.depth()}, not {depth}"
            time.sleep(0.05)


def make_queue(aws_env: dict[str, str], short_name: str) -> Queue:
    sqs: Any = clients.sqs()
    name = queue_name(aws_env["ENVIRONMENT"], short_name)
    sqs.create_queue(QueueName=dead_letter_queue_name(name))
    sqs.create_queue(QueueName=name)
    return Queue(name, sqs, aws_env["ENVIRONMENT"])


@pytest.fixture
def chunks(aws_env: dict[str, str]) -> Queue:
    return make_queue(aws_env, "chunks")


@dataclass
class Running:
    """A consumer that runs in a thread."""

    consumer: Consumer
    thread: threading.Thread

    def wait_for_end(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()


StartConsumer = Callable[..., Running]


@pytest.fixture
def start(aws_env: dict[str, str]) -> Iterator[StartConsumer]:
    """Starts consumers in threads, and stops them at the end of the test."""
    running: list[Running] = []

    def start_one(
        name: str,
        handler: Callable[[Any, Any], Any],
        *,
        batch_size: int = 10,
        visibility: int = LONG,
        turn: threading.Lock | None = None,
        more_queues: Callable[[], dict[str, int]] | None = None,
    ) -> Running:
        consumer = Consumer(
            sqs=clients.sqs(),
            polled=Polled(name, batch_size, more_queues),
            handler=handler,
            settings=ConsumerSettings(wait_seconds=1, visibility_seconds=visibility),
            logger=logger,
            turn=turn or threading.Lock(),
        )
        started = Running(consumer, threading.Thread(target=consumer.run))
        started.thread.start()
        running.append(started)
        return started

    yield start_one
    for started in running:
        started.consumer.stop()
    for started in running:
        started.wait_for_end()


class Recorder:
    """A handler that records the bodies that it gets, and fails each of `fail` once."""

    def __init__(self, fail: set[str] | None = None) -> None:
        self.fail = fail or set()
        self.bodies: queue.Queue[str] = queue.Queue()

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            self.bodies.put(record["body"])
            if record["body"] in self.fail:
                self.fail.remove(record["body"])
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    def next(self, seconds: float = 10) -> str:
        return self.bodies.get(timeout=seconds)


class Blocking:
    """A handler that signals when it was entered, and waits until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, event: dict[str, Any], context: Any) -> None:
        self.entered.release()
        assert self.go.wait(60)


def test_a_processed_message_is_deleted(chunks: Queue, start: StartConsumer) -> None:
    handler = Recorder()
    start(chunks.name, handler)
    chunks.send("one", "two")
    assert {handler.next(), handler.next()} == {"one", "two"}
    chunks.wait_for_depth((0, 0))


def test_the_handler_gets_the_event_that_lambda_would_pass(chunks: Queue, start: StartConsumer) -> None:
    seen: queue.Queue[tuple[dict[str, Any], int]] = queue.Queue()
    start(chunks.name, lambda event, context: seen.put((event, context.get_remaining_time_in_millis())))
    attribute = {"trace": {"DataType": "String", "StringValue": "abc"}}
    sent = chunks.sqs.send_message(QueueUrl=chunks.url(), MessageBody="{}", MessageAttributes=attribute)
    event, remaining = seen.get(timeout=10)
    [record] = event["Records"]
    assert record["messageId"] == sent["MessageId"]
    assert record["body"] == "{}"
    assert record["md5OfBody"] == sent["MD5OfMessageBody"]
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["messageAttributes"]["trace"]["stringValue"] == "abc"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == f"arn:aws:sqs:us-east-1:000000000000:{chunks.name}"
    assert record["awsRegion"] == "us-east-1"
    assert 890_000 < remaining <= 900_000


def test_only_the_failed_part_of_a_batch_comes_back(chunks: Queue, start: StartConsumer) -> None:
    handler = Recorder(fail={"two"})
    chunks.send("one", "two", "three")
    start(chunks.name, handler)
    assert sorted(handler.next() for _ in range(3)) == ["one", "three", "two"]
    chunks.wait_for_depth((0, 1))
    assert handler.bodies.empty()


def test_a_failed_message_is_delivered_again_after_its_visibility(chunks: Queue, start: StartConsumer) -> None:
    handler = Recorder(fail={"one"})
    chunks.send("one")
    start(chunks.name, handler, visibility=2)
    assert [handler.next(), handler.next()] == ["one", "one"]
    chunks.wait_for_depth((0, 0))


def test_a_handler_that_raises_fails_its_whole_batch_and_the_consumer_continues(
    chunks: Queue, start: StartConsumer
) -> None:
    recorder = Recorder()

    def handler(event: dict[str, Any], context: Any) -> None:
        recorder(event, context)
        if event["Records"][0]["body"] == "bad":
            raise RuntimeError("no")

    start(chunks.name, handler, batch_size=1)
    chunks.send("bad")
    assert recorder.next() == "bad"
    chunks.send("good")
    assert recorder.next() == "good"
    chunks.wait_for_depth((0, 1))


def test_a_message_stays_hidden_while_it_is_processed_for_long(chunks: Queue, start: StartConsumer) -> None:
    visibility = 3
    handler = Blocking()
    start(chunks.name, handler, visibility=visibility)
    chunks.send("long")
    assert handler.entered.acquire(timeout=10)
    assert chunks.receive(2 * visibility + 1) == []
    handler.go.set()
    chunks.wait_for_depth((0, 0))
    assert not handler.entered.acquire(blocking=False)


def test_a_released_message_is_visible_at_once(chunks: Queue, start: StartConsumer) -> None:
    handler = Blocking()
    consumer = start(chunks.name, handler).consumer
    chunks.send("interrupted")
    assert handler.entered.acquire(timeout=10)
    assert chunks.depth() == (0, 1)
    consumer.stop()
    consumer.release()
    [message] = chunks.receive(1)
    assert message["Body"] == "interrupted"
    handler.go.set()


def test_a_handler_that_finishes_after_the_release_does_not_delete_the_message(
    chunks: Queue, start: StartConsumer
) -> None:
    handler = Blocking()
    running = start(chunks.name, handler)
    chunks.send("interrupted")
    assert handler.entered.acquire(timeout=10)
    running.consumer.stop()
    running.consumer.release()
    handler.go.set()
    running.wait_for_end()
    assert len(chunks.receive(1)) == 1


def test_queues_of_one_process_take_turns(aws_env: dict[str, str], start: StartConsumer) -> None:
    fast, slow = make_queue(aws_env, "chunks"), make_queue(aws_env, "refits")
    turn, handler = threading.Lock(), Blocking()
    for each in (fast, slow):
        each.send("work")
        start(each.name, handler, turn=turn)
    assert handler.entered.acquire(timeout=10)
    fast.wait_for_depth((0, 1))
    slow.wait_for_depth((0, 1))
    assert not handler.entered.acquire(timeout=1)
    handler.go.set()
    assert handler.entered.acquire(timeout=10)


def test_a_message_that_waits_for_its_turn_is_given_back_on_stop(aws_env: dict[str, str], start: StartConsumer) -> None:
    waiting = make_queue(aws_env, "chunks")
    turn, recorder = threading.Lock(), Recorder()
    with turn:
        consumer = start(waiting.name, recorder, turn=turn).consumer
        waiting.send("work")
        waiting.wait_for_depth((0, 1))
        consumer.stop()
    waiting.wait_for_depth((1, 0))
    assert recorder.bodies.empty()


def test_queues_come_and_go_while_a_consumer_runs(
    aws_env: dict[str, str], start: StartConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "MORE_QUEUES_SECONDS", 0.1)
    shared, more, got = make_queue(aws_env, "tasks"), dict[str, int](), queue.Queue[tuple[str, str]]()

    def handle(event: Any, context: Any) -> None:
        for record in event["Records"]:
            got.put((record["body"], Delivery.of(SQSRecord(record), lambda: 0).queue))

    start(shared.name, handle, more_queues=lambda: more)
    shared.send("1")
    assert got.get(timeout=20) == ("1", shared.name)
    own = make_queue(aws_env, "tasks-run-1")
    own.send("2")
    more[own.name] = 9
    assert got.get(timeout=20) == ("2", own.name)
    own.wait_for_depth((0, 0))
    own.sqs.delete_queue(QueueUrl=own.url())
    shared.send("3")
    assert got.get(timeout=20) == ("3", shared.name), "the consumer continues after a queue was deleted"
    more.clear()
    shared.send("4")
    assert got.get(timeout=20) == ("4", shared.name)
    shared.wait_for_depth((0, 0))


def test_a_small_queue_does_not_wait_behind_a_large_one(aws_env: dict[str, str], start: StartConsumer) -> None:
    shared, large, got = make_queue(aws_env, "tasks"), make_queue(aws_env, "tasks-large"), queue.Queue[str]()
    for _ in range(5):
        large.send(*["large"] * 10)
    shared.send("small", "small", "small")

    def handle(event: Any, context: Any) -> None:
        got.put(event["Records"][0]["body"])

    start(shared.name, handle, batch_size=1, more_queues=lambda: {large.name: 5})
    order = [got.get(timeout=20) for _ in range(8)]
    assert order.count("small") == 3


def test_a_small_message_does_not_wait_for_as_many_large_ones(aws_env: dict[str, str], start: StartConsumer) -> None:
    shared, large, got = make_queue(aws_env, "tasks"), make_queue(aws_env, "tasks-large"), queue.Queue[int]()

    def message(n_tasks: int) -> str:
        return json.dumps({"data": {"task_ids": [str(n) for n in range(n_tasks)]}})

    large.send(*[message(100)] * 10)
    for _ in range(2):
        shared.send(*[message(1)] * 10)

    def handle(event: Any, context: Any) -> None:
        got.put(len(json.loads(event["Records"][0]["body"])["data"]["task_ids"]))

    start(shared.name, handle, batch_size=1, more_queues=lambda: {large.name: 5})
    order = [got.get(timeout=20) for _ in range(23)]
    assert order.count(1) == 20, "a message with 100 tasks counts as much as 100 messages with one"


def test_a_permanent_queue_does_not_wait_until_work_of_the_others_is_done(
    aws_env: dict[str, str], start: StartConsumer
) -> None:
    shared, large, small_came = make_queue(aws_env, "tasks"), make_queue(aws_env, "tasks-large"), threading.Event()
    large_began = threading.Semaphore(0)

    def handle(event: Any, context: Any) -> None:
        if event["Records"][0]["body"] == "small":
            small_came.set()
        else:
            large_began.release()
            assert small_came.wait(60)

    large.send(*["large"] * 9)
    for of_turn in polled_in_turns([shared.name], batch_size=1, parallel=3, more_queues=lambda: {large.name: 5}):
        turn = threading.Lock()
        for polled in of_turn:
            start(polled.queue_name, handle, batch_size=1, turn=turn, more_queues=polled.more_queues)
    for _ in range(2):
        assert large_began.acquire(timeout=20)
    shared.send("small")
    assert small_came.wait(20)
    large.wait_for_depth((0, 0))


@pytest.mark.parametrize(
    ("body", "work"),
    [("no JSON", 1), ("[]", 1), ('{"data": {"task_ids": null}}', 1), ('{"data": {"task_ids": ["a", "b"]}}', 2)],
)
def test_the_work_of_any_message_can_be_counted(body: str, work: int) -> None:
    assert work_of(body) == work


def test_the_consumer_continues_if_the_other_queues_cannot_be_listed(chunks: Queue, start: StartConsumer) -> None:
    got = queue.Queue[str]()

    def fail() -> dict[str, int]:
        raise TransientError("the ledger does not answer")

    start(chunks.name, lambda event, context: got.put(event["Records"][0]["body"]), more_queues=fail)
    chunks.send("hello")
    assert got.get(timeout=20) == "hello"


def test_a_consumer_waits_for_a_queue_that_does_not_exist_yet(aws_env: dict[str, str], start: StartConsumer) -> None:
    recorder = Recorder()
    start(queue_name(aws_env["ENVIRONMENT"], "chunks"), recorder)
    make_queue(aws_env, "chunks").send("early")
    assert recorder.next() == "early"


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_answer_without_failures_is_success(answer: Any) -> None:
    assert unfinished(answer, {"a", "b"}) == set()


def test_an_answer_names_the_failed_messages() -> None:
    assert unfinished({"batchItemFailures": [{"itemIdentifier": "b"}]}, {"a", "b"}) == {"b"}


@pytest.mark.parametrize(
    "answer",
    [
        {"batchItemFailures": [{"itemIdentifier": "unknown"}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"itemIdentifier": []}]},
        {"batchItemFailures": [{"id": "a"}]},
        {"batchItemFailures": ["a"]},
        {"batchItemFailures": 1},
        ["a"],
        "a",
    ],
)
def test_an_invalid_answer_fails_the_whole_batch(answer: Any) -> None:
    assert unfinished(answer, {"a", "b"}) == {"a", "b"}


def chunk_message(number: int) -> Envelope:
    command = ChunkProcess(
        run_id=RUN_ID,
        job_id="job",
        survey="grs",
        workload="spectra",
        chunk_id=f"chunk-{number:07d}",
        n_items=1,
        bucket="bucket",
        chunk_key=f"chunks/{RUN_ID}/chunk-{number:07d}.npz",
        params={},
        attempt=1,
    )
    return Envelope.wrap(command, source="prismline/test/test", traceparent=None, key=(command.chunk_id,))


def make_transport(environment: str) -> Transport:
    return Transport(
        environment=environment,
        service="test",
        sqs=clients.sqs(),
        events=clients.events(),
        stepfunctions=clients.stepfunctions(),
    )


def start_routes(chunks: Queue, start: StartConsumer, function: Callable[[ChunkProcess, Message], None]) -> None:
    start(chunks.name, queue_handler(make_transport(chunks.environment), logger, {ChunkProcess: function}))


def test_a_permanent_error_moves_the_message_unchanged_to_the_dead_letter_queue(
    chunks: Queue, start: StartConsumer
) -> None:
    def function(command: ChunkProcess, message: Message) -> None:
        raise PermanentError("The chunk is not an npz file.")

    sent = chunk_message(0)
    make_transport(chunks.environment).send("chunks", [sent])
    start_routes(chunks, start, function)
    [dead] = chunks.receive(10, dead_letter_queue_name(chunks.name))
    assert dead["Body"] == sent.to_json()
    attributes = {name: value["StringValue"] for name, value in dead["MessageAttributes"].items()}
    assert attributes == {"error": "The chunk is not an npz file.", "source_queue": chunks.name}
    chunks.wait_for_depth((0, 0))


def test_after_a_transient_error_the_message_is_redelivered_at_the_requested_time(
    chunks: Queue, start: StartConsumer
) -> None:
    seen: queue.Queue[tuple[int, float]] = queue.Queue()

    def function(command: ChunkProcess, message: Message) -> None:
        seen.put((message.delivery.receive_count, time.monotonic()))
        if message.delivery.receive_count == 1:
            raise TransientError("Not yet.", retry_after=2)

    make_transport(chunks.environment).send("chunks", [chunk_message(0)])
    start_routes(chunks, start, function)
    (first, failed_at), (second, retried_at) = seen.get(timeout=10), seen.get(timeout=10)
    assert (first, second) == (1, 2)
    assert 1.5 < retried_at - failed_at < 6
    chunks.wait_for_depth((0, 0))


def test_commands_are_sent_in_batches_and_arrive_once_each(chunks: Queue, start: StartConsumer) -> None:
    seen: queue.Queue[str] = queue.Queue()
    start_routes(chunks, start, lambda command, message: seen.put(command.chunk_id))
    make_transport(chunks.environment).send("chunks", (chunk_message(n) for n in range(23)))
    assert sorted(seen.get(timeout=10) for _ in range(23)) == [f"chunk-{n:07d}" for n in range(23)]
    chunks.wait_for_depth((0, 0))
    assert seen.empty()


def test_postponing_a_message_that_another_consumer_has_now_is_not_an_error(chunks: Queue) -> None:
    chunks.send("{}")
    [message] = chunks.receive(5)
    delivery = Delivery(chunks.name, message["MessageId"], message["ReceiptHandle"], message["Body"], 1)
    transport = make_transport(chunks.environment)
    chunks.sqs.delete_message(QueueUrl=chunks.url(), ReceiptHandle=message["ReceiptHandle"])
    transport.postpone(delivery, 5)
    assert chunks.sqs.receive_message(QueueUrl=chunks.url()).get("Messages", []) == []


def test_published_events_reach_a_queue_as_the_envelope(chunks: Queue) -> None:
    events: Any = clients.events()
    bus = f"prismline-{chunks.environment}"
    events.create_event_bus(Name=bus)
    pattern = json.dumps({"detail-type": [ChunkProcess.TYPE]})
    events.put_rule(Name=bus, EventBusName=bus, EventPattern=pattern)
    arn = f"arn:aws:sqs:us-east-1:000000000000:{chunks.name}"
    events.put_targets(Rule=bus, EventBusName=bus, Targets=[{"Id": "1", "Arn": arn, "InputPath": "$.detail"}])
    sent = chunk_message(3)
    make_transport(chunks.environment).publish(sent)
    [message] = chunks.receive(10)
    assert Envelope.model_validate_json(message["Body"]) == sent


def test_a_state_machine_that_no_longer_waits_is_not_an_error(aws_env: dict[str, str]) -> None:
    refused: list[str] = []
    stepfunctions = clients.stepfunctions()
    stepfunctions.meta.events.register(
        "after-call.stepfunctions", lambda parsed, **_: refused.append(parsed["Error"]["Code"])
    )
    transport = Transport(
        environment=aws_env["ENVIRONMENT"],
        service="test",
        sqs=clients.sqs(),
        events=clients.events(),
        stepfunctions=stepfunctions,
    )
    transport.answer("no such token", {"done": True})
    transport.refuse("no such token", "Error", "cause")
    assert len(refused) == 2
    assert set(refused) <= TOKEN_GONE_CODES
