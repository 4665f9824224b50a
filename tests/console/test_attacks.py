"""Hostile pages in a browser on the machine of the system: none of them reaches the emulator."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from prismline_localstack.harness import load_state
from prismline_localstack.testing import serving
from prismline_runtime import clients
from tests.console import chromium
from tests.console.conftest import Console

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

#: Name of what the attacks create, and the domain that the attacker lets point at this machine.
EVIL, EVIL_DOMAIN = "evil", "evil.example"
#: Options of a browser that resolves this domain to this machine, and lets its pages call this machine.
UNPROTECTED = (
    f"--host-resolver-rules=MAP {EVIL_DOMAIN} 127.0.0.1",
    "--disable-features=LocalNetworkAccessChecks",
)
#: A page whose script, if it runs, changes the title and calls the emulator.
STORED_PAGE = b"""<!doctype html><title>stored</title><script>
document.title = "its script ran";
fetch("/", {method: "POST", headers: {"X-Amz-Target": "DynamoDB_20120810.ListTables"}, body: "{}"});
</script>"""
#: Lists the tables, creates a function, invokes it, and creates a queue with a form, which needs no CORS preflight.
#: Returns what the page learned of each answer.
ATTACK = """async ([emulator, archive, name]) => {
  const ask = async (service, path, body, headers = {}, mode = "cors") => {
    if (service) headers.Authorization =
      `AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/${service}/aws4_request, SignedHeaders=host, Signature=0`;
    try {
      const answer = await fetch(emulator + path, { method: "POST", headers, body, mode });
      return `${answer.status} ${await answer.text()}`;
    } catch (error) { return String(error); }
  };
  const described = {
    FunctionName: name, Runtime: "python3.11", Handler: "evil.handler", Code: { ZipFile: archive },
    Role: "arn:aws:iam::000000000000:role/evil",
  };
  return [
    await ask("dynamodb", "/", "{}", { "X-Amz-Target": "DynamoDB_20120810.ListTables" }),
    await ask("lambda", "/2015-03-31/functions", JSON.stringify(described)),
    await ask("lambda", `/2015-03-31/functions/${name}/invocations`, "{}"),
    await ask("", "/", new URLSearchParams({ Action: "CreateQueue", QueueName: name }), {}, "no-cors"),
  ];
}"""

#: Reads the emulator without credentials, from a page that is of the same origin for the browser.
READ = """async () => { const answer = await fetch("/"); return `${answer.status} ${await answer.text()}`; }"""


@pytest.fixture
def hostile_site() -> Iterator[str]:
    """The URL of a site on another port of this machine. Each of its pages has a script that should not run."""
    with serving(Starlette(routes=[Route("/{path:path}", lambda _: HTMLResponse(STORED_PAGE))])) as url:
        yield url


@pytest.fixture
def emulator(console: Console) -> str:
    """The URL of the emulator."""
    return load_state(console.home).endpoint


def attack(page: Page, emulator: str, marker: Path) -> list[str]:
    """Attack the emulator from the page. Returns what the page learned of each answer."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("evil.py", f"def handler(*_):\n    open({str(marker)!r}, 'w').close()\n")
    learned: list[str] = page.evaluate(ATTACK, [emulator, base64.b64encode(packed.getvalue()).decode(), EVIL])
    return learned


def queues_of_the_attack() -> list[str]:
    """The queues that the attack has created."""
    return clients.sqs().list_queues(QueueNamePrefix=EVIL).get("QueueUrls", [])


def test_a_page_on_another_port_of_this_machine_reads_nothing_and_changes_nothing(
    console: Console, browser: Browser, emulator: str, hostile_site: str, tmp_path: Path
) -> None:
    with browser.new_page() as page:
        page.goto(hostile_site)
        learned = attack(page, emulator, tmp_path / "marker")
    assert learned == ["TypeError: Failed to fetch"] * 4
    assert queues_of_the_attack() == []
    assert not (tmp_path / "marker").exists(), "the emulator ran uploaded code"


def test_a_page_of_a_domain_that_resolves_to_this_machine_reads_nothing_and_changes_nothing(
    console: Console, browser: Browser, emulator: str, tmp_path: Path
) -> None:
    rebound = f"http://{EVIL_DOMAIN}:{urlsplit(emulator).port}"
    with chromium.launch(browser.browser_type, *UNPROTECTED) as other:
        page = other.new_page()
        # The page itself comes from the attacker's server, as long as the domain resolves to that.
        page.route(f"{rebound}/page", lambda route: route.fulfill(content_type="text/html", body=STORED_PAGE))
        page.goto(f"{rebound}/page")
        learned = [*attack(page, rebound, tmp_path / "marker"), page.evaluate(READ)]
    assert len(learned) == 5
    assert {event.partition(",")[0] for event in learned} == {
        "403 The Host of the request is not a name of this emulator"
    }
    assert queues_of_the_attack() == []
    assert not (tmp_path / "marker").exists(), "the emulator ran uploaded code"


def test_a_page_that_a_run_fetched_is_saved_and_not_opened(console: Console, page: Page, hostile_site: str) -> None:
    job = {"workload": "urls", "name": "hostile", "urls": [f"{hostile_site}/page"]}
    with console.api() as api:
        submitted = api.post("/jobs", json=job).raise_for_status().json()
    run_id = submitted["run"]["run_id"]
    assert console.system.wait(run_id).status == "completed"
    page.goto(f"/console/runs/{run_id}?cell=0")
    link = page.locator("#detail-body dd a")
    expect(link).to_be_visible()
    with page.expect_download() as saved:
        link.click()
    assert saved.value.path().read_bytes() == STORED_PAGE
    assert page.url.startswith(console.url)


def test_a_stored_page_that_a_browser_shows_runs_no_script(console: Console, browser: Browser) -> None:
    s3, place = clients.s3(), {"Bucket": console.system.connection.bucket, "Key": f"jobs/{uuid4()}.html"}
    s3.put_object(**place, Body=STORED_PAGE, ContentType="text/html", ContentDisposition="inline")
    called: list[str] = []
    with browser.new_page() as page:
        page.on("request", lambda request: called.append(request.method))
        page.goto(s3.generate_presigned_url("get_object", Params=place))
        assert page.title() == "stored"
    assert called == ["GET"], "only the page itself was requested"
