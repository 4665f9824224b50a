"""When the consumer touches the heartbeat file, on real queues of the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_contracts.commands import queue_name
from prismline_localstack.waiting import wait_until
from prismline_runtime import clients, consumer, service_logger
from prismline_runtime.consumer import Consumer, Polled
from prismline_runtime.settings import ConsumerSettings

#: Longest wait of these tests for any event, in seconds.
PATIENCE = 30.0

pytestmark = pytest.mark.emulator


@pytest.fixture
def process(aws_env: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`prismline-runtime` on the queue `chunks`, which does not exist yet, with a heartbeat in `tmp_path`."""
    command = [sys.executable, "-m", "prismline_runtime", "--queue", "chunks", "prismline_runtime.routing:Message"]
    environment = os.environ | {"PRISMLINE_HEARTBEAT_FILE": str(tmp_path / "heartbeat"), "PRISMLINE_WAIT_SECONDS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        yield run
        run.terminate()


def test_the_heartbeat_begins_when_the_queue_answers_and_continues(
    process: subprocess.Popen[str], aws_env: dict[str, str], tmp_path: Path
) -> None:
    heartbeat = tmp_path / "heartbeat"
    assert process.stdout is not None
    while "queue_not_ready" not in process.stdout.readline():
        assert process.poll() is None
    assert not heartbeat.exists()
    clients.sqs().create_queue(QueueName=queue_name(aws_env["ENVIRONMENT"], "chunks"))
    assert wait_until(heartbeat.exists, PATIENCE)
    first = heartbeat.stat().st_mtime
    assert wait_until(lambda: heartbeat.stat().st_mtime > first, PATIENCE)


def test_a_consumer_is_unhealthy_while_an_invocation_takes_too_long(
    aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "HEALTHY_MARGIN_SECONDS", 0.5)
    name = queue_name(aws_env["ENVIRONMENT"], "chunks")
    url = clients.sqs().create_queue(QueueName=name)["QueueUrl"]
    finish = threading.Event()

    def handler(event: dict[str, Any], context: Any) -> None:
        finish.wait(PATIENCE)

    watched = Consumer(
        sqs=clients.sqs(),
        polled=Polled(name, batch_size=1),
        handler=handler,
        settings=ConsumerSettings(wait_seconds=1, invocation_seconds=1),
        logger=service_logger("test"),
        turn=threading.Lock(),
    )
    assert not watched.healthy
    thread = threading.Thread(target=watched.run)
    thread.start()
    try:
        assert wait_until(lambda: watched.healthy, PATIENCE)
        clients.sqs().send_message(QueueUrl=url, MessageBody="{}")
        assert wait_until(lambda: not watched.healthy, PATIENCE)
        finish.set()
        assert wait_until(lambda: watched.healthy, PATIENCE)
    finally:
        finish.set()
        watched.stop()
        thread.join()
