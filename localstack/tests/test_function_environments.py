"""Execution environments: awslambdaric is frozen between invocations, and killed at the time limit of one."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_localstack.functions.environment import MAX_ANSWER_BYTES, EnvironmentFailedError, ExecutionEnvironment

ARN = "arn:aws:lambda:us-east-1:000000000000:function:probe"
HANDLER = """
import os, threading, time
TICKS = [0]

def tick():
    while True:
        TICKS[0] += 1
        time.sleep(0.001)

def handler(event, context):
    match event["do"]:
        case "context":
            return {"id": context.aws_request_id, "arn": context.invoked_function_arn, "name": context.function_name,
                    "left": context.get_remaining_time_in_millis()}
        case "answer":
            return "x" * event["size"]
        case "api":
            return os.environ["AWS_LAMBDA_RUNTIME_API"]
        case "raise":
            raise LookupError("nothing there")
        case "exit":
            os._exit(7)
        case "hang":
            time.sleep(3600)
        case "tick":
            threading.Thread(target=tick, daemon=True).start()
            while TICKS[0] < 3:
                time.sleep(0.001)
        case "ticks":
            return TICKS[0]
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ExecutionEnvironment]]:
    """A function that starts environments with the handler above, or with another source."""
    started = []

    def start(source: str = HANDLER) -> ExecutionEnvironment:
        (tmp_path / "probe.py").write_text(source)
        command = [sys.executable, "-m", "awslambdaric", "probe.handler"]
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
        started.append(ExecutionEnvironment("probe", ARN, command, variables, tmp_path / "probe.log", tmp_path))
        return started[-1]

    yield start
    for environment in started:
        environment.stop()


def event(do: str, **fields: Any) -> bytes:
    return json.dumps({"do": do, **fields}).encode()


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}])
def test_a_web_page_gets_no_event_of_a_function(
    start: Callable[..., ExecutionEnvironment], header: dict[str, str]
) -> None:
    environment = start()
    connection = http.client.HTTPConnection(environment.invoke(event("api"), 20.0).json(), timeout=5)
    connection.request("GET", "/2018-06-01/runtime/invocation/next", headers=header)
    assert connection.getresponse().status == 403
    connection.close()
    assert environment.invoke(event("answer", size=1), 20.0).json() == "x"


def test_a_handler_gets_the_context_of_lambda(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    first, second = (environment.invoke(event("context"), 20.0).json() for _ in range(2))
    assert first["arn"] == ARN
    assert first["name"] == "probe"
    assert 0 < first["left"] <= 20_000
    assert first["id"] != second["id"]


def test_a_process_is_frozen_between_invocations(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    environment.invoke(event("tick"), 20.0)
    before = environment.invoke(event("ticks"), 20.0).json()
    stat = Path(f"/proc/{environment.pid}/stat")
    deadline = time.monotonic() + 20
    while stat.read_text().rpartition(")")[2].split()[0] != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    used = environment.processor_seconds
    time.sleep(0.3)  # a thread that was not frozen would run in this time
    assert environment.processor_seconds == used
    assert environment.invoke(event("ticks"), 20.0).json() < before + 200


def test_an_invocation_that_takes_too_long_ends_with_its_process(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    environment.wait_until_ready()
    outcome = environment.invoke(event("hang"), 0.5)
    assert (outcome.answer, outcome.error) == (None, "Sandbox.Timedout")
    assert not environment.alive


def test_an_answer_may_have_6_mb(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    largest = environment.invoke(event("answer", size=MAX_ANSWER_BYTES - 2), 20.0)  # two are the quotes around it
    assert len(largest.answer or b"") == MAX_ANSWER_BYTES
    outcome = environment.invoke(event("answer", size=MAX_ANSWER_BYTES - 1), 20.0)
    assert (outcome.answer, outcome.error) == (None, "Function.ResponseSizeTooLarge")


def test_an_exception_fails_only_its_own_invocation(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    outcome = environment.invoke(event("raise"), 20.0)
    assert (outcome.answer, outcome.error, outcome.message) == (None, "LookupError", "nothing there")
    assert environment.invoke(event("answer", size=1), 20.0).json() == "x"


def test_a_process_that_ends_fails_its_invocation(start: Callable[..., ExecutionEnvironment]) -> None:
    environment = start()
    outcome = environment.invoke(event("exit"), 20.0)
    assert (outcome.answer, outcome.error) == (None, "Runtime.ExitError")
    assert "7" in outcome.message
    assert not environment.alive


def test_a_handler_that_cannot_be_imported_never_starts(
    start: Callable[..., ExecutionEnvironment], tmp_path: Path
) -> None:
    environment = start("import no_such_module")
    with pytest.raises(EnvironmentFailedError, match=r"probe\.log"):
        environment.invoke(event("answer", size=1), 20.0)
    assert "no_such_module" in (tmp_path / "probe.log").read_text()
