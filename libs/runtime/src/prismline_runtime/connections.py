"""Connections of the HTTP server: a client has a limited time to send a request, and there is a limited number of them.

A connection waits while the server has not received its whole request. It is closed when it has waited too long, or
when there are too many connections and it has waited longest. A client that sends its requests at once is not affected.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: The part of the files that a process may open that connections may use. The others are for its own clients.
SHARE_OF_FILES = 0.5
#: The answer to a request that was not whole in time.
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Waiting:
    """The connections that wait for their requests, and the limits of all connections of a server."""

    #: Time for a whole request, in seconds.
    seconds: float
    #: Most connections.
    most: int
    #: The end of the time of each connection that waits. The one that has waited longest is the first.
    ends: dict[Connection, asyncio.TimerHandle] = field(default_factory=dict)


class Connection(H11Protocol):
    """A connection of uvicorn that is closed if its client does not send a whole request in time."""

    def __init__(self, *args: Any, waiting: Waiting, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting = waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for the first request. Close the connection that has waited longest if there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self._waiting.most:
            next(iter(self._waiting.ends)).give_up()

    def data_received(self, data: bytes) -> None:
        """Wait while a request has begun and is not whole."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close the connection. Tell the client why, unless it sent nothing or has its answer already."""
        self._stop_waiting()
        head_is_whole = self.conn.their_state is h11.SEND_BODY
        answered = head_is_whole and self.cycle.response_started
        if not answered and (head_is_whole or self.conn.trailing_data[0]):
            self.transport.write(TOO_LATE)
        self.transport.close()

    def _wait(self) -> None:
        if self not in self._waiting.ends and not self.transport.is_closing():
            self._waiting.ends[self] = self.loop.call_later(self._waiting.seconds, self.give_up)

    def _stop_waiting(self) -> None:
        timer = self._waiting.ends.pop(self, None)
        if timer is not None:
            timer.cancel()


def most_connections(wanted: int) -> int:
    """`wanted`, or fewer if the process may not open so many files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, int(files * SHARE_OF_FILES))
