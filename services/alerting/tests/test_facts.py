"""The facts of an alert. A missing fact never prevents the alert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import boto3
import pytest
from alert_world import NOON, AlertingWorld
from botocore.config import Config

from prismline_alerting.alerts import Alert, State
from prismline_alerting.facts import PUT_OFF, FactFinder, Facts, most_frequent, trouble_of
from prismline_contracts.items import ChunkItem
from prismline_ledger import Ledger, Outcome


def item(**fields: Any) -> ChunkItem:
    base = {"PK": "r", "SK": "CHUNK#chunk-0000000", "status": "PENDING", "chunk_key": "k", "n_spectra": 1, "n_items": 1}
    return ChunkItem.model_validate(base | {"created_at": "2026-03-01T12:00:00.000Z"} | fields)


def test_errors_that_differ_in_ids_alone_are_one_and_three_are_shown() -> None:
    errors = [f"Could not read chunk-{n:07d}: it does not exist." for n in range(5)]
    errors += [
        "No answer from 6f0e9ef0-54e1-5c0e-9d3b-6d1c5f8f6a51",
        "No answer from 00000000-54e1-5c0e-9d3b-6d1c5f8f6a51",
    ]
    errors += ["HTTP 503", "HTTP 503", "HTTP 503", "HTTP 500"]
    found = most_frequent(errors)
    assert found == (
        ("Could not read chunk-0000000: it does not exist.", 5),
        ("HTTP 503", 3),
        ("No answer from 6f0e9ef0-54e1-5c0e-9d3b-6d1c5f8f6a51", 2),
    )


def test_the_error_of_a_chunk() -> None:
    assert trouble_of(item()) is None
    assert trouble_of(item(last_error="once")) == "once"
    assert trouble_of(item(status="FAILED", last_error="once", error="at last")) == "at last"
    assert trouble_of(item(deferred_at="2026-03-01T12:00:00.000Z", deferrals=1)) == PUT_OFF
    assert trouble_of(item(status="COMPLETED", last_error="once")) is None


def alert(world: AlertingWorld, **fields: Any) -> Alert:
    queue = f"prismline-{world.environment}-chunks-dlq"
    return Alert("alarms/a", State.ALARM, NOON, "a", queue=queue, **fields)


@pytest.mark.emulator
def test_depth_counts_what_is_hidden_and_errors_are_those_of_open_runs(world: AlertingWorld) -> None:
    world.fill("chunks-dlq", 3)
    world.sqs.receive_message(QueueUrl=world.urls["chunks-dlq"], MaxNumberOfMessages=2, VisibilityTimeout=600)
    world.run("run-1", {"chunk-0000000": "GPU is down", "chunk-0000001": "GPU is down", "chunk-0000002": "Timeout"})
    done = world.ledger.chunk("run-1", "chunk-0000002")
    world.ledger.complete_chunk(done, Outcome("o"), duration_ms=1)
    world.run("run-2", {"chunk-0000000": "GPU is down"})
    world.ledger.fail_chunk(world.ledger.chunk("run-2", "chunk-0000000"), "Broken frame")
    facts = world.deps.facts.find(alert(world))
    assert facts.depth == 3
    assert facts.errors == (("GPU is down", 2), ("Broken frame", 1))
    oldest = world.ledger.chunk("run-1", "chunk-0000000").created_at
    assert facts.oldest is not None
    assert facts.oldest.isoformat(timespec="milliseconds") == oldest.replace("Z", "+00:00")


@pytest.mark.emulator
def test_a_failed_run_comes_with_its_own_errors(world: AlertingWorld) -> None:
    world.run("run-1", {"chunk-0000000": "GPU is down"})
    world.run("run-2", {"chunk-0000000": "Timeout"})
    facts = world.deps.facts.find(Alert("runs/run-2", State.ALARM, NOON, "run-2", run_id="run-2"))
    assert (facts.errors, facts.depth) == ((("Timeout", 1),), None)


@pytest.mark.emulator
def test_an_alarm_that_is_not_about_chunks_comes_without_their_errors(world: AlertingWorld) -> None:
    world.run("run-1", {"chunk-0000000": "GPU is down"})
    queue = f"prismline-{world.environment}-alerts-dlq"
    assert world.deps.facts.find(replace(alert(world), queue=queue)) == Facts(depth=0)
    assert world.deps.facts.find(replace(alert(world), queue=None)) == Facts()


@pytest.mark.emulator
def test_queue_and_ledger_that_do_not_answer_leave_the_facts_empty(world: AlertingWorld) -> None:
    dead = Config(retries={"total_max_attempts": 1}, connect_timeout=0.2, read_timeout=0.2)
    nowhere: dict[str, Any] = {"endpoint_url": "http://127.0.0.1:1", "config": dead}
    finder = FactFinder(
        boto3.client("sqs", **nowhere),
        Ledger(boto3.client("dynamodb", **nowhere), "t"),
        world.environment,
        world.deps.logger,
    )
    assert finder.find(alert(world)) == Facts()


@pytest.mark.emulator
def test_a_queue_that_is_gone_and_an_item_that_is_broken_leave_the_rest(world: AlertingWorld) -> None:
    world.run("run-1", {"chunk-0000000": "GPU is down"})
    table = boto3.resource("dynamodb").Table(world.deps.settings.runs_table)
    table.put_item(Item={"PK": "run-1", "SK": "CHUNK#chunk-0000001", "status": "LOST"})
    facts = world.deps.facts.find(alert(world))
    assert (facts.depth, facts.errors) == (0, (("GPU is down", 1),))
    world.sqs.delete_queue(QueueUrl=world.urls["chunks-dlq"])
    facts = world.deps.facts.find(alert(world))
    assert (facts.depth, facts.errors) == (None, (("GPU is down", 1),))


@pytest.mark.emulator
def test_a_ledger_that_is_slow_is_not_waited_for(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("run-1", {f"chunk-{n:07d}": "GPU is down" for n in range(3)})
    monkeypatch.setattr("prismline_alerting.facts.READ_SECONDS", -1.0)
    assert world.deps.facts.find(alert(world)) == Facts(depth=0)
