"""Send a dead letter back to the queue that it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from prismline_contracts import ChunkItem, ChunkProcess, timestamp
from prismline_dlq_consumer.dead_letter import DeadLetter
from prismline_runtime import Transport


@dataclass(frozen=True)
class Dispatch:
    """A letter that goes back, with what it carries."""

    letter: DeadLetter
    chunk: ChunkItem | None
    #: How often it has been dispatched then.
    attempt: int
    recovery: str | None
    #: From when on its patience is counted.
    first_sent: datetime

    @classmethod
    def next_of(cls, letter: DeadLetter, chunk: ChunkItem | None) -> Dispatch:
        """The letter once more."""
        return cls(letter, chunk, letter.attempt + 1, letter.recovery, letter.first_sent)

    @classmethod
    def recovered(cls, letter: DeadLetter, chunk: ChunkItem | None, recovery: str, now: datetime) -> Dispatch:
        """The letter as if it were sent for the first time, for a recovery."""
        return cls(letter, chunk, 1, recovery, now)

    def message(self) -> tuple[str, dict[str, str]]:
        """Body and attributes. A chunk's command carries its attempt itself; any other body stays as it is."""
        carried = {"attempt": str(self.attempt), "first_sent": timestamp(self.first_sent)}
        carried |= {"recovery": self.recovery} if self.recovery else {}
        if not isinstance(self.letter.data, ChunkProcess):
            return self.letter.content, carried
        document = json.loads(self.letter.content)
        document["data"] |= {"attempt": self.attempt, "deferrals": self.chunk.deferrals if self.chunk else 0}
        if self.recovery:
            document["data"]["recovery"] = self.recovery
        return json.dumps(document), carried


def send_back(queue: str, dispatches: Iterable[Dispatch], transport: Transport, *, delay: int = 0) -> None:
    """Send letters to `queue`, held back for `delay` seconds. Raises TransientError if one of them is refused."""
    transport.send_back(queue, (dispatch.message() for dispatch in dispatches), delay_seconds=delay)
