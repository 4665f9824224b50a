"""The client against a small API on loopback."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prismline_client import ApiError, Client

RUN = {"run_id": "r", "job_id": "j", "name": "n", "workload": "urls", "created_at": "2026-03-10T12:00:00Z"}


class Api:
    """Gives the answers of `first`, then a list of five tasks in pages of two; records the requests."""

    def __init__(self) -> None:
        self.first: list[tuple[int, bytes, dict[str, str]]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                api.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, text, headers = api.first.pop(0) if api.first else (200, api.page(self.path), {})
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(text))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_parts: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def will_answer(self, status: int, document: Any, **headers: str) -> None:
        self.first.append((status, json.dumps(document).encode(), headers))

    def page(self, path: str) -> bytes:
        after = int(path.partition("cursor=")[2].partition("&")[0] or 0)
        size = min(2, int(path.partition("limit=")[2].partition("&")[0] or 2))
        task = {"status": "failed", "created_at": "2026-03-10T12:00:00Z", "attempts": 1}
        items = [task | {"task_id": f"r.{n}", "index": n} for n in range(after, min(5, after + size))]
        return json.dumps({"items": items} | ({"next_cursor": str(after + size)} if after + size < 5 else {})).encode()


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield api
    api.server.shutdown()
    thread.join()
    api.server.server_close()


@pytest.fixture
def client(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with Client(api.url, "prismline_k") as client:
        yield client


def test_a_list_is_read_page_by_page_up_to_its_limit(client: Client, api: Api) -> None:
    assert [task.index for task in client.tasks("r", 3, status="failed")] == [0, 1, 2]
    assert len(api.asked) == 2, "no page is fetched that is not needed"
    assert [task.index for task in client.tasks("r")] == [0, 1, 2, 3, 4]


def test_an_api_that_does_not_know_details_is_of_an_earlier_release(client: Client) -> None:
    task = next(client.tasks("r", details=True))
    with pytest.raises(ApiError, match="The API is of an earlier release"):
        _ = task.details


def test_a_problem_is_one_sentence_with_its_status(client: Client, api: Api) -> None:
    api.will_answer(404, {"detail": "There is no run r. Check the id."})
    with pytest.raises(ApiError, match="There is no run r") as refused:
        client.run("r")
    assert (refused.value.status, refused.value.unreachable) == (404, False)
    api.first.append((500, b"<html>", {}))
    with pytest.raises(ApiError, match="The API answered 500") as failed:
        client.run("r")
    assert failed.value.unreachable


def test_a_request_is_repeated_with_the_same_key_as_long_as_it_may_succeed(client: Client, api: Api) -> None:
    for status in (503, 429):
        api.will_answer(status, {"detail": "later"}, **{"Retry-After": "1"})
    api.will_answer(202, {"requested": "cancel"})
    client.cancel("r")
    assert len(api.asked) == 3
    assert len({headers["idempotency-key"] for _, _, headers, _ in api.asked}) == 1
    for _ in range(5):
        api.will_answer(429, {"detail": "Too many requests. Wait a second."})
    with pytest.raises(ApiError, match="Too many requests") as refused:
        client.cancel("r")
    assert refused.value.unreachable
    assert not api.first


def test_a_key_that_no_header_can_hold_is_refused(client: Client, api: Api) -> None:
    with pytest.raises(ApiError, match="not ASCII"):
        client.submit({}, key="\x80")
    assert api.asked == []


def test_nobody_answers() -> None:
    with pytest.raises(ApiError, match="Cannot reach the API") as failed, Client("http://127.0.0.1:9", "k") as client:
        client.run("r")
    assert (failed.value.status, failed.value.unreachable) == (None, True)
    with pytest.raises(ApiError, match="is not a URL"):
        Client("http://127.0.0.1:port", "k")


def test_waiting_ends_when_the_run_has_ended_and_nothing_continues(client: Client, api: Api) -> None:
    run = RUN | {"unit": "task"}
    api.will_answer(200, run | {"status": "running", "ended": False})
    api.will_answer(200, run | {"status": "cancelled", "ended": False})
    api.will_answer(
        200,
        run | {"status": "completed", "ended": True, "actions": [{"name": "cancel", "allowed": False, "reason": "x"}]},
    )
    ended = client.wait("r")
    assert (ended.status, ended.action("cancel").reason) == ("completed", "x")
    api.will_answer(200, run | {"status": "running", "ended": False})
    with pytest.raises(TimeoutError, match="is running after 0 s"):
        client.wait("r", timeout=0)


def test_the_links_of_s3_do_not_get_the_key(client: Client, api: Api, tmp_path: Path) -> None:
    source, target = tmp_path / "list.csv.gz", tmp_path / "copy"
    source.write_bytes(b"zipped")
    api.will_answer(201, {"upload_id": "u1", "url": f"{api.url}/bucket/list", "headers": {"Content-Length": "6"}})
    api.will_answer(200, {})
    assert client.upload(source, "csv") == "u1"
    api.first.append((200, b"content", {}))
    client.download(f"{api.url}/bucket/list", target)
    assert target.read_bytes() == b"content"
    assert json.loads(api.asked[0][3]) == {"format": "csv", "gzip": True, "size_bytes": 6}
    assert api.asked[1][3] == b"zipped"
    assert ["authorization" in headers for _, _, headers, _ in api.asked] == [True, False, False]


def test_a_repeated_upload_has_the_key_of_its_content_and_may_have_been_sent_before(
    client: Client, api: Api, tmp_path: Path
) -> None:
    source = tmp_path / "list.jsonl"
    keys = []
    for content, status in (("1", 200), ("1", 412), ("2", 200)):
        source.write_text(content)
        api.will_answer(201, {"upload_id": "u", "url": f"{api.url}/bucket/list", "headers": {"Content-Length": "1"}})
        api.will_answer(status, {})
        assert client.upload(source, "jsonl", key="mine") == "u"
        keys.append(api.asked[-2][2]["idempotency-key"])
    assert keys[0] == keys[1] != keys[2]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)


@pytest.mark.parametrize("run_id", ["../jobs", "a/b"])
def test_an_id_cannot_name_another_path(client: Client, api: Api, run_id: str) -> None:
    api.will_answer(404, {"detail": "not found"})
    with pytest.raises(ApiError):
        client.run(run_id)
    assert "/" not in api.asked[0][1].removeprefix("/v1/runs/")
    with pytest.raises(ApiError, match="empty"):
        client.run(" ")


def test_the_address_is_that_of_the_system_on_this_machine(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISMLINE_HOME", str(tmp_path))
    monkeypatch.delenv("PRISMLINE_API_KEY", raising=False)
    monkeypatch.delenv("PRISMLINE_API_URL", raising=False)
    with pytest.raises(ApiError, match="prismline up"):
        Client.open()
    (tmp_path / "environment").write_text(f"export ENVIRONMENT=local\nexport PRISMLINE_API_URL='{api.url}'\n")
    (tmp_path / "api-key").write_text("prismline_of_the_home\n")
    monkeypatch.setenv("PRISMLINE_API_URL", "http://127.0.0.1:9")
    next(Client.open().tasks("r"))
    monkeypatch.setenv("PRISMLINE_API_KEY", "prismline_mine")
    next(Client.open().tasks("r"))
    assert [headers["authorization"] for _, _, headers, _ in api.asked] == [
        "Bearer prismline_of_the_home",
        "Bearer prismline_mine",
    ]
