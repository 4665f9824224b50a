"""Servers on this machine: find a port, listen, and check whether a server answers."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

#: The only address at which processes of the harness listen.
LOOPBACK = "127.0.0.1"
#: Paths of the emulator: its health check, the request to store its state, and the ages of its messages.
HEALTH_PATH, SAVE_PATH, AGES_PATH = "/_ministack/health", "/_prismline/save", "/_prismline/ages"
#: Environment variables of the emulator, lists with commas: the host names under which clients know it, beside
#: those of this machine, and the origins whose pages may call it.
HOSTS_VARIABLE, ORIGINS_VARIABLE = "PRISMLINE_EMULATOR_HOSTS", "PRISMLINE_EMULATOR_ORIGINS"
#: Environment variables of the emulator: set if it offers what functions need, and if it stores its state
#: without a request to do so.
FUNCTIONS_VARIABLE, KEEP_VARIABLE = "PRISMLINE_EMULATOR_FUNCTIONS", "PRISMLINE_EMULATOR_KEEP"

#: Time limit in seconds for the first answer of an external emulator, which may load its modules only then.
FIRST_ANSWER_SECONDS = 60.0


def answers(endpoint: str, path: str = "/", *, timeout: float = 5.0) -> bool:
    """Whether an HTTP server at `endpoint` answers a GET of `path` in time, with anything but a server error."""
    address = urlsplit(endpoint)
    connect = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = connect(address.hostname or "", address.port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def accepts(url: str, *, timeout: float = 1.0) -> bool:
    """Whether something accepts connections at the host and port of `url`."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), timeout):
            return True
    except OSError:
        return False


def free_port(preferred: int | None = None) -> int:
    """A port that is free at the moment: `preferred` if it is free, else any."""
    if preferred is not None:
        with suppress(OSError), listen(preferred):
            return preferred
    with listen() as probe:
        port: int = probe.getsockname()[1]
        return port


def listen(port: int = 0) -> socket.socket:
    """A socket that listens at `port`, or at any free port if it is 0. Raises OSError if the port is taken.

    Its connections send at once. asyncio sets this only for sockets that it makes itself: without it, the kernel holds
    the body of an answer back until the client has acknowledged the headers, which takes 40 ms.
    """
    listener = socket.create_server((LOOPBACK, port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_from_page(headers: Iterable[str]) -> bool:
    """Whether a web page sent a request with headers of these names.

    Browsers send no such header with a GET to a domain that resolves to this machine: check the Host as well.
    """
    return not {"origin", "sec-fetch-site"}.isdisjoint(name.lower() for name in headers)


def origins_of(url: str) -> str:
    """The origins of the pages at a URL of this machine, which browsers also know as localhost. A list with commas."""
    return f"{url},{url.replace(LOOPBACK, 'localhost')}"


def url_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    return f"http://{LOOPBACK}:{listener.getsockname()[1]}"
