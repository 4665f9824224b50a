"""Sockets that listen on this machine."""

from __future__ import annotations

import socket

from prismline_emulator.endpoints import listen


def test_an_answer_is_sent_at_once() -> None:
    """Otherwise the kernel holds the body back until the client has acknowledged the headers."""
    with listen() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
