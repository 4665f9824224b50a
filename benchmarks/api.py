"""How long `POST /v1/jobs` takes at several sizes, and how many DynamoDB requests a page of tasks takes.

The api runs as a process on an emulator, without workers. Submissions of 10 and 1,000 inline URLs and of an
uploaded list of a million take turns. For comparison, the script measures the emulator's own time for the one call that
every short submission needs: a transaction of three items.

    python benchmarks/api.py [--rounds 40] [--staged 1000000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from prismline_api.dependencies import Dependencies
from prismline_ledger import NewRun
from prismline_localstack import harness
from prismline_localstack.api_keys import read_api_key
from prismline_runtime import Table, clients

SIZES = (10, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--staged", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="api-benchmark-") as folder:
        home = Path(folder)
        state = harness.up(
            home, services=["api"], settings={"REQUESTS_PER_SECOND": "1000000", "REQUEST_BURST": "1000000"}
        )
        try:
            state.activate()
            client = httpx.Client(
                base_url=f"{state.url('api')}/v1",
                headers={"Authorization": f"Bearer {read_api_key(home / 'api-key')}"},
                timeout=600,
            )
            print(
                json.dumps({"milliseconds": latencies(client, arguments), "requests_per_page": pages(client)}, indent=2)
            )
        finally:
            harness.down(home)


def latencies(client: httpx.Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """Percentiles of the time of a submission, in milliseconds, by its size."""
    body = "".join(f"https://example.org/{number}\n" for number in range(arguments.staged)).encode()
    upload = client.post("/uploads", json={"format": "text", "size_bytes": len(body)}).json()
    httpx.put(upload["url"], content=body, headers=upload["headers"], timeout=600).raise_for_status()
    jobs: dict[str, dict[str, Any]] = {
        f"{size} inline": {"urls": [f"https://example.org/{number}" for number in range(size)]} for size in SIZES
    }
    jobs |= {f"{arguments.staged} staged": {"upload": upload["upload_id"]}}
    times: dict[str, list[float]] = {name: [] for name in (*jobs, "one transaction of three items, bare")}
    bare = Table(clients.dynamodb(), Dependencies.from_environment().settings.jobs_table)
    for turn in range(arguments.rounds + 2):  # two to warm up
        for name, source in jobs.items():
            began = time.perf_counter()
            client.post("/jobs", json={"workload": "urls", "name": "bench", **source}).raise_for_status()
            times[name].append(time.perf_counter() - began)
        began = time.perf_counter()
        bare.transact(*(bare.creation({"PK": f"bench-{turn}", "SK": str(n)}, key="PK") for n in range(3)))
        times["one transaction of three items, bare"].append(time.perf_counter() - began)
    return {name: percentiles(taken[2:]) for name, taken in times.items()}


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    cut = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": round(1000 * cut[49], 1), "p99": round(1000 * cut[98], 1)}


def pages(client: httpx.Client) -> dict[str, Any]:
    """DynamoDB requests for pages of 100 tasks of a run, by its number of shards, without the request for the key."""
    from prismline_api.reading import list_tasks  # noqa: PLC0415
    from prismline_http.auth import Caller  # noqa: PLC0415

    dynamodb, asked = clients.dynamodb(), [0]
    with patch.object(clients, "dynamodb", lambda: dynamodb):
        deps = Dependencies.from_environment()
    dynamodb.meta.events.register("before-call.dynamodb", lambda **_: asked.__setitem__(0, asked[0] + 1))
    deps.key_store.secret("cursors")
    caller = Caller("local", "bench", frozenset({"read"}))
    found = {}
    for shards, number in ((1, 1000), (16, 1600), (16, 48)):
        job = client.post("/jobs", json={"workload": "urls", "name": "bench", "open": True}).json()
        run_id, urls = job["run"]["run_id"], [f"https://example.org/{n}" for n in range(number)]
        run = deps.ledger.open_run(
            NewRun(
                run_id=run_id,
                survey="bench",
                job_id=job["job_id"],
                workload="urls",
                unit="task",
                shard_count=shards,
            )
        )
        deps.ledger.add_tasks(run, 0, urls)
        cursor, requests, seen = None, [], 0
        list_tasks(caller, run_id, None, 1, None, deps)  # the first request also reads the secret of cursors
        while True:
            asked[0] = 0
            page = list_tasks(caller, run_id, None, 100, cursor, deps)
            requests.append(asked[0])
            seen += len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == number
        found[f"{number} tasks, shard_count {shards}"] = {"parts": len(requests), "requests of each": requests}
    return found


if __name__ == "__main__":
    main()
