"""The beat of the sweeper."""

from __future__ import annotations

import json

import pytest

from prismline_localstack.queues import depths, request_sweep
from prismline_localstack.state import make_client

pytestmark = pytest.mark.emulator


def test_a_sweep_is_asked_for_unless_one_waits_already(aws_env: dict[str, str]) -> None:
    sqs, environment = make_client("sqs", aws_env), aws_env["ENVIRONMENT"]
    url = sqs.create_queue(QueueName=f"prismline-{environment}-sweeps")["QueueUrl"]
    for _ in range(3):
        request_sweep(sqs, environment, depths(sqs, environment))
    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    request_sweep(sqs, environment, depths(sqs, environment))
    assert depths(sqs, environment)[f"prismline-{environment}-sweeps"] == (1, 1), "a long sweep keeps no other away"


def test_without_a_sweeper_nothing_is_sent(aws_env: dict[str, str]) -> None:
    sqs, environment = make_client("sqs", aws_env), aws_env["ENVIRONMENT"]
    sqs.create_queue(QueueName=f"prismline-{environment}-echo")
    request_sweep(sqs, environment, depths(sqs, environment))
    assert depths(sqs, environment) == {f"prismline-{environment}-echo": (0, 0)}
