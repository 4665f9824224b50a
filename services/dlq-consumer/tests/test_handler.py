"""Which function handles which queue, and that every dead-letter queue has a consumer."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from dlq_world import DlqConsumerWorld, chunk_message

from prismline_contracts.base import timestamp
from prismline_contracts.commands import EVERY_DEAD_LETTER_QUEUE, Queue, dead_letter_queue_name, polled_queues
from prismline_contracts.deadletters import DeadlettersRecoverRequested
from prismline_contracts.envelope import Envelope

SERVICE = Path(__file__).parents[1]


def test_every_queue_of_the_system_has_its_dead_letters_consumed() -> None:
    document = tomllib.loads((SERVICE / "pyproject.toml").read_text())
    processes = {process["name"]: process for process in document["tool"]["prismline"]["processes"]}
    assert set(polled_queues(processes["dlq-consumer"]["queues"])) == {dead_letter_queue_name(queue) for queue in Queue}
    dockerfile = (SERVICE / "Dockerfile").read_text()
    assert f'"{EVERY_DEAD_LETTER_QUEUE}"' in dockerfile


@pytest.mark.emulator
def test_a_batch_of_a_dead_letter_queue_is_judged_and_a_request_is_a_recovery(world: DlqConsumerWorld) -> None:
    (chunk_id,) = world.run("r")
    world.send("chunks-dlq", chunk_message("r", chunk_id))
    assert world.handle("chunks-dlq") == []
    assert world.depth("chunks") == 1
    request = DeadlettersRecoverRequested(operation_id="op", requested_at=timestamp(), dry_run=True)
    world.send("recoveries", Envelope.wrap(request, source="prismline/test", traceparent=None).to_json())
    assert world.handle("recoveries") == []
    operation = world.deps.operations.get("op")
    assert operation is not None
    assert (operation.status, operation.n_records) == ("COMPLETED", 1)


@pytest.mark.emulator
def test_an_invalid_recovery_request_becomes_a_dead_letter_and_is_archived(world: DlqConsumerWorld) -> None:
    request = DeadlettersRecoverRequested(operation_id="op", requested_at=timestamp())
    message = Envelope.wrap(request, source="prismline/test", traceparent=None)
    bad = message.model_copy(update={"data": message.data | {"prefix": "chunks/"}}).to_json()
    world.send("recoveries", bad)
    assert world.handle("recoveries") == []
    assert world.handle("recoveries-dlq") == []
    assert [record["body"] for record in world.records().values()] == [bad]
    assert world.depth("recoveries") == world.depth("recoveries-dlq") == 0
