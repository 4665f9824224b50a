"""`prismline jobs` against a fake API on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from cli_world import CliWorld
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from prismline_contracts.jobs import TENANTS_PK, jobs_table_name
from prismline_localstack.testing import serving
from prismline_runtime import Table


class FakeApi:
    """A fake of the API that records its requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        #: Answers to give before the usual ones: status, document, headers.
        self.first: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.app = FastAPI()
        self.app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])(self.answer)

    async def answer(self, request: Request) -> JSONResponse:
        raw = await request.body()
        body = raw if request.method == "PUT" else await request.json() if raw else None
        self.asked.append((request.method, request.url.path, body, dict(request.headers)))
        if self.first:
            status, document, headers = self.first.pop(0)
            return JSONResponse(document, status, headers=headers)
        if request.url.path == "/v1/uploads":
            url = str(request.base_url) + "bucket/list"
            return JSONResponse({"upload_id": "u1", "url": url, "headers": {"Content-Type": "text/plain"}}, 201)
        if request.url.path.endswith("/tasks") and request.method == "GET":
            after = int(request.query_params.get("cursor", "0"))
            size = min(int(request.query_params["limit"]), 3)
            items = [{"task_id": f"r.{after + n}", "status": "PENDING"} for n in range(size)]
            return JSONResponse({"items": items, "next_cursor": str(after + size), "final": True})
        return JSONResponse({"job_id": "j1", "run": {"run_id": "r1"}}, 201)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    fake = FakeApi()
    with serving(fake.app) as url:
        monkeypatch.setenv("PRISMLINE_API_URL", url)
        monkeypatch.setenv("PRISMLINE_API_KEY", "prismline_k")
        monkeypatch.setattr("time.sleep", lambda _seconds: None)
        yield fake


pytestmark = pytest.mark.emulator


@pytest.mark.parametrize("tolerated", ["--tolerated-failure-percent", "--tolerate"])
def test_urls_are_submitted_with_the_key_and_the_options(world: CliWorld, api: FakeApi, tolerated: str) -> None:
    words = ("--max-concurrency", "7", tolerated, "2.5", "--async", "--idempotency-key", "k1")
    words = (*words, "--tolerated-failures", "0")
    assert world.json("jobs", "submit", "pages", "https://e.org/1", *words)["job_id"] == "j1"
    ((method, path, body, headers),) = api.asked
    assert (method, path) == ("POST", "/v1/jobs")
    assert body == {
        "workload": "urls",
        "name": "pages",
        "urls": ["https://e.org/1"],
        "async": True,
        "max_concurrency": 7,
        "tolerated_failure_percent": 2.5,
        "tolerated_failures": 0,
    }
    assert (headers["authorization"], headers["idempotency-key"]) == ("Bearer prismline_k", "k1")


def test_a_file_is_uploaded_first_and_its_format_follows_from_its_name(
    world: CliWorld, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "list.csv.gz"
    file.write_bytes(b"zipped")
    world.run("jobs", "submit", "pages", "--file", str(file))
    uploads, put, submitted = api.asked
    assert uploads[2] == {"format": "csv", "gzip": True, "size_bytes": 6}
    assert (put[0], put[2]) == ("PUT", b"zipped")
    assert "authorization" not in put[3]
    assert submitted[2] == {"workload": "urls", "name": "pages", "upload": "u1"}


def test_a_list_is_read_page_by_page_up_to_its_limit(world: CliWorld, api: FakeApi) -> None:
    assert [task["task_id"] for task in world.json("jobs", "tasks", "r", "--limit", "7")] == [
        f"r.{n}" for n in range(7)
    ]


def test_the_sentence_of_a_problem_ends_the_command(world: CliWorld, api: FakeApi) -> None:
    api.first = [(404, {"detail": "There is no job j2. Check the id."}, {})]
    assert "There is no job j2" in world.run("jobs", "show", "j2", expect=2).stderr


def test_a_request_is_retried_with_the_same_key_after_an_outage_and_a_rate_limit(world: CliWorld, api: FakeApi) -> None:
    api.first = [(503, {"detail": "later"}, {"Retry-After": "2"}), (429, {"detail": "later"}, {})]
    world.run("jobs", "rerun", "j1", "--failed")
    assert len({headers["idempotency-key"] for *_, headers in api.asked}) == 1
    assert [body for _, _, body, _ in api.asked] == [{"only": "failed"}] * 3


def test_a_dry_run_of_a_rerun_starts_nothing(world: CliWorld, api: FakeApi) -> None:
    world.run("jobs", "rerun", "j1", "--failed", "--dry-run")
    ((method, path, *_),) = api.asked
    assert (method, path) == ("GET", "/v1/jobs/j1/rerun")


@pytest.mark.parametrize(("words", "only"), [((), "all"), (("--failed",), "failed"), (("--rest",), "rest")])
def test_a_rerun_takes_what_the_options_say(world: CliWorld, api: FakeApi, words: tuple[str, ...], only: str) -> None:
    world.run("jobs", "rerun", "j1", *words)
    assert api.asked[0][2] == {"only": only}


def test_an_id_cannot_name_another_path(world: CliWorld, api: FakeApi) -> None:
    world.run("jobs", "show", "../runs/r1")
    assert api.asked[0][1] != "/v1/runs/r1"
    assert "empty" in world.run("jobs", "show", " ", expect=2).stderr


def test_without_an_api_the_command_says_how_to_get_one(world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMLINE_API_URL", raising=False)
    assert "prismline up" in world.run("jobs", "ls", expect=3).stderr


def test_a_key_is_made_for_a_tenant_and_its_scopes(world: CliWorld) -> None:
    made = world.json("jobs", "keys", "create", "acme", "--scope", "read")
    assert made["key"].startswith("prismline_")
    assert (made["tenant"], made["scopes"]) == ("acme", ["read"])
    tenants = Key("PK").eq(TENANTS_PK)
    table = Table(world.connection.dynamodb, jobs_table_name(world.connection.environment))
    assert [item["SK"] for item in table.query(tenants)] == ["acme"], "its folders belong to it from now on"
    assert "There is no scope 'root'" in world.run("jobs", "keys", "create", "acme", "--scope", "root", expect=2).stderr
    assert "tenant" in world.run("jobs", "keys", "create", "a b", expect=2).stderr
