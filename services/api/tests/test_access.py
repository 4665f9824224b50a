"""Access: keys, scopes, tenants, cursors, and limits of requests."""

from __future__ import annotations

from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_world import Api, ApiWorld, urls_job
from fastapi.testclient import TestClient

from prismline_api.app import build_app
from prismline_contracts.deadletters import DeadLetterRecord, dead_letter_key
from prismline_contracts.jobs import api_key_key, api_key_sha256
from prismline_coordination import CoordinationServer, RateLimit
from prismline_ledger import TaskEnding
from prismline_localstack.testing import ValkeyServer

emulator = pytest.mark.emulator


@emulator
class TestKeys:
    @pytest.mark.parametrize(
        "header", [None, "Bearer prismline_nobody", "Bearer x", "Basic eDp5", "Bearer " + "x" * 999]
    )
    def test_a_request_without_a_valid_key_is_told_how_to_get_one(self, world: ApiWorld, header: str | None) -> None:
        answer = world.client.get("/v1/jobs", headers={"Authorization": header} if header else {})
        assert answer.status_code == 401
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "prismline jobs keys create" in answer.json()["detail"]

    def test_a_key_is_stored_as_its_hash_alone(self, world: ApiWorld) -> None:
        key = world.key()
        items = world.items("jobs")
        assert api_key_sha256(key) in str(items)
        assert key not in str(items)

    def test_a_revoked_key_is_refused(self, world: ApiWorld, acme: Api) -> None:
        acme.get("/jobs")
        world.change("jobs", api_key_key(api_key_sha256(acme.api_key)), revoked_at="2026-03-01T12:00:00.000Z")
        assert "revoked" in acme.get("/jobs", expect=401)["detail"]

    @pytest.mark.parametrize(
        ("scope", "statuses"), [("read", (200, 403)), ("submit", (403, 201)), ("operate", (403, 403))]
    )
    def test_a_key_may_do_what_its_scopes_say(self, world: ApiWorld, scope: Any, statuses: tuple[int, int]) -> None:
        api = world.caller(scopes=(scope,))
        assert (api("GET", "/jobs").status_code, api("POST", "/jobs", urls_job()).status_code) == statuses


@emulator
class TestLimits:
    def test_a_body_that_is_too_large_is_refused(self, acme: Api) -> None:
        answer = acme("POST", "/jobs", urls_job() | {"urls": ["https://example.org/" + "x" * 6_000_000]})
        assert answer.status_code == 413
        assert answer.json()["type"] == "urn:prismline:problem:body-too-large"
        assert "POST /v1/uploads" in answer.json()["detail"]

    def test_a_body_of_unknown_length_is_counted_as_it_arrives(self, world: ApiWorld, acme: Api) -> None:
        headers = {"Authorization": f"Bearer {acme.api_key}"}
        answer = world.client.post("/v1/jobs", content=(b"x" * 65_536 for _ in range(200)), headers=headers)
        assert answer.status_code == 413

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"urls": []}, "urls"),
            ({"urls": ["https://e.org"] * 1001}, "urls"),
            ({"open": True}, "exactly one"),
            ({"name": "a/b"}, "name"),
            ({"priority": 10}, "priority"),
            ({"deadline_at": "2020-01-01T00:00:00Z"}, "deadline_at"),
            ({"deadline_at": "tomorrow"}, "deadline_at"),
            ({"colour": "red"}, "colour"),
            ({"params": {"timeout_s": -1.0}}, "timeout_s"),
            ({"webhook": {"url": "file:///etc/passwd"}}, "webhook"),
            ({"webhook": {"url": "http://[::1"}}, "webhook.url"),
            ({"webhook": {"url": "http://example.org:99999999/"}}, "webhook.url"),
            ({"webhook": {"url": "https://example.org/", "secret": f"whsec_{'A' * 33}"}}, "webhook.secret"),
            ({"urls": ["https://example.org", "http://[::1"]}, "urls.1"),
            ({"urls": ["http://a..b/"]}, "urls.0"),
        ],
    )
    def test_a_field_that_is_wrong_is_named(self, acme: Api, change: dict[str, Any], field: str) -> None:
        answer = acme.post("/jobs", urls_job() | change, expect=422)
        assert field in answer["detail"]
        assert answer["title"] == "Unprocessable Entity" or answer["title"] == "Unprocessable Content"

    def test_a_body_that_is_not_json_is_named(self, world: ApiWorld, acme: Api) -> None:
        headers = {"Authorization": f"Bearer {acme.api_key}", "Content-Type": "application/json"}
        assert world.client.post("/v1/jobs", content=b"{", headers=headers).status_code == 422

    def test_an_unknown_path_says_where_the_paths_are(self, world: ApiWorld) -> None:
        answer = world.client.get("/v2/jobs")
        assert answer.status_code == 404
        assert "/openapi.json" in answer.json()["detail"]
        assert world.client.put("/v1/jobs").headers["Allow"] == "GET, POST"


@emulator
class TestBodies:
    """What the service does before it reads the body of a request."""

    @staticmethod
    def answer_before_the_body(url: str, path: str, headers: dict[str, str]) -> HTTPResponse:
        """The answer to a request that announces a large body and sends nothing of it."""
        client = HTTPConnection(urlsplit(url).netloc, timeout=10)
        client.putrequest("POST", path)
        for name, value in (headers | {"Content-Type": "application/json", "Content-Length": "4900000"}).items():
            client.putheader(name, value)
        client.endheaders()
        return client.getresponse()

    def test_no_operation_reads_the_body_of_a_request_without_a_valid_key(self, world: ApiWorld, url: str) -> None:
        paths = world.client.get("/openapi.json").json()["paths"]
        operations = [path for path, methods in paths.items() if "requestBody" in methods.get("post", {})]
        assert len(operations) >= 6
        for path in operations:
            for headers in ({}, {"Authorization": "Bearer prismline_nobody"}, {"Cookie": "prismline_session_x=y"}):
                answer = self.answer_before_the_body(url, path, headers)
                assert (answer.status, b"jobs keys create" in answer.read()) == (401, True), (path, headers)

    def test_too_many_requests_of_a_tenant_are_refused_before_their_bodies_are_read(
        self, world: ApiWorld, acme: Api, url: str
    ) -> None:
        for name, value in {"requests_per_second": 0.01, "request_burst": 1}.items():
            object.__setattr__(world.deps.access, name, value)
        acme.get("/jobs")
        headers = {"Authorization": f"Bearer {acme.api_key}"}
        assert self.answer_before_the_body(url, "/v1/jobs", headers).status == 429

    def test_a_sign_in_form_that_is_too_large_is_refused(self, world: ApiWorld, url: str) -> None:
        assert self.answer_before_the_body(url, "/console/login", {}).status == 413
        parts = (b"key=" + b"x" * 4096 for _ in range(2))
        assert world.client.post("/console/login", content=parts).status_code == 413


@emulator
class TestRateLimit:
    def test_too_many_requests_of_a_tenant_are_told_when_to_send_the_next(
        self, world: ApiWorld, acme: Api, valkey_server: ValkeyServer
    ) -> None:
        """Two instances share the limit, and another tenant has its own."""
        valkey = CoordinationServer.at(valkey_server.url)
        slow = world.deps.settings.model_copy(update={"requests_per_second": 0.01, "request_burst": 3})
        instances = [
            TestClient(build_app(replace(world.deps, settings=slow, limit=RateLimit(valkey)))) for _ in range(2)
        ]
        callers = [Api(instance, acme.api_key) for instance in instances]
        answers = [callers[number % 2]("GET", "/jobs") for number in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 90 <= int(answers[3].headers["Retry-After"]) <= 100
        assert answers[3].json()["type"] == "urn:prismline:problem:too-many-requests"
        Api(instances[0], world.key("other")).get("/jobs")
        valkey_server.kill()
        Api(instances[0], acme.api_key).get("/jobs")


@emulator
class TestTenants:
    def test_no_id_of_another_tenant_can_be_used(self, world: ApiWorld, acme: Api) -> None:
        """One tenant has one resource of each kind. Another tenant requests each of its ids on each path with an id."""
        job = acme.post("/jobs", urls_job())
        run_id = job["run"]["run_id"]
        task_id = acme.get(f"/runs/{run_id}/tasks")["items"][0]["task_id"]
        recovery = acme.post("/dead-letters/recover", {"run_id": run_id}, expect=202)["status_url"]
        ids = {
            "job_id": job["job_id"],
            "run_id": run_id,
            "task_id": task_id,
            "export_id": acme.post(f"/runs/{run_id}/export", expect=202)["export_id"],
            "operation_id": recovery.rpartition("/")[2],
            "other_run_id": run_id,
            "name": "rms",
            "level": "0",
            "column": "0",
            "row": "0",
            "x": "0",
            "y": "0",
            "day": "2026-03-01",
            "message_id": "m1",
            "cell": "0",
        }
        record = DeadLetterRecord(body="{}", run_id=run_id)
        world.deps.bucket.write(dead_letter_key(ids["day"], ids["message_id"]), record.model_dump_json().encode())
        other = world.caller("other")
        tried = 0
        for path, methods in world.client.get("/openapi.json").json()["paths"].items():
            if "{" not in path:
                continue
            for method, operation in methods.items():
                body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                document = None if body is None else world.example(body["schema"])
                answer = other(method.upper(), path.removeprefix("/v1").format(**ids), document, key="k")
                assert answer.status_code == 404, (method, path, answer.text)
                assert ids[path.partition("{")[2].partition("}")[0]] in answer.json()["detail"]
                tried += 1
        assert tried >= 12
        assert other.get("/jobs")["items"] == []
        assert other.get("/runs")["items"] == []


@emulator
class TestPages:
    def test_jobs_and_runs_come_newest_first_in_parts(self, acme: Api) -> None:
        made = [acme.post("/jobs", urls_job(1))["job_id"] for _ in range(5)]
        assert [job["job_id"] for job in acme.walk("/jobs", limit=2)] == made[::-1]
        assert [run["job_id"] for run in acme.walk("/runs", limit=2)] == made[::-1]

    def test_tasks_are_filtered_by_status(self, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        assert len(acme.walk(f"/runs/{run_id}/tasks", limit=2, status="pending")) == 5
        assert acme.walk(f"/runs/{run_id}/tasks", limit=2, status="failed") == []
        assert len(acme.walk(f"/runs/{run_id}/tasks", limit=2, status="PENDING")) == 5, "older clients send upper case"

    def test_tasks_are_found_by_the_beginning_of_their_url(self, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(5))["run"]["run_id"]
        first, *_ = (task["url"] for task in acme.walk(f"/runs/{run_id}/tasks", limit=2))
        assert [task["url"] for task in acme.walk(f"/runs/{run_id}/tasks", limit=2, url=first)] == [first]
        assert acme.walk(f"/runs/{run_id}/tasks", limit=2, url="https://elsewhere.org") == []
        assert len(acme.walk(f"/runs/{run_id}/tasks", limit=2, url=first[:12], status="pending")) == 5

    def test_a_run_whose_list_is_still_being_read_is_running_once_a_task_has_ended(
        self, world: ApiWorld, acme: Api
    ) -> None:
        run_id = acme.post("/jobs", urls_job(2))["run"]["run_id"]
        world.state(run_id, status="pending", survey="catalogue", created_at="2999-01-01T00:00:00Z")
        assert acme.get(f"/runs/{run_id}")["status"] == "pending"
        ledger = world.deps.ledger
        run = ledger.run(run_id)
        (task, *_) = ledger.start_tasks(run, list(ledger.tasks(run))[:1])
        ledger.end_tasks(run, [TaskEnding(task, error="404")])
        assert acme.get(f"/runs/{run_id}")["status"] == "running"
        everybody = world.caller("ops", ("read", "all"))
        for status, shown in (("running", True), ("pending", False)):
            assert (run_id in [each["run_id"] for each in acme.walk("/runs", limit=9, status=status)]) is shown
            assert (run_id in [each["run_id"] for each in everybody.walk("/runs", limit=9, status=status)]) is shown

    def test_a_run_is_found_by_the_beginning_of_its_id(self, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job(1))["run"]["run_id"]
        acme.post("/jobs", urls_job(1))
        assert [run["run_id"] for run in acme.walk("/runs", limit=2, name=run_id[:13])] == [run_id]

    def test_paging_through_a_run_that_is_being_written_shows_nothing_twice_and_all_that_was_there(
        self, world: ApiWorld, acme: Api
    ) -> None:
        job = acme.post("/jobs", urls_job() | {"async": True}, expect=202)
        run_id = job["run"]["run_id"]
        run = world.open_run(job, shard_count=4)
        added = world.deps.ledger.add_tasks(run, 0, ["https://e.org"] * 200)
        there = {name for ids in added.ids.values() for name in ids}
        seen, cursor, index = [], None, 200
        while True:
            page = acme.get(f"/runs/{run_id}/tasks", limit=30, **({"cursor": cursor} if cursor else {}))
            assert not page["final"]
            seen += [task["task_id"].rpartition(".")[2] for task in page["items"]]
            world.deps.ledger.add_tasks(run, index, ["https://e.org"] * 50)
            index += 50
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        assert len(seen) == len(set(seen))
        assert there <= set(seen)

    def test_a_cursor_of_another_list_is_refused(self, acme: Api) -> None:
        first, second = (acme.post("/jobs", urls_job(5))["run"]["run_id"] for _ in range(2))
        cursor = acme.get(f"/runs/{first}/tasks", limit=2)["next_cursor"]
        assert len(acme.get(f"/runs/{first}/tasks", limit=9, cursor=cursor)["items"]) == 3
        for path, more in (
            (f"/runs/{second}/tasks", {}),
            (f"/runs/{first}/tasks", {"status": "PENDING"}),
            ("/runs", {}),
        ):
            assert "next_cursor" in acme.get(path, expect=400, cursor=cursor, **more)["detail"]
