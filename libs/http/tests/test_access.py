"""A service that is not the api, with an operation that reads and one that changes something."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
from fastapi import APIRouter, Body, FastAPI
from fastapi.testclient import TestClient

from prismline_contracts.jobs import ApiKeyItem, Scope, api_key_key, api_key_sha256, new_api_key
from prismline_coordination import CoordinationServer, RateLimit
from prismline_http import problems
from prismline_http.access import Access, KeyRoute, Operator, Reader
from prismline_http.auth import Keys
from prismline_http.headers import SecurityHeaders
from prismline_http.limits import BodyLimit
from prismline_http.sessions import CSRF_HEADER, SESSION_SECONDS, Sessions
from prismline_runtime import UnavailableError, service_logger

UPLOADS = "https://uploads.example.org"
router = APIRouter(route_class=KeyRoute)


@router.get("/tenant")
def tenant(caller: Reader) -> str:
    if caller.tenant == "unlucky":
        raise UnavailableError("the table does not answer")
    return caller.tenant


@router.post("/stop")
def stop(_caller: Operator, _body: Annotated[list[int], Body()]) -> str:
    return "stopped"


@dataclass
class PaperStore:
    """The table of keys in memory."""

    items: dict[str, ApiKeyItem] = field(default_factory=dict)

    def api_key(self, digest: str) -> ApiKeyItem | None:
        return self.items.get(api_key_key(digest)["PK"])

    def note_tenant(self, tenant: str) -> None:
        """The tenants have no part in these tests."""

    def secret(self, name: str) -> bytes:
        return name.encode()

    def create(self, *scopes: Scope, tenant: str = "acme") -> str:
        key, item = new_api_key(tenant, "test", scopes, "2026-03-01T12:00:00.000Z")
        self.items[item.PK] = item
        return key


@dataclass
class World:
    store: PaperStore = field(default_factory=PaperStore)

    def client(self, *, burst: int = 100) -> TestClient:
        limit = RateLimit(CoordinationServer.at(None))
        access = Access(self.store, Keys(self.store, 0.0, limit), limit, 0.01, burst)  # type: ignore[arg-type]
        app = FastAPI()
        access.install(app)
        problems.install(app, service_logger("other"))
        app.include_router(router)
        app.add_middleware(BodyLimit, max_bytes=1000, advice="Send less.")
        app.add_middleware(SecurityHeaders, pages="/pages", upload_origin=UPLOADS)
        return TestClient(app, raise_server_exceptions=False)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_names_its_tenant_and_allows_what_its_scopes_say() -> None:
    world = World()
    client, headers = world.client(), bearer(world.store.create("read"))
    assert client.get("/tenant", headers=headers).json() == "acme"
    answer = client.post("/stop", headers=headers, json=[1])
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:prismline:problem:scope-missing")
    assert client.post("/stop", headers=bearer(world.store.create("operate")), json=[1]).json() == "stopped"


def test_every_error_is_a_problem_document_that_says_what_to_do() -> None:
    world = World()
    client, key = world.client(), world.store.create("read", "operate")
    for answer, status, advice in (
        (client.get("/tenant"), 401, "Send an API key"),
        (client.get("/nowhere"), 404, "/openapi.json"),
        (client.get("/stop"), 405, "Allow header"),
        (client.post("/stop", headers=bearer(key), json=["x"]), 422, "Correct it"),
        (client.post("/stop", headers=bearer(key), content=b"x" * 2000), 413, "Send less."),
        (client.get("/tenant", headers=bearer(world.store.create("read", tenant="unlucky"))), 503, "Repeat"),
    ):
        assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
        assert advice in answer.json()["detail"]


def test_a_tenant_that_makes_too_many_requests_is_told_how_long_to_wait() -> None:
    world = World()
    client, headers = world.client(burst=2), bearer(world.store.create("read"))
    assert [client.get("/tenant", headers=headers).status_code for _ in range(3)] == [200, 200, 429]
    assert 90 <= int(client.get("/tenant", headers=headers).headers["Retry-After"]) <= 100
    other = bearer(world.store.create("read", tenant="other"))
    assert client.get("/tenant", headers=other).status_code == 200


def test_a_session_of_another_service_of_the_deployment_holds_here() -> None:
    """The services have one secret. The console opens the session, and a page of it calls this service."""
    world = World()
    key = world.store.create("read", "operate")
    session = Sessions(world.store.secret("sessions")).open(api_key_sha256(key))
    client = world.client()
    client.cookies.set(Sessions(world.store.secret("sessions")).cookie_name, session.cookie)
    assert client.get("/tenant").json() == "acme"
    assert client.post("/stop", json=[1]).json()["type"] == "urn:prismline:problem:token-missing"
    assert client.post("/stop", json=[1], headers={CSRF_HEADER: session.csrf_token}).json() == "stopped"


@pytest.mark.parametrize(
    ("path", "kept"), [("/pages/runs", "no-store"), ("/pages/static/a.js", "no-cache"), ("/tenant", None)]
)
def test_every_answer_has_the_security_headers_and_no_page_is_kept(path: str, kept: str | None) -> None:
    answer = World().client().get(path)
    assert f"connect-src 'self' {UPLOADS};" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers.get("Cache-Control") == kept


def test_a_forged_or_expired_cookie_is_not_a_session() -> None:
    now = [1000.0]
    sessions = Sessions(b"s", clock=lambda: now[0])
    session = sessions.open("ab" * 32)
    cookies = {sessions.cookie_name: session.cookie}
    assert sessions.find(cookies) == session
    assert Sessions(b"t").find({Sessions(b"t").cookie_name: session.cookie}) is None
    assert sessions.find({sessions.cookie_name: session.cookie[:-2] + "xx"}) is None
    now[0] += SESSION_SECONDS
    assert sessions.find(cookies) is None
