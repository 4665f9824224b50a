"""The server as a process: its responses, its log, its shutdown."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

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
