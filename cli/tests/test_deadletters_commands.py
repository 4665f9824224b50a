"""`deadletters recover` requests a recovery and waits until all its chunks have ended. Its result is the exit code."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from cli_world import CliWorld
from typer.testing import CliRunner, Result

from prismline_cli.recovering import progress_of
from prismline_cli.whole import app
from prismline_contracts.deadletters import DeadlettersRecover, RecoveryCounts, RecoveryOperationItem
from prismline_contracts.envelope import Envelope
from prismline_ledger import Operations
from prismline_localstack.state import make_client

LEASE = timedelta(seconds=60)


def operation(**fields: Any) -> RecoveryOperationItem:
    moment = "2026-03-01T12:00:00.000Z"
    times = dict.fromkeys(("requested_at", "started_at", "updated_at"), moment)
    base = {"PK": "op", "status": "RUNNING", "prefix": "dead-letter-archive/sqs/", **times}
    return RecoveryOperationItem.model_validate(base | fields)


def test_the_progress_of_a_recovery_says_what_it_waits_for() -> None:
    assert progress_of(operation(n_records=200)) == "200 records read"
    waiting = progress_of(operation(n_records=9, n_sent=7, n_recovered=4, n_failed=2, listed=True, rounds=3))
    assert waiting == "7 messages sent back: 4 done, 2 failed; waiting for the chunks of the others to end"


@dataclass
class Consumer:
    """A fake dead-letter consumer. It ends a recovery with the given counts."""

    sqs: Any
    url: str
    operations: Operations

    def take(self) -> DeadlettersRecover:
        """The request that is in the queue."""
        while not (messages := self.sqs.receive_message(QueueUrl=self.url, WaitTimeSeconds=5).get("Messages")):
            pass
        return DeadlettersRecover.model_validate(Envelope.model_validate_json(messages[0]["Body"]).data)

    def end(self, counts: RecoveryCounts) -> None:
        begun = self.operations.claim(self.take(), "consumer", LEASE)
        waiting = self.operations.await_endings(self.operations.commit(begun, RecoveryCounts(), lease=LEASE))
        self.operations.finish(self.operations.commit(waiting, counts, lease=LEASE))


@pytest.fixture
def consumer(world: CliWorld, aws_env: dict[str, str]) -> Consumer:
    world.add_run("r", status="failed")
    sqs = make_client("sqs", aws_env)
    url = sqs.create_queue(QueueName=f"prismline-{aws_env['ENVIRONMENT']}-recoveries")["QueueUrl"]
    return Consumer(sqs, url, Operations(world.connection.dynamodb, world.connection.runs_table))


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
    request = consumer.take()
    assert (result.exit_code, result.stdout.strip()) == (0, request.operation_id)
    assert (request.dry_run, request.prefix) == (True, "dead-letter-archive/failed-sqs/")
    assert run("operation", "nonesuch").exit_code == 2
