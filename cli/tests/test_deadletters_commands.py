"""`deadletters recover` requests a recovery and waits until all its chunks have ended. Its result is the exit code."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from cli_world import MOMENT, CliWorld
from typer.testing import CliRunner, Result

from prismline_cli.recovering import progress_of
from prismline_cli.whole import app
from prismline_client import ApiError, Client, Recovery
from prismline_contracts.deadletters import DeadlettersRecover, DeadlettersRecoverRequested, RecoveryCounts
from prismline_contracts.envelope import Envelope
from prismline_ledger import Operations
from prismline_localstack.state import make_client
from prismline_localstack.testing import observe_bus

LEASE = timedelta(seconds=60)


def operation(**fields: Any) -> Recovery:
    counts = dict.fromkeys(RecoveryCounts.model_fields, 0)
    base = {"operation_id": "op", "run_id": None, "status": "running", "dry_run": False, **counts}
    return Recovery.model_validate(base | fields)


def test_the_progress_of_a_recovery_says_what_it_waits_for() -> None:
    assert progress_of(operation(n_records=200)) == "200 records read"
    waiting = progress_of(operation(n_records=9, n_sent=7, n_recovered=4, n_failed=2))
    assert waiting == "7 messages sent back: 4 done, 2 failed; waiting for the chunks of the others to end"


@dataclass
class Consumer:
    """A fake dead-letter consumer. It ends a recovery with the given counts."""

    sqs: Any
    url: str
    operations: Operations

    def take(self) -> DeadlettersRecoverRequested:
        """The request that was announced."""
        while not (messages := self.sqs.receive_message(QueueUrl=self.url, WaitTimeSeconds=5).get("Messages")):
            pass
        return DeadlettersRecoverRequested.model_validate(Envelope.model_validate_json(messages[0]["Body"]).data)

    def end(self, counts: RecoveryCounts) -> DeadlettersRecoverRequested:
        """Take the request, and end it with these counts."""
        request = self.take()
        begun = self.operations.claim(request, "consumer", LEASE)
        waiting = self.operations.await_endings(self.operations.commit(begun, RecoveryCounts(), lease=LEASE))
        self.operations.finish(self.operations.commit(waiting, counts, lease=LEASE))
        return request


@pytest.fixture
def consumer(world: CliWorld, aws_env: dict[str, str]) -> Consumer:
    world.add_run("r", status="failed")
    sqs, events = make_client("sqs", aws_env), make_client("events", aws_env)
    bus = f"prismline-{aws_env['ENVIRONMENT']}"
    events.create_event_bus(Name=bus)
    return Consumer(
        sqs, observe_bus(sqs, events, bus), Operations(world.connection.dynamodb, world.connection.runs_table)
    )


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "300"}).invoke(app, ["deadletters", *arguments])


@pytest.mark.emulator
@pytest.mark.parametrize(("n_failed", "exit_code"), [(0, 0), (1, 1)])
def test_with_wait_the_exit_code_says_whether_all_was_recovered(
    consumer: Consumer, n_failed: int, exit_code: int
) -> None:
    counts = RecoveryCounts(n_records=3, n_sent=3, n_recovered=3 - n_failed, n_failed=n_failed)
    thread = threading.Thread(target=consumer.end, args=(counts,), daemon=True)
    thread.start()
    result = run("recover", "--run", "r", "--wait", "--json")
    assert result.exit_code == exit_code, result.output
    thread.join()
    shown = json.loads(result.stdout)
    assert (shown["status"], shown["only_run"]) == ("COMPLETED", "r")
    assert (shown["n_sent"], shown["n_recovered"], shown["n_failed"]) == (3, 3 - n_failed, n_failed)
    assert run("operation", shown["operation_id"]).exit_code == exit_code


@pytest.mark.emulator
def test_without_wait_only_the_id_of_the_operation_is_printed(consumer: Consumer) -> None:
    result = run("recover", "--dry-run", "--prefix", "dead-letter-archive/failed-sqs/")
    operation_id = result.stdout.strip()
    assert result.exit_code == 0
    assert f"{operation_id} has not begun" in run("operation", operation_id).stderr
    request = consumer.end(RecoveryCounts(n_records=2))
    assert (request.operation_id, request.only_run) == (operation_id, None)
    assert (request.dry_run, request.prefix) == (True, "dead-letter-archive/failed-sqs/")
    shown = json.loads(run("operation", operation_id, "--json").stdout)
    assert (shown["status"], shown["n_records"], shown["only_run"]) == ("COMPLETED", 2, None)
    assert run("operation", "nonesuch").exit_code == 2


@pytest.mark.emulator
def test_an_operation_that_an_earlier_release_of_the_command_began_is_shown(consumer: Consumer) -> None:
    old = "recovery-20260301T120000-e3e70682"
    consumer.operations.claim(DeadlettersRecover(operation_id=old, requested_at=MOMENT), "consumer", LEASE)
    assert json.loads(run("operation", old, "--json").stdout)["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("ls",), {"items": [{"key": "k", "day": "2026-03-01", "message_id": "m", "recovery_failed": False}]}),
        (("show", "m"), {"items": [{"key": "k", "day": "2026-03-01", "message_id": "m", "recovery_failed": False}]}),
        (("recover",), ApiError("The request is invalid: body.run_id: Field required.", 422)),
    ],
)
def test_beside_an_api_of_an_earlier_release_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], answer: Any
) -> None:
    def answered(*_: Any, **__: Any) -> Any:
        if isinstance(answer, ApiError):
            raise answer
        return answer

    monkeypatch.setattr(Client, "open", lambda: Client("http://127.0.0.1:9", "k"))
    monkeypatch.setattr(Client, "_ask", answered)
    result = run(*arguments)
    assert result.exit_code in {2, 3}
    assert "The API is of an earlier release" in result.stderr
    assert "Upgrade the service api." in result.stderr
