"""The chunk of a window from its message to its caption, with real queues, ledger and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from model_server import PNG, ModelServer, Reply, model_server

from prismline_contracts.captions import Caption, CaptionWindow
from prismline_contracts.commands import ChunkProcess
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import ChunkItem, ChunkStatus
from prismline_contracts.objects import chunk_key
from prismline_contracts.resources import GPU, resource_tags
from prismline_ledger import Ledger, NewChunk
from prismline_ledger.testing import Clock, Context, lambda_event_of, split_run
from prismline_localstack.testing import create_environment
from prismline_runtime import Instances
from prismline_worker import model_endpoint
from prismline_worker.dependencies import Dependencies
from prismline_worker.handler import build_handler

pytestmark = pytest.mark.emulator

RUN_ID, CHUNK_ID = "run-1", "chunk-0000003"
SEGMENT_ID = f"{RUN_ID}/{CHUNK_ID}"


@dataclass
class CaptionsWorld:
    """A worker whose run has one window, and everything that it touches."""

    environment: str
    bucket: str
    ledger: Ledger
    handler: Callable[[dict[str, Any], Any], Any]
    server: ModelServer

    def rebuild(self, monkeypatch: pytest.MonkeyPatch, **settings: str | None) -> None:
        """Start the worker again with other settings."""
        for name, value in settings.items():
            if value is None:
                monkeypatch.delenv(name)
            else:
                monkeypatch.setenv(name, value)
        self.handler = build_handler(Dependencies.from_environment())

    def set_gpu(self, *, up: bool) -> None:
        """Start an instance of the GPU, or terminate all."""
        ec2: Any = boto3.client("ec2")
        tags = [{"Key": key, "Value": value} for key, value in resource_tags(self.environment, GPU).items()]
        if up:
            of_instance = [{"ResourceType": "instance", "Tags": tags}]
            ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=of_instance)
            return
        running = Instances(ec2, self.environment).running(GPU)
        ec2.terminate_instances(InstanceIds=[instance["InstanceId"] for instance in running])

    def segment(self) -> ChunkItem:
        return self.ledger.chunk(RUN_ID, CHUNK_ID)

    def deliver(self, workload: str = "captions") -> list[str]:
        """Deliver the window's message. Return the ids of messages that SQS has to deliver again."""
        command = ChunkProcess(
            run_id=RUN_ID,
            job_id="j",
            survey="session-1",
            workload=workload,
            chunk_id=CHUNK_ID,
            n_items=1,
            bucket=self.bucket,
            chunk_key=chunk_key(RUN_ID, CHUNK_ID, "json"),
            params={"prompt": "What is it?"},
        )
        body = Envelope.wrap(command, source="test", traceparent=None).to_json()
        answer = self.handler(lambda_event_of(body, self.environment, "chunks"), Context())
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def dead_letters(self) -> list[dict[str, str]]:
        """The attributes of the messages in the dead-letter queue."""
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName=f"prismline-{self.environment}-chunks-dlq")["QueueUrl"]
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        return [
            {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
            for message in messages.get("Messages", [])
        ]

    def caption(self) -> Caption:
        key = self.segment().output_key
        assert key is not None
        return Caption.model_validate_json(boto3.client("s3").get_object(Bucket=self.bucket, Key=key)["Body"].read())


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[CaptionsWorld]:
    environment = aws_env["ENVIRONMENT"]
    s3, bucket = boto3.client("s3"), create_environment(environment, monkeypatch, ("chunks", "chunks-dlq"))
    window = CaptionWindow(window_index=3, frame_count=2, frames=["f/0.png", "f/1.png"], session_id="s-1", user_id="u")
    s3.put_object(Bucket=bucket, Key=chunk_key(RUN_ID, CHUNK_ID, "json"), Body=window.model_dump_json().encode())
    for key in window.frames:
        s3.put_object(Bucket=bucket, Key=key, Body=PNG + key.encode())
    with model_server() as server:
        monkeypatch.setenv("CAPTION_BASE_URL", server.url)
        monkeypatch.setenv("CAPTION_TRIES", "1")
        deps = Dependencies.from_environment()
        new = NewChunk(CHUNK_ID, chunk_key(RUN_ID, CHUNK_ID, "json"), 1)
        split_run(deps.ledger, RUN_ID, [new], survey="s-1", workload="captions")
        yield CaptionsWorld(environment, bucket, deps.ledger, build_handler(deps), server)


@pytest.mark.parametrize("state", ["of another environment", "of another resource", "stopped", "none"])
def test_ingest_window_gpu_unavailable_raises(
    world: CaptionsWorld, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    ec2: Any = boto3.client("ec2")
    if state != "none":
        tags = resource_tags(
            "other" if "environment" in state else world.environment, "disk" if "resource" in state else GPU
        )
        of_instance = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]
        made = ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=of_instance)
        if state == "stopped":
            ec2.stop_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])
    assert world.deliver() == [], "the message is not tried again on its own queue"
    assert [letter["waits_for"] for letter in world.dead_letters()] == ["gpu"]
    segment = world.segment()
    assert (segment.state, segment.attempts) == (ChunkStatus.PENDING, 0)
    assert "No GPU is provisioned" in (segment.last_error or "")
    (logged,) = [record.__dict__ for record in caplog.records if record.message == "gpu_unavailable_raised"]
    assert logged["segment_id"] == SEGMENT_ID
    assert not world.server.requests


def test_ingest_window_encoder_exception_propagates(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    world.server.replies.append(Reply(500))
    assert world.deliver() == [], "the message is not tried again on its own queue"
    assert [letter["waits_for"] for letter in world.dead_letters()] == ["gpu"]
    segment = world.segment()
    assert segment.state is ChunkStatus.PENDING
    assert segment.last_error == "The caption model answered 500."
    assert segment.output_key is None
    assert (segment.attempts, segment.interruptions) == (1, 1), "the attempt does not count against the window"


@pytest.mark.parametrize("status", [500, 503])
def test_no_attempt_begins_while_the_model_does_not_answer(world: CaptionsWorld, status: int) -> None:
    """The instance runs, but the model on it does not."""
    world.set_gpu(up=True)
    world.server.models = Reply(status)
    for _ in range(7):
        assert world.deliver() == []
    assert [letter["waits_for"] for letter in world.dead_letters()] == ["gpu"] * 7
    segment = world.segment()
    assert (segment.state, segment.attempts) == (ChunkStatus.PENDING, 0)
    assert segment.last_error == f"The caption model answered {status}."
    assert not world.server.requests
    assert world.server.looks <= 2, "a model that is down is not probed for each window"


def test_a_model_that_answers_again_is_noticed_after_a_few_seconds(
    world: CaptionsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(model_endpoint, "time", clock)
    world.set_gpu(up=True)
    world.server.models = Reply(503)
    world.deliver()
    world.server.models = ModelServer("").models
    clock.advance(5.0)
    assert world.deliver() == []
    assert world.segment().state is ChunkStatus.COMPLETED


def test_a_model_that_is_gone_fails_no_window(world: CaptionsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_gpu(up=True)
    with model_server() as gone:
        pass
    world.rebuild(monkeypatch, CAPTION_BASE_URL=gone.url)
    assert world.deliver() == []
    assert [letter["waits_for"] for letter in world.dead_letters()] == ["gpu"]
    assert (world.segment().state, world.segment().attempts) == (ChunkStatus.PENDING, 0)


def test_a_window_that_has_ended_does_not_wait_for_a_gpu(world: CaptionsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_gpu(up=True)
    world.deliver()
    world.set_gpu(up=False)
    world.rebuild(monkeypatch)
    assert world.deliver() == []
    assert world.dead_letters() == []
    assert world.segment().state is ChunkStatus.COMPLETED


def test_a_window_of_a_stopped_run_does_not_wait_for_a_gpu(world: CaptionsWorld) -> None:
    world.ledger.stop_run(RUN_ID, "cancelled")
    assert world.deliver() == []
    assert world.dead_letters() == []
    assert world.segment().attempts == 0


def test_the_message_of_an_overloaded_model_goes_back_to_its_queue(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    world.server.replies.append(Reply(429, headers={"Retry-After": "7"}))
    assert world.deliver() == ["m"]
    segment = world.segment()
    assert (segment.state, segment.attempts, segment.interruptions) == (ChunkStatus.PENDING, 1, 1)
    assert world.dead_letters() == []


def test_an_instance_that_has_come_up_is_noticed_after_a_few_seconds(
    world: CaptionsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(model_endpoint, "time", clock)
    world.deliver()
    world.set_gpu(up=True)
    clock.advance(5.0)
    assert world.deliver() == []
    assert world.segment().state is ChunkStatus.COMPLETED


def test_a_window_is_completed_with_the_caption_of_its_frames(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    assert world.deliver() == []
    segment, caption = world.segment(), world.caption()
    assert (segment.state, segment.summary) == (ChunkStatus.COMPLETED, "A cat sits on a wall.")
    assert segment.output_key == f"captions/session=s-1/run={RUN_ID}/{CHUNK_ID}.json"
    assert (caption.caption, caption.model) == ("A cat sits on a wall.", "vision-1")
    assert (caption.session_id, caption.window_index, caption.frame_count) == ("s-1", 3, 2)
    ((document, _),) = world.server.requests
    assert len(document["messages"][0]["content"]) == 3, "the prompt and two frames"
    assert world.ledger.run(RUN_ID).drained_at is not None


def test_the_first_caption_of_a_window_counts(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    world.deliver()
    first = world.caption()
    world.server.replies.append(Reply())
    assert world.deliver() == []
    assert world.caption() == first
    assert len(world.server.requests) == 1, "a completed window is not sent to the model again"


@pytest.mark.parametrize("content", ["", "  ", None])
def test_a_window_without_a_real_caption_is_never_completed(world: CaptionsWorld, content: str | None) -> None:
    world.set_gpu(up=True)
    world.server.replies.append(Reply(200, {"model": "m", "choices": [{"message": {"content": content}}]}))
    assert world.deliver() == ["m"]
    segment = world.segment()
    assert (segment.state, segment.attempts, segment.interruptions) == (ChunkStatus.PENDING, 1, 0)


def test_a_damaged_caption_file_fails_the_window_and_the_error_does_not_quote_it(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    key = f"captions/session=s-1/run={RUN_ID}/{CHUNK_ID}.json"
    boto3.client("s3").put_object(Bucket=world.bucket, Key=key, Body=b'{"caption": "secret"')
    assert world.deliver() == []
    segment = world.segment()
    assert segment.state is ChunkStatus.FAILED
    assert f"The caption {key} is invalid" in (segment.error or "")
    assert "secret" not in (segment.error or "")


def test_frames_that_are_missing_fail_the_window_with_the_reason(world: CaptionsWorld) -> None:
    world.set_gpu(up=True)
    boto3.client("s3").delete_object(Bucket=world.bucket, Key="f/1.png")
    assert world.deliver() == []
    segment = world.segment()
    assert segment.state is ChunkStatus.FAILED
    assert "f/1.png: it does not exist" in (segment.error or "")


def test_a_workload_that_the_worker_does_not_know_fails_the_chunk(world: CaptionsWorld) -> None:
    assert world.deliver(workload="paint") == []
    assert world.segment().error == "There is no workload paint; choose one of captions, spectra."
