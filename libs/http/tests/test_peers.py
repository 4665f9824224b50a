"""The account of the machine to which a connection belongs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from prismline_http.peers import CONNECTIONS, account_of, is_own_account

pytestmark = pytest.mark.skipif(not CONNECTIONS.exists(), reason="this system has no table of connections")

#: A script for bash, which every account may run: it connects to a port and waits.
CLIENT = "exec 3<>/dev/tcp/127.0.0.1/$0; read <&3"
#: The account `nobody` of Linux.
NOBODY = 65534


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_connection_of_this_account_is_known(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as served:
        assert is_own_account(served.getpeername())


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start a process of another account: run it as root")
def test_a_connection_of_another_account_is_not_taken_for_ones_own(listener: socket.socket) -> None:
    client = subprocess.Popen(["bash", "-c", CLIENT, str(listener.getsockname()[1])], user=NOBODY)
    with listener.accept()[0] as served:
        address = served.getpeername()
        assert not is_own_account(address)
        assert account_of(address, CONNECTIONS.read_text().splitlines()[1:]) == NOBODY
    client.wait(20)


@pytest.mark.parametrize("client", [None, ("203.0.113.7", 4000), ("testclient", 50000), ("127.0.0.1", 0)])
def test_an_address_that_no_connection_of_this_machine_has_is_not_ones_own(client: tuple[str, int] | None) -> None:
    assert not is_own_account(client)
