"""The console: sign-in, security headers, forged requests, and HTML in ids that stays text."""

from __future__ import annotations

import html.parser
import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import Api, ApiWorld, urls_job
from fastapi.testclient import TestClient

from prismline_api import console
from prismline_api.app import build_app
from prismline_contracts.base import timestamp
from prismline_contracts.commands import RunSplit
from prismline_contracts.jobs import api_key_key, api_key_sha256
from prismline_http.peers import is_own_account
from prismline_http.sessions import CSRF_HEADER
from prismline_ledger import NewRun
from prismline_runtime import Work

emulator = pytest.mark.emulator


def browser(
    world: ApiWorld,
    host: str = "http://127.0.0.1:8123",
    is_own_account: Callable[[tuple[str, int] | None], bool] = is_own_account,
    **settings: Any,
) -> TestClient:
    """A browser without cookies, for a console with these settings."""
    settings = world.deps.settings.model_copy(update=settings)
    deps = replace(world.deps, settings=settings, is_own_account=is_own_account)
    return TestClient(build_app(deps), base_url=host, follow_redirects=False)


def local(
    world: ApiWorld,
    host: str = "http://127.0.0.1:8123",
    scopes: Any = ("read", "submit", "operate"),
    *,
    own: bool = True,
) -> TestClient:
    """A browser for the console of a local system, which needs no sign-in. own: whether its account runs the system."""
    digest = api_key_sha256(world.key("acme", scopes))
    return browser(world, host, is_own_account=lambda _: own, console_sign_in="none", console_key_sha256=digest)


def token(page: str) -> str:
    """The session's token, which a page carries."""
    found = re.search(r'name="prismline-csrf" content="([0-9a-f]{64})"', page)
    assert found, page
    return found[1]


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(page)
    return parser.tags


@emulator
class TestSignIn:
    def test_a_page_without_a_session_leads_to_the_form_and_back(self, world: ApiWorld) -> None:
        client = browser(world)
        answer = client.get("/console/runs?status=failed")
        assert (answer.status_code, answer.headers["Location"]) == (
            303,
            "/console/login?next=/console/runs%3Fstatus%3Dfailed",
        )
        signed_in = client.post(answer.headers["Location"], data={"key": world.key()})
        assert (signed_in.status_code, signed_in.headers["Location"]) == (303, "/console/runs?status=failed")
        assert client.get("/console/runs").status_code == 200
        assert client.get("/v1/runs").json()["items"] == []

    def test_the_root_leads_to_the_runs(self, world: ApiWorld) -> None:
        assert browser(world).get("/").headers["Location"] == "/console/runs"

    def test_a_wrong_key_is_told_how_to_get_one_and_opens_nothing(self, world: ApiWorld) -> None:
        client = browser(world)
        answer = client.post("/console/login", data={"key": "prismline_nobody"})
        assert answer.status_code == 401
        assert "prismline jobs keys create" in answer.text
        assert not client.cookies

    def test_the_cookie_holds_no_key_and_no_script_reads_it(self, world: ApiWorld) -> None:
        key = world.key()
        answer = browser(world, "https://console.example.org").post("/console/login", data={"key": key})
        cookie = answer.headers["Set-Cookie"]
        assert key not in cookie
        assert {"HttpOnly", "Secure", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}

    def test_a_session_ends_with_its_key(self, world: ApiWorld) -> None:
        client, key = browser(world), world.key()
        client.post("/console/login", data={"key": key})
        world.change("jobs", api_key_key(api_key_sha256(key)), revoked_at=timestamp())
        assert client.get("/v1/runs").status_code == 401
        assert client.get("/console/runs").headers["Location"].startswith("/console/login")

    def test_signing_out_ends_the_session(self, world: ApiWorld) -> None:
        client = browser(world)
        client.post("/console/login", data={"key": world.key()})
        assert client.post("/console/logout").status_code == 303
        assert client.get("/v1/runs").status_code == 401

    @pytest.mark.parametrize("elsewhere", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1"])
    def test_signing_in_leads_to_no_other_site(self, world: ApiWorld, elsewhere: str) -> None:
        answer = browser(world).post("/console/login", params={"next": elsewhere}, data={"key": world.key()})
        assert answer.headers["Location"] == "/console/runs"

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "http://[::1"])
    def test_another_site_cannot_sign_somebody_in(self, world: ApiWorld, origin: str) -> None:
        headers = {"Origin": origin}
        assert browser(world).post("/console/login", data={"key": world.key()}, headers=headers).status_code == 403


@emulator
class TestLocalSystem:
    @pytest.mark.parametrize("host", ["http://127.0.0.1:8123", "http://localhost:8123", "http://[::1]:8123"])
    def test_nobody_signs_in_on_this_machine(self, world: ApiWorld, host: str) -> None:
        client = local(world, host)
        assert client.get("/console/runs").status_code == 200
        assert client.get("/v1/runs").status_code == 200

    @pytest.mark.parametrize(
        "host", ["http://rebound.example:8123", "http://127.0.0.1.nip.example", "http://192.0.2.7"]
    )
    def test_a_foreign_name_that_resolves_to_this_machine_is_refused(self, world: ApiWorld, host: str) -> None:
        client = local(world, host)
        answer = client.get("/console/runs")
        assert answer.status_code == 403
        assert "127.0.0.1" in answer.json()["detail"]
        assert not client.cookies
        assert client.get("/v1/runs").status_code == 401

    def test_a_client_that_did_not_open_the_console_needs_a_key(self, world: ApiWorld) -> None:
        assert local(world).get("/v1/runs").status_code == 401


@emulator
class TestProxy:
    SECRET = "a secret that only the proxy has"

    def test_another_account_of_this_machine_gets_no_session_without_sign_in(self, world: ApiWorld) -> None:
        answer = local(world, own=False).get("/console/runs")
        assert (answer.status_code, "answers only the account that started it" in answer.json()["detail"]) == (
            403,
            True,
        )
        assert "Set-Cookie" not in answer.headers

    def test_only_requests_through_the_proxy_are_answered(self, world: ApiWorld) -> None:
        digest = api_key_sha256(world.key())
        client = browser(world, console_sign_in="proxy", console_key_sha256=digest, console_proxy_secret=self.SECRET)
        for headers in ({}, {"X-Prismline-Proxy-Secret": "a guess"}):
            assert client.get("/console/runs", headers=headers).status_code == 403
        through = {"X-Prismline-Proxy-Secret": self.SECRET, "X-Forwarded-Email": "ada@example.org"}
        page = client.get("/console/runs", headers=through)
        assert (page.status_code, "ada@example.org" in page.text) == (200, True)
        assert client.get("/v1/runs").status_code == 200

    def test_without_a_secret_nothing_is_answered(self, world: ApiWorld) -> None:
        client = browser(world, console_sign_in="proxy", console_key_sha256=api_key_sha256(world.key()))
        assert client.get("/console/runs", headers={"X-Prismline-Proxy-Secret": ""}).status_code == 403


@emulator
class TestForgedRequests:
    def test_a_change_needs_the_token_of_the_page(self, world: ApiWorld) -> None:
        client = local(world)
        right = token(client.get("/console/runs").text)
        other = token(local(world).get("/console/runs").text)
        statuses = [
            client.post("/v1/jobs", json=urls_job(), headers={CSRF_HEADER: given} if given else {}).status_code
            for given in (None, "", other, right[:-1], right)
        ]
        assert statuses == [403, 403, 403, 403, 201]

    @pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
    def test_a_page_of_another_site_registers_no_function(self, world: ApiWorld, media_type: str) -> None:
        world.deps.settings.functions_local = True
        client = local(world, scopes=("read", "submit", "operate", "all"))
        client.get("/console/runs")
        limits = {"timeout": 60, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024}
        function = {"name": "evil", "code": "a" * 64, "item": {}, "parameters": {}, "limits": limits}
        for local_ in ({}, {"local": {"python": "/usr/bin/python3", "paths": ["/tmp"]}}):
            headers = {"Content-Type": media_type, "Origin": "https://evil.example"}
            body = json.dumps(function | local_)
            assert client.post("/v1/workloads", content=body, headers=headers).status_code == 403
        assert client.options("/v1/workloads", headers=headers).headers.get("Access-Control-Allow-Origin") is None
        assert world.keys("workloads/") == []

    def test_an_api_key_needs_no_token_also_with_a_cookie(self, world: ApiWorld) -> None:
        client = local(world)
        client.get("/console/runs")
        headers = {"Authorization": f"Bearer {world.key()}"}
        assert client.post("/v1/jobs", json=urls_job(), headers=headers).status_code == 201


@emulator
class TestPages:
    PATHS = (
        "/console/runs",
        "/console/runs/some-run",
        "/console/runs/some-run/cube",
        "/console/compare?a=some-run&b=another",
        "/console/login",
    )

    def test_every_answer_forbids_what_the_console_does_not_need(self, world: ApiWorld) -> None:
        client = local(world)
        for path in (*self.PATHS, "/v1/runs", "/console/static/js/dom.js", "/nowhere"):
            headers = client.get(path).headers
            policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == "'self'"
            assert policy["frame-ancestors"] == "'none'"
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"

    def test_files_may_be_uploaded_to_the_host_of_presigned_links(self, world: ApiWorld) -> None:
        upload = world.caller().post("/uploads", {"format": "fits", "size_bytes": 10})
        origin = re.match(r"https?://[^/]+", upload["url"])
        assert origin
        policy = world.client.get("/v1/jobs").headers["Content-Security-Policy"]
        assert f"connect-src 'self' {origin[0]}" in policy

    def test_pages_hold_no_script_and_no_style_of_their_own(self, world: ApiWorld) -> None:
        client = local(world)
        for path in self.PATHS:
            for tag, attributes in tags(client.get(path, follow_redirects=True).text):
                assert tag != "style"
                assert tag != "script" or (attributes.get("src") or "").startswith("/console/static/")
                assert not {name for name in attributes if name == "style" or name.startswith("on")}

    def test_every_file_that_a_page_names_is_served(self, world: ApiWorld) -> None:
        client = local(world)
        for path in self.PATHS:
            for _, attributes in tags(client.get(path, follow_redirects=True).text):
                for name in ("src", "href"):
                    if (address := attributes.get(name) or "").startswith("/console/"):
                        assert client.get(address).status_code == 200, address

    def test_modules_import_only_files_of_the_console(self, world: ApiWorld) -> None:
        client, seen = local(world), set()
        left = [f"/console/static/js/{name}.js" for name in ("runs", "run", "cube", "compare")]
        while left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert "innerHTML" not in answer.text
            names = re.findall(r'from "([\w./-]+)"', answer.text)
            left += [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in names]
        assert "/console/static/js/dom.js" in seen

    def test_an_id_that_holds_html_stays_text(self, world: ApiWorld) -> None:
        page = local(world).get("/console/runs/%22%3E%3Cscript%3Ealert(1)%3Cimg src=x onerror=alert(2)%3E").text
        assert "<script>alert" not in page
        assert "There is no run &#34;&gt;&lt;script&gt;alert(1)" in page
        scripts = [attributes["src"] for tag, attributes in tags(page) if tag == "script"]
        assert scripts == ["/console/static/js/theme.js", "/console/static/js/not-found.js"]

    def test_no_page_holds_a_key_or_its_hash(self, world: ApiWorld) -> None:
        key = world.key()
        client = browser(world)
        client.post("/console/login", data={"key": key})
        page = client.get("/console/runs").text
        assert key not in page
        assert api_key_sha256(key) not in page

    def test_files_are_asked_for_again_by_etag(self, world: ApiWorld) -> None:
        first = world.client.get("/console/static/js/dom.js")
        assert first.headers["Cache-Control"] == "no-cache"
        again = world.client.get("/console/static/js/dom.js", headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304


@emulator
class TestWhoSeesWhat:
    def test_a_session_sees_its_tenant_alone(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
        client = browser(world)
        client.post("/console/login", data={"key": world.key("other")})
        assert client.get("/v1/runs").json()["items"] == []
        assert client.get(f"/v1/runs/{run_id}").status_code == 404

    def test_the_scope_all_shows_the_runs_of_everybody_and_of_nobody(self, world: ApiWorld, acme: Api) -> None:
        run_id = acme.post("/jobs", urls_job())["run"]["run_id"]
        world.state(run_id, created_at="2026-03-01T12:00:00.000Z", survey="pages", workload="urls", job_id="j")
        world.deps.ledger.open_run(
            NewRun(
                run_id="by-manifest",
                survey="grs",
                job_id="j2",
                workload="spectra",
                unit="chunk",
            )
        )
        world.state("by-manifest", created_at="2026-03-01T13:00:00.000Z", survey="grs", workload="spectra", job_id="j2")
        everybody = world.caller("local", ("read", "operate", "all"))
        assert [run["run_id"] for run in everybody.walk("/runs", limit=1)] == ["by-manifest", run_id]
        for name in ("by-manifest", run_id):
            assert everybody.get(f"/runs/{name}")["status"] == "running"
            assert everybody.post(f"/runs/{name}/cancel", expect=202)["requested"] == "cancel"
            recovery = everybody.post("/dead-letters/recover", {"run_id": name}, expect=202)["status_url"]
            assert everybody.get(recovery.removeprefix("/v1"))["status"] == "pending"
        assert world.caller("local", ("read",)).get("/runs")["items"] == []
        acme.get("/runs/by-manifest", expect=404)
        acme.get("/recoveries/recovery-by-manifest-0123456789ab", expect=404)
        everybody.get("/recoveries/recovery-nobody-0123456789ab", expect=404)

    def test_runs_are_listed_with_all_details(self, world: ApiWorld, acme: Api) -> None:
        for number in range(3):
            job = acme.post("/jobs", urls_job() | {"params": {"timeout_s": 7.0}})
            moment = f"2026-03-01T12:00:0{number}.000Z"
            world.state(job["run"]["run_id"], created_at=moment, survey="pages", workload="urls", job_id=job["job_id"])
        for caller in (acme, world.caller("local", ("read", "all"))):
            for run in caller.walk("/runs", limit=2, details="true"):
                assert run == caller.get(f"/runs/{run['run_id']}")
                assert (run["params"]["timeout_s"], run["ended"]) == (7.0, False)
                assert run["warnings"] == ["Partial: 0 of 3 tasks completed (3 not finished)."]
                assert {action["name"] for action in run["actions"]} >= {"cancel", "retry"}

    def test_a_run_that_no_service_has_opened_is_shown_with_the_error_that_it_repeats(self, world: ApiWorld) -> None:
        for _ in range(3):
            world.deps.ledger.note_error(Work("r", RunSplit.TYPE), service="splitter", error="KeyError: 'CTYPE3'")
        run = world.caller("local", ("read", "all")).get("/runs/r")
        assert (run["status"], run["repeated_error"]["error"]) == ("pending", "KeyError: 'CTYPE3'")
        world.caller("other").get("/runs/r", expect=404)

    def test_runs_are_filtered(self, world: ApiWorld, acme: Api) -> None:
        names = ["Alpha", "beta", "alphabet"]
        for number, name in enumerate(names):
            job = acme.post("/jobs", urls_job() | {"name": name})
            moment = f"2026-03-01T12:00:0{number}.000Z"
            world.state(job["run"]["run_id"], created_at=moment, survey=name, workload="urls", job_id=job["job_id"])
        for caller in (acme, world.caller("local", ("read", "all"))):
            assert {run["name"] for run in caller.walk("/runs", limit=1, name="ALPHA")} == {"Alpha", "alphabet"}
            assert caller.walk("/runs", limit=2, status="completed") == []
            assert len(caller.walk("/runs", limit=2, status="running", workload="urls")) == 3
            assert caller.walk("/runs", limit=2, workload="spectra") == []


def test_dark_colours_are_the_same_whether_the_system_or_the_reader_has_chosen_them() -> None:
    css = (Path(console.__file__).parent / "static" / "css" / "console.css").read_text()
    system = re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\}', css, re.DOTALL)
    chosen = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', css, re.DOTALL)
    assert system is not None
    assert chosen is not None
    assert system[1].split() == chosen[1].split()


@emulator
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/console/runs/r-unknown", "There is no run r-unknown."),
        ("/console/runs/r-unknown/cube", "There is no run r-unknown."),
        ("/console/nothing/here", "The console has no page /console/nothing/here."),
    ],
)
def test_what_does_not_exist_is_a_page_with_a_way_back(world: ApiWorld, address: str, said: str) -> None:
    answer = local(world).get(address)
    assert answer.status_code == 404
    assert said in answer.text
    links = [attributes.get("href") for name, attributes in tags(answer.text) if name == "a"]
    assert links.count("/console/runs") >= 2
    signed_out = browser(world, console_sign_in="key").get(address)
    assert signed_out.status_code == 303, "who is not signed in learns nothing of what exists"
    assert local(world).get("/console/static/nothing.js").headers["Content-Type"].startswith("application/problem+json")
