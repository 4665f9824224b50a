"""The demonstration of a large job over HTTP: processes are killed while a list of URLs is fetched. No page is lost.

A list is uploaded and submitted through the api. The splitter ingests it, and the worker fetches the pages from a site
on this machine. Meanwhile Valkey and the fetching worker are killed, once each. A webhook reports the end of the run,
and a third-party library verifies its signature. The archive of the export holds every page.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from standardwebhooks import Webhook, WebhookVerificationError

from prismline_cli.output import fail, stderr
from prismline_emulator.endpoints import LOOPBACK, answers, free_port
from prismline_localstack import harness
from prismline_localstack.api_keys import read_api_key
from prismline_localstack.demos import DemoResult
from prismline_localstack.demos.own_system import own_system
from prismline_localstack.demos.waiting import wait_for
from prismline_localstack.home import Home
from prismline_localstack.processes import spawn, stop
from prismline_localstack.settings import inherited_environment
from prismline_localstack.standins.site import page_body

#: Default number of URLs in the list.
URLS = 20_000
#: The processes that the demonstration kills, and the fraction of pages after which it kills each of them once.
VICTIMS = {"valkey": 0.2, "fetcher": 0.5}
#: Settings of the services. The site and the target of the webhook are on this machine, so both may be private.
SETTINGS = {
    "URLS_ALLOW_PRIVATE": "true",
    "WEBHOOK_ALLOW_PRIVATE": "true",
    "PRISMLINE_VISIBILITY_SECONDS": "10",
    "PRISMLINE_WAIT_SECONDS": "1",
}
#: Timeout of a request to the api, in seconds.
REQUEST_SECONDS = 60.0
#: Time limit for the start of the site, in seconds.
SITE_SECONDS = 30.0
#: The demonstration fails if the run makes no progress for this long, in seconds.
STANDSTILL_SECONDS = 180.0
#: Seconds between two polls of the run.
LOOK_SECONDS = 0.5

Say = Callable[[str], None]


@dataclass
class Outcome:
    """The observations of the demonstration."""

    run_id: str
    counts: dict[str, int]
    #: The processes that were killed, in order.
    killed: list[str] = field(default_factory=list)
    #: The post of the webhook, after its signature was verified.
    webhook: dict[str, Any] = field(default_factory=dict)
    #: Number of pages in the archive that equal those of the site, and of lines of its manifest by outcome.
    right_pages: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


class Receiver:
    """The target of the webhook. It accepts every post."""

    def __init__(self) -> None:
        self.posts: list[tuple[bytes, dict[str, str]]] = []
        posts = self.posts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Accept a post."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posts.append((body, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/prismline"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Run the site in a process, with its log in `folder`. Yields its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "prismline_runtime.server", "--port", str(port)]
    child = spawn(
        [*command, "prismline_localstack.standins.site:create_app"],
        environment=inherited_environment(),
        log=folder / "site.log",
    )
    url = f"http://{LOOPBACK}:{port}"
    try:
        deadline = time.monotonic() + SITE_SECONDS
        while not answers(url, "/page/0"):
            if child.poll() is not None or time.monotonic() > deadline:
                fail(f"The site did not start. Its log is {folder / 'site.log'}.")
            time.sleep(0.1)
        yield url
    finally:
        stop([child], 5.0)


def play(home: Path, client: httpx.Client, site_url: str, receiver: Receiver, urls: int, to: Path, say: Say) -> Outcome:
    """Run all steps against the system in `home`. `client`: a client of its api, with a key."""
    pages = "".join(f"{site_url}/page/{number}\n" for number in range(urls)).encode()
    upload = _asked(client.post("/v1/uploads", json={"format": "text", "size_bytes": len(pages)}))
    httpx.put(upload["url"], content=pages, headers=upload["headers"], timeout=REQUEST_SECONDS).raise_for_status()
    say(f"Uploaded a list of {urls:,} URLs, {len(pages) / 1e6:.1f} MB.")
    request = {
        "workload": "urls",
        "name": "demo-urls",
        "upload": upload["upload_id"],
        "webhook": {"url": receiver.url},
    }
    began = time.monotonic()
    job = _asked(client.post("/v1/jobs", json=request, headers={"Idempotency-Key": "demo-urls"}))
    say(f"Submitted: job {job['job_id']}, answered in {1000 * (time.monotonic() - began):.0f} ms.")
    run_id = job["run"]["run_id"]
    outcome = Outcome(run_id, {})
    _fetch(home, client, run_id, urls, outcome, say)
    say(f"The run has ended: {outcome.counts['completed']:,} pages fetched, {outcome.counts['failed']:,} failed.")

    wait_for(lambda: receiver.posts, "the webhook")
    body, headers = receiver.posts[0]
    try:
        outcome.webhook = Webhook(job["webhook_secret"]).verify(body, headers)
    except WebhookVerificationError as error:
        fail(f"The webhook's signature is wrong: {error}.")
    say(f"A webhook reported {outcome.webhook['type']}. The library standardwebhooks accepts its signature.")

    path = to / f"{run_id}.zip"
    _export(client, run_id, path, say)
    _check(path, outcome)
    say(f"{path}: {outcome.right_pages:,} pages have the same SHA-256 as on the site.")
    return outcome


def _fetch(home: Path, client: httpx.Client, run_id: str, urls: int, outcome: Outcome, say: Say) -> None:
    """Poll the run until its end, and kill each of `VICTIMS` at its time."""
    columns = (TextColumn("fetching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    moved, last = time.monotonic(), 0
    with Progress(*columns, console=stderr, transient=True) as progress:
        bar = progress.add_task("fetching", total=urls)
        while True:
            run = _asked(client.get(f"/v1/runs/{run_id}"))
            counts = run.get("counts") or {}
            done = counts.get("completed", 0) + counts.get("failed", 0)
            progress.update(bar, completed=done)
            for name, share in VICTIMS.items():
                if name not in outcome.killed and done >= share * urls:
                    _kill(home, name)
                    outcome.killed.append(name)
                    say(f"{done:,} pages are fetched. Killed {name}.")
            if run["status"] in {"completed", "failed", "cancelled"}:
                outcome.counts = counts
                return
            if done != last:
                moved, last = time.monotonic(), done
            if time.monotonic() - moved > STANDSTILL_SECONDS:
                fail(f"The run has made no progress for {STANDSTILL_SECONDS:.0f} s: {run}")
            time.sleep(LOOK_SECONDS)


def _kill(home: Path, name: str) -> None:
    process = harness.load_state(home).processes[name].process
    if process is not None:
        process.signal(signal.SIGKILL)


def _export(client: httpx.Client, run_id: str, path: Path, say: Say) -> None:
    """Request an export of the run, wait for it and download it."""
    export = _asked(client.post(f"/v1/runs/{run_id}/export", headers={"Idempotency-Key": "demo-urls-export"}))
    place = f"/v1/runs/{run_id}/exports/{export['export_id']}"

    def ended() -> dict[str, Any] | None:
        now = _asked(client.get(place))
        return now if now["status"] in {"completed", "failed"} else None

    finished = wait_for(ended, "the export")
    if "url" not in finished:
        fail(f"The export failed: {finished.get('error')}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, httpx.stream("GET", finished["url"], timeout=REQUEST_SECONDS) as answer:
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            file.write(piece)
    say(f"Exported {finished['entries']:,} results, {finished['bytes'] / 1e6:.1f} MB.")


def _check(path: Path, outcome: Outcome) -> None:
    """Compare the pages in the archive with those of the site."""
    with zipfile.ZipFile(path) as archive:
        for text in archive.read("manifest.jsonl").splitlines():
            line = json.loads(text)
            outcome.outcomes[line["outcome"]] = outcome.outcomes.get(line["outcome"], 0) + 1
            if line["file"] is None:
                continue
            number = int(line["url"].rpartition("/")[2])
            digests = {
                hashlib.sha256(archive.read(line["file"])).hexdigest(),
                hashlib.sha256(page_body(number)).hexdigest(),
                line["sha256"],
            }
            outcome.right_pages += len(digests) == 1


def _asked(answer: httpx.Response) -> dict[str, Any]:
    """The document that the api answered. If it refused, its sentence ends the command."""
    document: dict[str, Any] = answer.json()
    if answer.is_error:
        fail(f"The api answered {answer.status_code}: {document.get('detail', document)}")
    return document


def api_client(home: Path) -> httpx.Client:
    """A client of the api of the system that runs in `home`, with the local user's key."""
    url = harness.load_state(home).url("api")
    key = read_api_key(Home.at(home).api_key)
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=REQUEST_SECONDS)


def demo_urls(urls: int, to: Path) -> DemoResult:
    """Run the demonstration on its own system. It succeeds if the archive holds every page."""
    to.mkdir(parents=True, exist_ok=True)
    home = to / "urls-home"
    with (
        site(to) as site_url,
        Receiver() as receiver,
        own_system(home, workers=1, settings=SETTINGS) as (_, say),
        api_client(home) as client,
    ):
        outcome = play(home, client, site_url, receiver, urls, to, say)
    return DemoResult(outcome.right_pages == urls and outcome.killed == list(VICTIMS), outcome.run_id)
