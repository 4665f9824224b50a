"""How long the api takes to answer one tenant while others attack it, compared with the same api at rest.

The api runs as a process on an emulator, without workers. A second process attacks it in three ways at once:
1,000 requests that are half sent (a third each: nothing, half of a head, half of a body), 60 bodies of 4.9 MB without a
key whose last byte is missing, and 600 event streams of one tenant on one run. The run has 20,000 tasks, one of which
has the number 10**30. The attacker opens each connection again as soon as the api closes it, at most once a second.
Meanwhile this process sends requests of another tenant, each on a new connection. Rest and attack take turns.

    python benchmarks/attack.py [--rounds 5] [--requests 100] [--half 1000] [--bodies 60] [--streams 600]
        [--tasks 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import httpx

from prismline_api.dependencies import Dependencies
from prismline_api.store import encoded
from prismline_contracts.base import timestamp
from prismline_contracts.jobs import new_api_key
from prismline_contracts.tasks import task_id
from prismline_localstack import harness
from prismline_localstack.api_keys import read_api_key
from prismline_runtime import Change, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of a body that is sent without a key.
BODY_BYTES = 4_900_000
#: Tasks of one batch of an open job.
BATCH_TASKS = 1000
#: Shortest time between two attempts of one attacking connection, in seconds.
AGAIN_SECONDS = 1.0
#: How long an attack lasts before the requests are measured, in seconds.
SETTLE_SECONDS = 3.0
#: Longest wait, in seconds, until all streams are open.
STREAMS_SECONDS = 30.0
#: No limit of rates: the attack is not one of too many requests.
SETTINGS = {"REQUESTS_PER_SECOND": "1000000", "REQUEST_BURST": "1000000", "EVENT_STREAMS": "1000"}


def main() -> None:
    arguments = parse_args()
    if arguments.url:
        asyncio.run(attack(arguments))
        return
    with tempfile.TemporaryDirectory(prefix="attack-benchmark-") as folder:
        home = Path(folder)
        state = harness.up(home, services=["api"], settings=SETTINGS)
        try:
            state.activate()
            process = state.processes["api"].process
            assert process is not None
            print(
                json.dumps(measure(state.url("api"), read_api_key(home / "api-key"), process.pid, arguments), indent=2)
            )
        finally:
            harness.down(home)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100, help="measured requests of a turn")
    parser.add_argument("--half", type=int, default=1000)
    parser.add_argument("--bodies", type=int, default=60)
    parser.add_argument("--streams", type=int, default=600)
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of the run that the streams follow")
    parser.add_argument("--url", help=argparse.SUPPRESS)  # of the api, for the process that attacks
    parser.add_argument("--key", help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- measuring


def measure(url: str, attacker: str, pid: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of the other tenant's requests in milliseconds, and the memory of the api in MiB, at rest and attacked."""
    key, item = new_api_key("other", "bench", ("read",), timestamp())
    assert Table(boto3.client("dynamodb"), Dependencies.from_environment().settings.jobs_table).create(
        encoded(item), key="PK"
    )
    run_id = open_run(url, attacker, arguments.tasks)
    requests(url, key, arguments.requests)  # to warm up
    rest, attacked, memory, reached = [], [], [], {}
    quiet = mebibytes(pid)
    for _ in range(arguments.rounds):
        rest.append(requests(url, key, arguments.requests))
        with attacking(url, attacker, run_id, arguments) as counts, watching(pid) as seen:
            attacked.append(requests(url, key, arguments.requests))
            reached = counts
        memory.append(max(seen))
        time.sleep(SETTLE_SECONDS)
    ratios = [during["p50"] / before["p50"] for before, during in zip(rest, attacked, strict=True)]
    return {
        "rest_ms": {name: spread([each[name] for each in rest]) for name in ("p50", "p99")},
        "attacked_ms": {name: spread([each[name] for each in attacked]) for name in ("p50", "p99")},
        "ratio_of_p50": spread(ratios),
        "memory_mib": {"quiet": quiet, "attacked": spread(memory)},
        "last_attack": reached,
    }


def open_run(url: str, key: str, tasks: int) -> str:
    """A run with so many tasks that wait, one of them with a number that no picture can show.

    Streams that follow it make the api read the ledger.
    """
    with httpx.Client(base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
        job = client.post("/jobs", json={"workload": "urls", "name": "bench", "open": True}).raise_for_status().json()
        for first in range(0, tasks, BATCH_TASKS):
            urls = [f"https://example.org/{number}" for number in range(first, min(tasks, first + BATCH_TASKS))]
            client.post(f"/jobs/{job['job_id']}/tasks", json={"urls": urls}).raise_for_status()
    run_id = str(job["run"]["run_id"])
    deps = Dependencies.from_environment()
    task = deps.ledger.task(deps.ledger.run(run_id), task_id(run_id, 0))
    assert task is not None
    Table(boto3.client("dynamodb"), deps.settings.runs_table).update(
        {"PK": task.PK, "SK": task.SK}, Change({"index": 10**30})
    )
    return run_id


def requests(url: str, key: str, number: int) -> dict[str, float]:
    """p50 and p99 of so many requests, each on a new connection, in milliseconds."""
    times = []
    headers, limits = {"Authorization": f"Bearer {key}"}, httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(headers=headers, limits=limits, timeout=120) as client:
        for _ in range(number):
            began = time.perf_counter()
            client.get(f"{url}/v1/jobs").raise_for_status()
            times.append(1000 * (time.perf_counter() - began))
    cut = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50": cut[49], "p99": cut[98]}


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2), "from": round(min(values), 2), "to": round(max(values), 2)
    }  # fmt: skip


def mebibytes(pid: int) -> float:
    """The memory of a process."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@contextmanager
def watching(pid: int) -> Iterator[list[float]]:
    """The memory of a process, several times a second until the block ends."""
    seen, over = [mebibytes(pid)], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            seen.append(mebibytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    yield seen
    over.set()
    thread.join()


@contextmanager
def attacking(url: str, key: str, run_id: str, arguments: argparse.Namespace) -> Iterator[dict[str, int]]:
    """An attack by another process until the block ends. Yields what it had reached by its beginning."""
    numbers = [f"--{name}={getattr(arguments, name)}" for name in ("half", "bodies", "streams")]
    child = subprocess.Popen(
        [sys.executable, __file__, *numbers, f"--url={url}", f"--key={key}", f"--run={run_id}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.wait()


# ---- attacking


async def attack(arguments: argparse.Namespace) -> None:
    """Attack until the process is killed. Prints its counts once it has begun."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, 4096), most))
    head = "Host: x\r\nContent-Type: application/json\r\n"
    half = ["", f"POST /v1/jobs HTTP/1.1\r\n{head}", f"POST /v1/jobs HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{"]
    large = f"POST /v1/jobs HTTP/1.1\r\n{head}Content-Length: {BODY_BYTES}\r\n\r\n".encode() + bytes(BODY_BYTES - 1)
    stream = f"GET /v1/events?run={arguments.run} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {arguments.key}\r\n\r\n"
    counts = dict.fromkeys(("half sent", "bodies", "streams", "closed by the api"), 0)
    sent = [("half sent", half[n % 3].encode()) for n in range(arguments.half)]
    sent += [("bodies", large)] * arguments.bodies + [("streams", stream.encode())] * arguments.streams
    connections = [asyncio.create_task(keep_open(arguments.url, kind, begun, counts)) for kind, begun in sent]
    await asyncio.sleep(SETTLE_SECONDS)
    latest = time.monotonic() + STREAMS_SECONDS
    while counts["streams"] < arguments.streams and time.monotonic() < latest:
        await asyncio.sleep(0.1)
    print(json.dumps(counts), flush=True)
    await asyncio.gather(*connections)


async def keep_open(url: str, kind: str, begun: bytes, counts: dict[str, int]) -> None:
    """Keep a connection open that has sent `begun`, and discard what it receives."""
    address = urlsplit(url)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(begun)
            answered = kind != "streams" or b" 200 " in await reader.readline()
            counts[kind] += answered
            with suppress(OSError):
                await writer.drain()
                while await reader.read(65_536):
                    pass
            counts[kind] -= answered
            counts["closed by the api"] += 1
            writer.close()
        await asyncio.sleep(AGAIN_SECONDS)


if __name__ == "__main__":
    main()
