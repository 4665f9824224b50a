"""The server as a process: its responses, its log, its shutdown."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from prismline_runtime.connections import most_connections

#: `/slow`, `/never` and `/stream` print `begun`. Then they take a second, far longer, and as long as the server runs.
APP = """
import asyncio
from prismline_runtime.shutdown import stopping

def create_app():
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        if scope["path"] == "/fail":
            raise RuntimeError("no such luck")
        seconds = {"/slow": 1, "/never": 600}.get(scope["path"])
        if seconds:
            print("begun", flush=True)
            await asyncio.sleep(seconds)
        if scope["path"] == "/read":
            while (await receive()).get("more_body"):
                pass
        if scope["path"] == "/stream":
            print("begun", flush=True)
            while not stopping.is_set():
                await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
    return app
"""


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of a server for `APP`."""
    (folder / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        child = subprocess.Popen(
            [sys.executable, "-m", "prismline_runtime.server", "--fd", str(fd), "app:create_app"],
            env=os.environ | {"PYTHONPATH": str(folder), **settings},
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[fd],
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", child
        finally:
            child.kill()
            child.communicate()


def get(url: str) -> str:
    with urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def wait_until_begun(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert any(line == "begun\n" for line in child.stdout)


def test_on_sigterm_an_open_request_is_answered_and_the_exit_code_is_0(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, child), ThreadPoolExecutor() as pool:
        request = pool.submit(get, f"{url}/slow")
        wait_until_begun(child)
        child.terminate()
        assert request.result() == "done"
        assert child.wait(20) == 0


def test_an_endless_response_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    with serving(tmp_path, PRISMLINE_GRACE_SECONDS="600") as (url, child), ThreadPoolExecutor() as pool:
        request = pool.submit(get, f"{url}/stream")
        wait_until_begun(child)
        child.terminate()
        assert request.result() == "done"
        assert child.wait(20) == 0


def test_a_request_that_outlives_the_grace_time_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, PRISMLINE_GRACE_SECONDS="1") as (url, child), ThreadPoolExecutor() as pool:
        request = pool.submit(get, f"{url}/never")
        wait_until_begun(child)
        child.terminate()
        assert child.wait(20) == 0
        assert request.exception() is not None


def test_the_log_is_structured_shows_failures_and_no_address(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, child):
        assert get(f"{url}/?token=s3cret") == "done"
        with pytest.raises(HTTPError) as failure:
            get(f"{url}/fail?token=s3cret")
        assert failure.value.code == 500
        assert "luck" not in failure.value.read().decode()
        child.terminate()
        log, _ = child.communicate(timeout=20)
    lines = [json.loads(line) for line in log.splitlines()]
    assert "s3cret" not in log
    assert [line["exception_name"] for line in lines if line["level"] == "ERROR"] == ["RuntimeError"]


HALF_REQUESTS = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "half a body": b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    "half a second request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
}


def opened(url: str, begun: bytes = b"") -> socket.socket:
    """A connection to the server that has sent `begun`."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)
    connection.sendall(begun)
    return connection


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    output = b""
    with suppress(ConnectionResetError):  # it closed the connection before it had read all that was sent
        while part := connection.recv(65_536):
            output += part
    return output


@pytest.mark.parametrize(("begun", "answers"), list(zip(HALF_REQUESTS, ([], [408], [408], [200]), strict=True)))
def test_a_connection_whose_request_is_not_whole_in_time_is_closed(
    tmp_path: Path, begun: str, answers: list[int]
) -> None:
    with serving(tmp_path, PRISMLINE_REQUEST_SECONDS="0.3") as (url, _), opened(url, HALF_REQUESTS[begun]) as half:
        output = everything(half)
    assert [int(line.split()[1]) for line in output.splitlines() if line.startswith(b"HTTP/1.1")] == answers


def test_a_request_that_comes_slowly_but_in_time_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _), opened(url) as slow:
        for part in (b"POST /read HTTP/1.1\r\n", b"Host: x\r\nContent-Length: 4\r\n", b"\r\nab", b"cd"):
            slow.sendall(part)
        assert slow.recv(65_536).startswith(b"HTTP/1.1 200")


def test_an_answer_may_take_longer_than_a_request(tmp_path: Path) -> None:
    with serving(tmp_path, PRISMLINE_REQUEST_SECONDS="0.3") as (url, _):
        assert get(f"{url}/slow") == "done"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allows this process to open enough files for a thousand connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4096), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
def test_beside_a_thousand_half_sent_requests_others_are_answered(tmp_path: Path) -> None:
    """The server keeps at most its number of connections, and closes those that have waited longest."""
    with serving(tmp_path, PRISMLINE_MAX_CONNECTIONS="100") as (url, _), ExitStack() as stack:
        half = [stack.enter_context(opened(url, list(HALF_REQUESTS.values())[number % 3])) for number in range(1000)]
        assert [get(url) for _ in range(20)] == ["done"] * 20
        for connection in half[:800]:
            everything(connection)  # ends because the server has closed it


def test_half_sent_requests_do_not_end_one_that_is_being_answered(tmp_path: Path) -> None:
    with (
        serving(tmp_path, PRISMLINE_MAX_CONNECTIONS="3") as (url, child),
        ThreadPoolExecutor() as pool,
        ExitStack() as stack,
    ):
        request = pool.submit(get, f"{url}/slow")
        wait_until_begun(child)
        for _ in range(20):
            stack.enter_context(opened(url, HALF_REQUESTS["half a head"]))
        assert request.result() == "done"


@pytest.mark.parametrize(("files", "most"), [(256, 128), (100_000, 2000), (resource.RLIM_INFINITY, 2000)])
def test_half_of_the_files_that_a_process_may_open_are_for_connections(
    files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    assert most_connections(2000) == most
