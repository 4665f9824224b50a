"""Two major versions of one type at the same time: a splitter that sends both, and workers of two releases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import Field

from prismline_contracts.base import now
from prismline_contracts.commands import ChunkProcess, Queue
from prismline_contracts.envelope import Envelope
from prismline_runtime import Message, queue_handler
from prismline_runtime.transport import Transport
from prismline_worker import handler as worker
from tests.simulation.plan import Plan, RunPlan
from tests.simulation.simulation import simulate

#: Virtual second at which workers of the newer release are deployed.
DEPLOYED = 50.0


class ChunkProcessV2(ChunkProcess):
    """The next major version: `n_items` is called `items`."""

    TYPE: ClassVar[str] = "prismline.chunk.process.v2"

    n_items: int = Field(alias="items", ge=1)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Messages that workers accepted and refused, by type. Every second chunk is sent as the next major version."""
    seen: Counter[str] = Counter()
    began: list[Any] = []
    send, dead_letter = Transport.send, Transport.dead_letter

    def splitter_sends(self: Transport, queue: str, messages: Iterable[Envelope], **how: Any) -> None:
        began.append(now())
        both = queue == Queue.CHUNKS and self.source.endswith("/splitter")
        send(self, queue, [as_v2(each) if both and n % 2 else each for n, each in enumerate(messages)], **how)

    def as_v2(message: Envelope) -> Envelope:
        data = {"items" if name == "n_items" else name: value for name, value in message.data.items()}
        return message.model_copy(update={"type": ChunkProcessV2.TYPE, "data": data})

    def worker_takes(transport: Transport, logger: Any, messages: dict[Any, Any], **options: Any) -> Any:
        process = messages[ChunkProcess]

        def counted(data: ChunkProcess, message: Message) -> None:
            seen[message.envelope.type] += 1
            process(data, message)

        newer = began and now() >= began[0] + timedelta(seconds=DEPLOYED - 10)
        known = {ChunkProcess: counted} | ({ChunkProcessV2: counted} if newer else {})
        return queue_handler(transport, logger, messages | known, **options)

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
    result = simulate(plan=Plan(runs=(RunPlan(chunks=8),), deploys=(("worker", DEPLOYED),)), record={})
    assert result.finding is None, str(result.finding)
    assert result.transitions[("run", "running", "completed")] == 1
    assert taken[ChunkProcess.TYPE] > 0
    assert taken[f"{ChunkProcessV2.TYPE} unknown"] > 0, "the worker of the last release does not know it"
    assert taken[ChunkProcessV2.TYPE] > 0, "the worker of this release takes it from the dead-letter queue"
    assert set(taken) == {ChunkProcess.TYPE, ChunkProcessV2.TYPE, f"{ChunkProcessV2.TYPE} unknown"}
