"""`prismline retry`: the request to the dead-letter consumer, and the wrong use that it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli_world import CliWorld

from prismline_cli import mapping
from prismline_client import Client
from prismline_contracts.deadletters import DeadlettersRecoverRequested
from prismline_contracts.envelope import Envelope
from prismline_contracts.workloads import LocalEnvironment
from prismline_localstack.state import make_client
from prismline_localstack.testing import observe_bus

pytestmark = pytest.mark.emulator


@pytest.fixture
def failed(world: CliWorld, aws_env: dict[str, str]) -> Any:
    """A world with the queue of recoveries and a run of three chunks, two of which failed."""
    world.add_run("e4e1aaaa-0000", status="failed", jobs_total=3, jobs_completed=1, jobs_failed=2)
    world.add_chunk("e4e1aaaa-0000", 0)
    for start in (2, 4):
        world.add_chunk("e4e1aaaa-0000", start, status="FAILED", error="broken")
    sqs, events = make_client("sqs", aws_env), make_client("events", aws_env)
    bus = f"prismline-{aws_env['ENVIRONMENT']}"
    events.create_event_bus(Name=bus)
    world.sqs, world.url = sqs, observe_bus(sqs, events, bus)
    return world


def asked(world: CliWorld) -> DeadlettersRecoverRequested:
    (message,) = world.sqs.receive_message(QueueUrl=world.url, WaitTimeSeconds=5)["Messages"]
    return DeadlettersRecoverRequested.model_validate(Envelope.model_validate_json(message["Body"]).data)


@pytest.mark.parametrize(
    ("arguments", "chunk_ids"),
    [(("--failed",), None), ((), None), (("2", "chunk-0000004"), ["chunk-0000002", "chunk-0000004"])],
)
def test_retry_requests_the_named_chunks_or_all_failed_ones(
    failed: Any, arguments: tuple[str, ...], chunk_ids: list[str] | None
) -> None:
    printed = failed.json("retry", "e4e1", *arguments)
    request = asked(failed)
    assert (request.operation_id, request.only_run) == (printed["operation_id"], "e4e1aaaa-0000")
    assert (request.retry, request.chunk_ids, request.dry_run) == (True, chunk_ids, False)


def test_retry_of_a_cancelled_run_requests_to_continue_it_from_its_current_stop(failed: Any) -> None:
    failed.add_run("cccc", status="cancelled", stop_reason="cancelled", cancelled_at="2026-03-10T12:00:00Z")
    printed = failed.json("retry", "cccc", "--cancelled", "--dry-run")
    request = asked(failed)
    assert (request.operation_id, request.only_run) == (printed["operation_id"], "cccc")
    assert (request.retry, request.cancelled_at, request.dry_run) == (True, "2026-03-10T12:00:00Z", True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uncancelled_at": "2026-03-10T12:00:00Z"}, "has already been continued"),
        ({"drained_at": "2026-03-10T12:00:00Z"}, "nothing is left to do"),
        ({}, "is being cancelled. Try again in a moment."),
    ],
)
def test_a_cancelled_run_that_cannot_be_continued_is_refused(failed: Any, fields: dict[str, str], message: str) -> None:
    failed.add_run("cccc", status="cancelled", **fields)
    assert message in " ".join(failed.run("retry", "cccc", "--cancelled", expect=2).stderr.split())


def test_wrong_use_is_refused(failed: Any) -> None:
    failed.add_run(
        "cccc", status="cancelled", jobs_failed=1, stop_reason="cancelled", cancelled_at="2026-03-10T12:00:00Z"
    )
    failed.add_run("dddd", jobs_total=1, jobs_completed=1)
    for arguments, message in (
        (("cccc",), "prismline retry cccc --cancelled"),
        (("cccc", "--cancelled", "--failed"), "--cancelled alone"),
        (("dddd", "--cancelled"), "was not cancelled"),
        (("dddd",), "No chunk of run dddd has failed."),
        (("e4e1", "99"), "There is no chunk"),
        (("e4e1", "2", "--failed"), "not both"),
        (("nope",), "There is no run nope"),
    ):
        assert message in failed.run("retry", *arguments, expect=2).stderr


def test_retry_with_the_latest_code_registers_what_is_there_now_and_names_it(failed: Any, tmp_path: Path) -> None:
    (tmp_path / "retried.py").write_text("def work(item): return 1\n")
    local = LocalEnvironment(python=sys.executable, paths=[str(tmp_path)])
    first = mapping.describe("retried:work", local)
    mapping.register(Client.open(), first, local)
    fields = {"workload": "retried:work", "unit": "task", "code": first.code}
    failed.add_run("ffff", **fields, status="failed", jobs_total=1, jobs_failed=1)
    failed.add_run("aaaa", **fields, jobs_total=1)
    failed.json("retry", "ffff", "--code", "latest")
    assert asked(failed).code == first.code
    assert "has failed" in failed.run("retry", "aaaa", "--code", "latest", expect=2).stderr
    (tmp_path / "retried.py").write_text("def work(item): return 2\n")
    failed.json("retry", "aaaa", "--code", "latest")  # it waits for code that is gone
    newer = asked(failed).code
    assert newer not in (None, first.code)
    assert mapping.latest_code(Client.open(), "retried:work") == newer
    assert "has no code" in failed.run("retry", "e4e1", "--code", "latest", expect=2).stderr
    assert "only `latest`" in failed.run("retry", "ffff", "--code", newer, expect=2).stderr
