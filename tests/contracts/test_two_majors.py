"""Two major versions of one type at the same time: a splitter that sends both, and workers of two releases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from prismline_contracts.base import now
from prismline_contracts.commands import ChunkProcess, ReferencedChunkProcess
from prismline_contracts.envelope import Envelope
from prismline_runtime import Message, queue_handler
from prismline_runtime.transport import Transport
from prismline_worker import handler as worker
from tests.simulation.plan import Plan, RunPlan
from tests.simulation.simulation import simulate

#: Virtual second at which workers of the newer release are deployed.
DEPLOYED = 50.0


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Messages that workers accepted and refused, by type. The workers of the older release know the first major."""
    seen: Counter[str] = Counter()
    began: list[datetime] = []
    send, dead_letter = Transport.send, Transport.dead_letter

    def splitter_sends(self: Transport, queue: str, messages: Iterable[Envelope], **how: Any) -> None:
        began.append(now())
        send(self, queue, messages, **how)

    def worker_takes(transport: Transport, logger: Any, messages: dict[Any, Any], **options: Any) -> Any:
        process = messages[ChunkProcess]

        def counted(data: ChunkProcess, message: Message) -> None:
            seen[message.envelope.type] += 1
            process(data, message)

        newer = began and now() >= began[0] + timedelta(seconds=DEPLOYED - 10)
        known = {**messages, ChunkProcess: counted, ReferencedChunkProcess: counted}
        if not newer:
            del known[ReferencedChunkProcess]
        return queue_handler(transport, logger, known, **options)

    def refused(self: Transport, delivery: Any, why: dict[str, str]) -> None:
        seen[f"{json.loads(delivery.body)['type']} {next(iter(why))}"] += 1
        dead_letter(self, delivery, why)

    monkeypatch.setattr(Transport, "send", splitter_sends)
    monkeypatch.setattr(Transport, "dead_letter", refused)
    monkeypatch.setattr(worker, "queue_handler", worker_takes)
    return seen


def test_a_chunk_of_the_next_major_waits_for_a_worker_that_knows_it_and_every_chunk_is_processed(
    taken: Counter[str],
) -> None:
    runs = (RunPlan(chunks=4), RunPlan(chunks=4, refers=True))
    result = simulate(plan=Plan(runs=runs, deploys=(("worker", DEPLOYED),)), record={})
    assert result.finding is None, str(result.finding)
    assert result.transitions[("run", "running", "completed")] == 2
    first, second = ChunkProcess.TYPE, ReferencedChunkProcess.TYPE
    assert taken[first] > 0
    assert taken[f"{second} unknown"] > 0, "the worker of the last release does not know it"
    assert taken[second] > 0, "the worker of this release takes it from the dead-letter queue"
    assert set(taken) == {first, second, f"{second} unknown"}
