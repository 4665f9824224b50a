"""A run with `max_concurrency`: its chunks wait for a slot, and a dead or slow holder does not block others."""

from __future__ import annotations

import json
from typing import Any

import pytest
import valkey
from worker_world import FIRST, RUN_ID, SECOND, WorkerWorld, spectra_world

from prismline_contracts.base import now
from prismline_contracts.commands import ChunkProcess
from prismline_contracts.items import RunItem
from prismline_coordination import CoordinationServer, Lease, Leases
from prismline_ledger import Ledger, waiting_for
from prismline_ledger.testing import Clock
from prismline_localstack.testing import ValkeyServer
from prismline_runtime import Work
from prismline_worker.concurrency import renewed
from prismline_worker.run_queues import RunQueues, queues_of

pytestmark = pytest.mark.emulator


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, valkey_server: ValkeyServer) -> WorkerWorld:
    monkeypatch.setenv("PRISMLINE_VALKEY_URL", valkey_server.url)
    made = spectra_world(aws_env["ENVIRONMENT"], monkeypatch)
    made.open_run(FIRST, SECOND)
    return made


@pytest.fixture
def leases(valkey_server: ValkeyServer) -> Leases:
    return Leases(CoordinationServer.at(valkey_server.url))


def take_slot(leases: Leases) -> list[Lease]:
    return leases.take(f"run:{RUN_ID}", 1)


def test_a_chunk_holds_a_slot_while_it_is_processed_and_gives_it_back(
    world: WorkerWorld, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Lease]] = []
    fit = world.fitter.fit

    def look(*arguments: Any, **options: Any) -> Any:
        seen.append(take_slot(leases))
        return fit(*arguments, **options)

    monkeypatch.setattr(world.fitter, "fit", look)
    assert world.process(FIRST, max_concurrency=1)
    assert world.chunk(FIRST).status == "COMPLETED"
    assert seen == [[]], "the only slot was taken meanwhile"
    assert take_slot(leases)


def test_a_chunk_without_a_slot_is_sent_again_and_uses_up_nothing(world: WorkerWorld, leases: Leases) -> None:
    held = take_slot(leases)
    assert world.process(FIRST, max_concurrency=1)
    assert (world.chunk(FIRST).status, world.chunk(FIRST).attempts) == ("PENDING", 0)
    assert waiting_for(world.run(), now()) == "No slot of the run is free: it has 1."
    leases.release(held)
    ((body, attributes),) = wait_and_take(world)
    assert json.loads(body)["data"]["chunk_id"] == FIRST
    assert attributes["slot_waits"] == "1"
    assert world.deliver(body, "chunks")
    assert world.chunk(FIRST).status == "COMPLETED"


def test_a_chunk_that_raised_and_waits_for_a_slot_still_counts_as_raising(world: WorkerWorld, leases: Leases) -> None:
    for _ in range(3):
        world.ledger.note_error(Work(RUN_ID, ChunkProcess.TYPE, FIRST), service="worker", error="KeyError")
    held = take_slot(leases)
    world.receive_count = 4
    assert world.process(FIRST, max_concurrency=1)
    assert world.ledger.repeated_error(RUN_ID) is not None
    leases.release(held)


def test_while_valkey_is_down_a_limited_chunk_waits_and_another_is_processed(
    world: WorkerWorld, valkey_server: ValkeyServer
) -> None:
    valkey_server.kill()
    assert world.process(FIRST, max_concurrency=1)
    assert world.process(SECOND)
    assert (world.chunk(FIRST).attempts, world.chunk(SECOND).status) == (0, "COMPLETED")
    valkey_server.start()
    ((body, _),) = wait_and_take(world)
    assert world.deliver(body, "chunks")
    assert world.chunk(FIRST).status == "COMPLETED"


def test_a_chunk_that_fails_gives_its_slot_back(world: WorkerWorld, leases: Leases) -> None:
    world.put(f"chunks/{RUN_ID}/{FIRST}.npz", b"not a chunk file")
    world.process(FIRST, max_concurrency=1, chunk_key=f"chunks/{RUN_ID}/{FIRST}.npz")
    assert world.chunk(FIRST).status == "FAILED"
    assert take_slot(leases)


def test_the_slot_of_a_long_chunk_is_renewed(
    world: WorkerWorld, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test shortens the lease in the server. Shortly afterwards it has its full time again."""
    monkeypatch.setattr("prismline_worker.concurrency.RENEWALS", 300)
    fit, client = world.fitter.fit, valkey.Valkey.from_url(valkey_server.url, decode_responses=True)

    def take_long(*arguments: Any, **options: Any) -> Any:
        (slot,) = [name for name in client.scan_iter("*lease*") if "fence" not in name]
        client.pexpire(slot, 5_000)
        while client.pttl(slot) < 10_000:
            pass
        return fit(*arguments, **options)

    monkeypatch.setattr(world.fitter, "fit", take_long)
    assert world.process(FIRST, max_concurrency=1)
    assert world.chunk(FIRST).status == "COMPLETED"


def test_slots_are_lost_once_valkey_has_been_down_for_as_long_as_a_lease(valkey_server: ValkeyServer) -> None:
    clock = Clock()
    leases = Leases(CoordinationServer.at(valkey_server.url), clock=clock.monotonic)
    held = take_slot(leases)
    valkey_server.kill()
    clock.advance(20)
    assert renewed(leases, held) == held
    clock.advance(10)
    assert renewed(leases, held) == []


def wait_and_take(world: WorkerWorld) -> list[tuple[str, dict[str, str]]]:
    """The messages in the queue of chunks, once their delay is over."""
    while not (taken := world.take("chunks")):
        pass
    return taken


# ---- the queues of runs with many tasks


def run(run_id: str, **fields: Any) -> RunItem:
    base = {
        "PK": run_id,
        "GSI1_PK": "s",
        "GSI1_SK": "2026-03-01T12:00:00.000Z",
        "survey": "s",
        "workload": "urls",
        "job_id": "j",
        "created_at": "2026-03-01T12:00:00.000Z",
    }
    return RunItem.model_validate(base | fields)


def test_a_worker_polls_the_queues_of_runs_that_are_neither_stopped_nor_drained() -> None:
    ended = "2026-03-01T12:00:00.000Z"
    runs = [
        run("small"),
        run("large", task_queue="q-large", priority=9),
        run("stopped", task_queue="q-stopped", cancelled_at=ended),
        run("drained", task_queue="q-drained", drained_at=ended),
    ]
    assert queues_of(runs) == {"q-large": 9}


def test_the_ledger_is_read_once_for_all_consumers_of_a_process(world: WorkerWorld) -> None:
    moment = [0.0]
    queues = RunQueues(world.ledger, clock=lambda: moment[0])
    assert queues() == {}
    note(world.ledger, "q")
    world.aws.calls.clear()
    assert queues() == {}
    moment[0] += 5.0
    assert queues() == {"q": 5}


def note(ledger: Ledger, queue: str) -> None:
    ledger.note_task_queue(ledger.run(RUN_ID), queue)
