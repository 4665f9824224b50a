"""Runs of 20 URLs, alone and while a run of 100,000 URLs is processed; and their exports, beside its export.

The whole system runs as `prismline up` starts it, with one site on the same machine. Each measurement is the time from
a request over HTTP to the recorded end of what it asked for, seen by polling the api:

- list: 20 URLs in the request
- open job: a job that takes two batches of ten URLs and is closed
- retry: a run whose 20 URLs have failed is retried, and succeeds
- export: of a run with 20 pages

The rounds alone come first. Then the large list is submitted, with a first small run right behind it, and the rounds
beside it follow while it is fetched. Exports are measured at the end, beside an export of the large run.

    python benchmarks/small_runs.py [--urls 100000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from prismline_localstack import harness
from prismline_localstack.demos.urls import SETTINGS, api_client, site

#: URLs in a small run, and seconds between two polls.
SMALL, POLL_SECONDS = 20, 0.05
ENDS = {"completed", "failed", "cancelled"}

Measure = Callable[[], float]


class Client:
    """Requests to the api, and small runs by it."""

    def __init__(self, http: httpx.Client, site_url: str) -> None:
        self.http, self.site_url = http, site_url
        self._used = 0

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self.http.request(method, f"/v1{path}", json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def urls(self, path: str = "page") -> list[str]:
        """URLs that no run has had."""
        self._used += SMALL
        return [f"{self.site_url}/{path}/{10**9 + self._used + number}" for number in range(SMALL)]

    def submit(self, **fields: Any) -> dict[str, Any]:
        return self.ask("POST", "/jobs", {"workload": "urls", "name": "small", **fields})

    def run(self, run_id: str) -> dict[str, Any]:
        return self.ask("GET", f"/runs/{run_id}")

    def seconds_until(self, condition: Callable[[], bool], began: float) -> float:
        while not condition():
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began

    def ended(self, run_id: str, status: str = "completed") -> bool:
        now = self.run(run_id)["status"]
        if now in ENDS and now != status:
            raise RuntimeError(f"The run {run_id} is {now}, not {status}.")
        return bool(now == status)

    def list_(self) -> float:
        began = time.perf_counter()
        run_id = self.submit(urls=self.urls())["run"]["run_id"]
        return self.seconds_until(lambda: self.ended(run_id), began)

    def open_job(self) -> float:
        urls = self.urls()
        began = time.perf_counter()
        job = self.submit(open=True)
        for batch in (urls[: SMALL // 2], urls[SMALL // 2 :]):
            self.ask("POST", f"/jobs/{job['job_id']}/tasks", {"urls": batch})
        self.ask("POST", f"/jobs/{job['job_id']}/close")
        return self.seconds_until(lambda: self.ended(job["run"]["run_id"]), began)

    def retry(self) -> float:
        urls = self.urls("flaky/1")
        run_id = self.submit(urls=urls, params={"max_attempts": 1})["run"]["run_id"]
        self.seconds_until(lambda: self.ended(run_id, "failed"), 0.0)
        began = time.perf_counter()
        self.ask("POST", "/dead-letters/recover", {"run_id": run_id, "retry": True})
        return self.seconds_until(lambda: self.run(run_id)["status"] == "completed", began)

    def export(self, run_id: str) -> float:
        began = time.perf_counter()
        export = self.ask("POST", f"/runs/{run_id}/export")
        path = f"/runs/{run_id}/exports/{export['export_id']}"
        return self.seconds_until(lambda: self.ask("GET", path)["status"] == "completed", began)

    def large(self, urls: int) -> str:
        """Submit a list of so many URLs. Returns the run's id."""
        pages = "".join(f"{self.site_url}/page/{number}\n" for number in range(urls)).encode()
        upload = self.ask("POST", "/uploads", {"format": "text", "size_bytes": len(pages)})
        httpx.put(upload["url"], content=pages, headers=upload["headers"], timeout=60).raise_for_status()
        job = self.ask("POST", "/jobs", {"workload": "urls", "name": "large", "upload": upload["upload_id"]})
        run_id: str = job["run"]["run_id"]
        return run_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=100_000, help="URLs in the large run")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="small-runs-") as folder:
        home = Path(folder) / "home"
        with site(Path(folder)) as site_url:
            harness.up(home, workers=1, settings=SETTINGS)
            try:
                with api_client(home) as http:
                    show(*measure(Client(http, site_url), arguments.urls, arguments.rounds))
            finally:
                harness.down(home)


def measure(client: Client, urls: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each kind, alone and beside the large run."""
    kinds: dict[str, Measure] = {"list": client.list_, "open job": client.open_job, "retry": client.retry}
    client.list_()  # the first run also waits for clients and connections
    alone = {kind: [run() for _ in range(rounds)] for kind, run in kinds.items()}
    exported = [client.submit(urls=client.urls())["run"]["run_id"] for _ in range(2 * rounds)]
    for run_id in exported:
        client.seconds_until(lambda run_id=run_id: client.ended(run_id), 0.0)  # type: ignore[misc]
    alone["export"] = [client.export(run_id) for run_id in exported[:rounds]]

    large = client.large(urls)
    beside = {"list, submitted with it": [client.list_()]}
    alone["list, submitted with it"] = alone["list"]
    client.seconds_until(lambda: _done(client, large) > urls // 50, 0.0)
    for kind, run in kinds.items():
        beside[kind] = [run() for _ in range(rounds)]
        print(f"{kind}: {_done(client, large):,} of {urls:,} tasks of the large run have ended", flush=True)
    client.seconds_until(lambda: client.ended(large), 0.0)

    export = client.ask("POST", f"/runs/{large}/export")
    beside["export"] = [client.export(run_id) for run_id in exported[rounds:]]
    path = f"/runs/{large}/exports/{export['export_id']}"
    print(f"the large export is {client.ask('GET', path)['status']}", flush=True)
    return alone, beside


def _done(client: Client, run_id: str) -> int:
    counts = client.run(run_id).get("counts") or {}
    return int(counts.get("completed", 0))


def show(alone: dict[str, list[float]], beside: dict[str, list[float]]) -> None:
    print("| small run | alone, s | beside, s | ratio of medians |\n| --- | --- | --- | --- |")
    for kind, seconds in beside.items():
        before, now = statistics.median(alone[kind]), statistics.median(seconds)
        print(f"| {kind} | {spread(alone[kind])} | {spread(seconds)} | {now / before:.1f} |")


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
