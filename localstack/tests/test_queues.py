"""Requests for sweeps, and the depths of queues as metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from prismline_localstack.queues import depths, request_sweep
from prismline_localstack.state import make_client
from prismline_localstack.testing import metric_values
from prismline_localstack.waiting import wait_until

pytestmark = pytest.mark.emulator


def test_a_sweep_is_requested_unless_a_request_is_already_in_the_queue(aws_env: dict[str, str]) -> None:
    sqs, environment = make_client("sqs", aws_env), aws_env["ENVIRONMENT"]
    url = sqs.create_queue(QueueName=f"prismline-{environment}-sweeps")["QueueUrl"]
    for _ in range(3):
        request_sweep(sqs, environment, depths(sqs, environment))
    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    request_sweep(sqs, environment, depths(sqs, environment))
    assert depths(sqs, environment)[f"prismline-{environment}-sweeps"] == (1, 1), (
        "a sweep in progress does not prevent the next request"
    )


def test_without_a_sweeper_nothing_is_sent(aws_env: dict[str, str]) -> None:
    sqs, environment = make_client("sqs", aws_env), aws_env["ENVIRONMENT"]
    sqs.create_queue(QueueName=f"prismline-{environment}-echo")
    request_sweep(sqs, environment, depths(sqs, environment))
    assert depths(sqs, environment) == {f"prismline-{environment}-echo": (0, 0)}


def test_depths_are_published_to_any_emulator_until_sigterm(aws_env: dict[str, str]) -> None:
    sqs, cloudwatch = make_client("sqs", aws_env), make_client("cloudwatch", aws_env)
    name = f"prismline-{aws_env['ENVIRONMENT']}-echo"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)

    secret = {"PRISMLINE_EMULATOR_SECRET": aws_env["AWS_SECRET_ACCESS_KEY"]}
    child = subprocess.Popen([sys.executable, "-m", "prismline_localstack.metrics"], env=os.environ | aws_env | secret)
    try:
        assert wait_until(lambda: set(metric_values(cloudwatch, name, "Prismline/Queues", name)) == {2.0}, 20)
    finally:
        child.terminate()
    assert child.wait(10) == 0


def test_metrics_without_an_emulator_say_which_variable_is_missing() -> None:
    env = {name: value for name, value in os.environ.items() if name not in {"AWS_ENDPOINT_URL", "LOCALSTACK_HOST"}}
    command = [sys.executable, "-m", "prismline_localstack.metrics"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "AWS_ENDPOINT_URL" in answer.stderr
