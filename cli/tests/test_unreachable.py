"""What commands say, and their exit code, while the api is down, or stopped like a process that hangs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prismline_cli.whole import app

RUN = "5a1e0000-0000-4000-8000-000000000000"
COMMANDS = [
    ("runs",),
    ("run", RUN),
    ("watch", RUN),
    ("chunks", RUN),
    ("tasks", RUN),
    ("stuck", RUN),
    ("failures", RUN),
    ("cancel", RUN),
    ("retry", RUN),
    ("deadletters", "ls"),
    ("deadletters", "show", "m"),
    ("deadletters", "stats"),
    ("deadletters", "recover"),
    ("deadletters", "operation", "op"),
    ("results", RUN, "--to", "out"),
    ("plot", RUN),
    ("compare", RUN, RUN),
    ("segments", "--session", "s"),
    ("alerts", "status"),
    ("alerts", "mute"),
    ("alerts", "unmute"),
]


@pytest.fixture
def socket_of_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket at the address of the api. Nothing listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PRISMLINE_HOME", str(tmp_path))
        monkeypatch.setenv("PRISMLINE_API_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("PRISMLINE_API_KEY", "k")
        yield server


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_api_that_is_down(socket_of_api: socket.socket, command: tuple[str, ...]) -> None:
    assert "Connection refused" in said(socket_of_api, command)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_api_that_accepts_connections_and_never_answers(
    socket_of_api: socket.socket, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_of_api.listen()
    monkeypatch.setattr("prismline_client.Client.__init__.__kwdefaults__", {"timeout": 0.2})
    assert "no answer within 0.2 s" in said(socket_of_api, command)


def said(server: socket.socket, command: tuple[str, ...]) -> str:
    """The error of the command, which names the address of the api and is one sentence."""
    done = CliRunner().invoke(app, [*command, "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["exit_code"]) == (3, 3)
    error = str(document["error"])
    assert done.stderr == f"{error}\n"
    assert f"Cannot reach the API at http://127.0.0.1:{server.getsockname()[1]}: " in error
    assert "Traceback" not in error
    return error
