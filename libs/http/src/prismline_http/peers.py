"""Which account of this machine opened a connection to this process. Linux only."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

#: The kernel's table of IPv4 connections: one line each, with the account of the process that opened it.
CONNECTIONS = Path("/proc/net/tcp")
#: Columns of the table: the local address of the connection's end, and the number of its account.
_LOCAL, _ACCOUNT = 1, 7


def is_own_account(client: tuple[str, int] | None) -> bool:
    """Whether a connection that comes from `client`, an address of this machine, belongs to this process's account.

    True on systems without the table, because they cannot tell.
    """
    if not CONNECTIONS.exists():
        return True
    return client is not None and account_of(client, CONNECTIONS.read_text().splitlines()[1:]) == os.getuid()


def account_of(client: tuple[str, int], lines: Iterable[str]) -> int | None:
    """The number of the account that owns the end `client` of a connection. None if no line has this end."""
    try:
        host = struct.unpack("!I" if sys.byteorder == "big" else "<I", socket.inet_aton(client[0]))[0]
    except OSError:
        return None
    end = f"{host:08X}:{client[1]:04X}"
    return next((int(columns[_ACCOUNT]) for columns in map(str.split, lines) if columns[_LOCAL] == end), None)
