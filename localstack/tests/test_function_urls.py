"""Function URLs convert requests to events and answers to responses. The endpoint for Discord answers."""

from __future__ import annotations

import json
import os
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from prismline_localstack.functions.environment import ExecutionEnvironment, Outcome
from prismline_localstack.functions.function import THROTTLED
from prismline_localstack.functions.urls import request_event, response_of, serve


def test_an_event_contains_the_request() -> None:
    headers = {"host": "h", "cookie": "a=1; b=2", "content-type": "application/json", "user-agent": "u"}
    event = request_event("POST", "/v1/jobs?a=1&b=x%20y&a=2", headers, b'{"n": 1}', "127.0.0.1")
    assert event["rawPath"] == "/v1/jobs"
    assert event["rawQueryString"] == "a=1&b=x%20y&a=2"
    assert event["queryStringParameters"] == {"a": "1,2", "b": "x y"}
    assert event["cookies"] == ["a=1", "b=2"]
    assert "cookie" not in event["headers"]
    assert (event["body"], event["isBase64Encoded"]) == ('{"n": 1}', False)
    assert event["requestContext"]["http"]["method"] == "POST"


def test_a_body_that_is_not_text_is_in_base64() -> None:
    event = request_event("PUT", "/", {"content-type": "application/octet-stream"}, b"\xff\x00", "127.0.0.1")
    assert (event["body"], event["isBase64Encoded"]) == ("/wA=", True)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b'{"statusCode": 201, "headers": {"x": "y"}, "body": "made"}', 201, b"made"),
        (b'{"statusCode": 200, "body": "/wA=", "isBase64Encoded": true}', 200, b"\xff\x00"),
        (b'{"no": "status"}', 200, b'{"no": "status"}'),
        (b'{"statusCode": "x"}', 502, b'{"message":"Internal Server Error"}'),
        (b"not JSON", 502, b'{"message":"Internal Server Error"}'),
        (None, 502, b'{"message":"Internal Server Error"}'),
    ],
)
def test_an_answer_becomes_a_response(answer: bytes | None, status: int, body: bytes) -> None:
    response = response_of(Outcome(answer))
    assert (response.status, response.body) == (status, body)


def test_a_function_without_concurrency_left_answers_429() -> None:
    assert response_of(THROTTLED).status == 429


def test_a_new_process_answers_discord(tmp_path: Path) -> None:
    key = SigningKey.generate()
    variables = {
        "PATH": os.environ["PATH"],
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "DISCORD_PUBLIC_KEY": key.verify_key.encode().hex(),
    }
    command = [sys.executable, "-m", "awslambdaric", "prismline_alerting.interactions.handler"]
    environment = ExecutionEnvironment("interactions", "a", command, variables, tmp_path / "log", tmp_path)
    server = serve(0, lambda event: environment.invoke(event, 20.0))
    try:
        body, moment = json.dumps({"type": 1, "id": "1"}), str(int(time.time()))
        signature = key.sign(f"{moment}{body}".encode()).signature.hex()
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        headers = {
            "Content-Type": "application/json",
            "X-Signature-Ed25519": signature,
            "X-Signature-Timestamp": moment,
        }
        connection.request("POST", "/interactions", body, headers)
        response = connection.getresponse()
        assert (response.status, json.load(response)) == (200, {"type": 1})
    finally:
        server.shutdown()
        environment.stop()
