"""Serve an ASGI application over HTTP: `python -m prismline_runtime.server prismline_alerting.interactions:create_app`.

On SIGTERM or SIGINT the server accepts no more connections, and open requests have the grace time to finish. The log of
uvicorn goes to the service's structured log. Requests are not logged, because their URLs may contain secrets. A
connection whose request is not whole in time is closed.

This is a separate module because only services that serve HTTP install uvicorn (`prismline-runtime[http]`).
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from functools import partial
from types import FrameType

import uvicorn
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from prismline_runtime.connections import Connection, Waiting, most_connections
from prismline_runtime.settings import ConsumerSettings, ServerSettings
from prismline_runtime.shutdown import stopping
from prismline_runtime.telemetry import service_logger


def main() -> None:
    """Entry point of the module."""
    parser = argparse.ArgumentParser(prog="prismline_runtime.server", description="Serve an ASGI application.")
    parser.add_argument("factory", help="module:function that makes the application, without arguments")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at (default: %(default)s)")
    parser.add_argument("--fd", type=int, help="file descriptor of an inherited socket, instead of host and port")
    arguments = parser.parse_args()

    settings = ServerSettings()
    waiting = Waiting(settings.request_seconds, most_connections(settings.max_connections))
    copy_config_to_registered_loggers(source_logger=service_logger("runtime"), include={"uvicorn"})
    config = uvicorn.Config(
        arguments.factory,
        factory=True,
        host=arguments.host,
        port=arguments.port,
        http=partial(Connection, waiting=waiting),  # type: ignore[arg-type]  # uvicorn calls it as a class
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(ConsumerSettings().grace_seconds),
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises the signal again after it has shut down
        signal.signal(number, lambda *_: sys.exit(0))
    sockets = None if arguments.fd is None else [socket.socket(fileno=arguments.fd)]
    _Server(config).run(sockets=sockets)


class _Server(uvicorn.Server):
    """A server that tells the application when it shuts down, so that endless responses do not delay it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down."""
        stopping.set()
        super().handle_exit(sig, frame)


if __name__ == "__main__":
    main()
