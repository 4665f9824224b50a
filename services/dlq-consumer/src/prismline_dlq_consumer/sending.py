"""Sends dead letters back to the queues that they came from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from prismline_contracts.base import timestamp
from prismline_contracts.commands import ChunkProcess, TasksProcess
from prismline_contracts.items import ChunkItem
from prismline_dlq_consumer.dead_letter import DeadLetterMessage
from prismline_runtime import Transport


@dataclass(frozen=True)
class Dispatch:
    """A dead letter that is sent back, with the message attributes that it carries."""

    letter: DeadLetterMessage
    chunk: ChunkItem | None
    #: How often the message has been dispatched, this time included.
    attempt: int
    recovery: str | None
    #: The time from which the message's age is counted.
    first_sent: datetime
    #: The key of its record, if the record is replaced when the message comes back.
    archived: str | None = None

    @classmethod
    def next_of(cls, letter: DeadLetterMessage, chunk: ChunkItem | None, archived: str) -> Dispatch:
        """The next dispatch of the letter, whose record has the key `archived`."""
        replaced = archived if letter.unknown is not None else None
        return cls(letter, chunk, letter.attempt + 1, letter.recovery, letter.first_sent, replaced)

    @classmethod
    def recovered(cls, letter: DeadLetterMessage, chunk: ChunkItem | None, recovery: str, now: datetime) -> Dispatch:
        """The first dispatch of the letter by a recovery. Its age starts again."""
        return cls(letter, chunk, 1, recovery, now)

    def message(self) -> tuple[str, dict[str, str]]:
        """The body and the attributes. Commands to workers have their attempt in the body; others stay unchanged."""
        carried = {"attempt": str(self.attempt), "first_sent": timestamp(self.first_sent)}
        carried |= {"recovery": self.recovery} if self.recovery else {}
        carried |= {"archived": self.archived} if self.archived else {}
        if not isinstance(self.letter.data, ChunkProcess | TasksProcess):
            return self.letter.content, carried
        document = json.loads(self.letter.content)
        document["data"] |= {"attempt": self.attempt, "deferrals": self.chunk.deferrals if self.chunk else 0}
        if self.recovery:
            document["data"]["recovery"] = self.recovery
        return json.dumps(document), carried


def send_back(queue: str, dispatches: Iterable[Dispatch], transport: Transport, *, delay: int = 0) -> None:
    """Send letters to `queue` with a delivery delay of `delay` seconds. Raises TransientError if one is refused."""
    transport.send_back(queue, (dispatch.message() for dispatch in dispatches), delay_seconds=delay)
