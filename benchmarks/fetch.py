"""Fetches per second of one worker of tasks, compared with a bare httpx loop with the same concurrency.

All peers fetch the same pages from a site, which runs in its own process and waits before it answers. Each peer runs in
its own process, in turns:

- loop: one `httpx.AsyncClient` with `--concurrency` requests at a time. It reads each body and discards it.
- fetcher: the worker's steps to fetch a URL, with an S3 that takes no time: the address check, the limits
  on time, redirects and bytes, the hash, a thread for each request to S3.
- worker: the whole handler, four messages of 100 tasks at a time, on the emulator: slots in Valkey, reads,
  starts and ends of tasks in the ledger, bodies in S3.
- aws: only the worker's requests to the emulator for the same number of tasks, from the same number of threads, without
  any fetch. It shows the limit of the emulator.

    python benchmarks/fetch.py [--pages 2000] [--concurrency 32] [--latency 0.25] [--rounds 3]
"""

# ruff: noqa: PLC0415  each child imports only what it measures
from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PER_MESSAGE, MESSAGES = 100, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.25, help="seconds before the site answers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        urls = [f"{args.url}/slow/{args.latency}/{n}" for n in range(args.pages)]
        print("result", CHILDREN[args.child](urls, args.concurrency))
        return

    from prismline_localstack.emulator import Emulator
    from prismline_localstack.testing import ValkeyServer

    with tempfile.TemporaryDirectory(prefix="fetch-") as directory:
        folder = Path(directory)
        emulator, valkey = Emulator.start(folder, folder / "log"), ValkeyServer(folder / "valkey.log")
        valkey.start()
        site, url = start_site(folder)
        os.environ.update(emulator.environment | {"PRISMLINE_VALKEY_URL": valkey.url})
        rates: dict[str, list[float]] = {name: [] for name in CHILDREN}
        try:
            for _ in range(args.rounds):
                for name, measured in rates.items():
                    measured.append(args.pages / run_child(name, url, args))
                    print(f"{name}: {measured[-1]:.0f} pages/s", flush=True)
        finally:
            site.kill()
            valkey.kill()
            emulator.stop()
    ceiling = args.concurrency / args.latency if args.latency else float("inf")
    print(f"{args.pages} pages, {args.concurrency} at a time, {args.latency} s each: at most {ceiling:.0f}/s")
    for name, measured in rates.items():
        ratios = sorted(rate / loop for rate, loop in zip(measured, rates["loop"], strict=True))
        print(
            f"| {name} | {statistics.median(measured):.0f} ({min(measured):.0f} to {max(measured):.0f}) "
            f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )


def start_site(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    from prismline_emulator.endpoints import LOOPBACK, accepts, free_port
    from prismline_localstack.processes import spawn
    from prismline_localstack.waiting import wait_until

    port = free_port()
    factory = "prismline_localstack.standins.site:create_app"
    command = [sys.executable, "-m", "prismline_runtime.server", "--port", str(port), factory]
    site = spawn(command, environment=dict(os.environ), log=folder / "site.log")
    url = f"http://{LOOPBACK}:{port}"
    assert wait_until(lambda: accepts(url), 60)
    return site, url


def run_child(name: str, url: str, args: argparse.Namespace) -> float:
    """The seconds that a child process measured."""
    command = [sys.executable, __file__, "--child", name, "--url", url]
    for option in ("pages", "concurrency", "latency"):
        command += [f"--{option}", str(getattr(args, option))]
    environment = os.environ | {"POWERTOOLS_LOG_LEVEL": "ERROR", "POWERTOOLS_METRICS_DISABLED": "true"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return float(answer.stdout.splitlines()[-1].removeprefix("result "))


# ---- the children


def loop(urls: list[str], concurrency: int) -> float:
    import httpx

    async def run() -> float:
        room = asyncio.Semaphore(concurrency)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:

            async def fetch(url: str) -> None:
                async with room:
                    response = await client.get(url)
                    assert response.status_code == 200
                    assert response.content

            began = time.perf_counter()
            await asyncio.gather(*map(fetch, urls))
            return time.perf_counter() - began

    return asyncio.run(run())


class NoS3:
    """Accepts every object immediately."""

    def put_object(self, **_: Any) -> None:
        return


def fetcher(urls: list[str], concurrency: int) -> float:
    import httpx

    from prismline_contracts.tasks import UrlParams
    from prismline_web import guarded_async_client
    from prismline_worker.body_store import BodyStore
    from prismline_worker.fetcher import Fetcher
    from prismline_worker.url_tasks import S3_AT_A_TIME

    async def run() -> float:
        room, params = asyncio.Semaphore(concurrency), UrlParams()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency)
        # The address check runs, but accepts the site's address.
        from prismline_web import clients as web_clients

        web_clients.allowed = lambda _host, addresses: list(addresses)
        store = BodyStore(NoS3(), "b", ThreadPoolExecutor(S3_AT_A_TIME))  # type: ignore[arg-type]
        async with guarded_async_client(limits=limits) as client:
            one = Fetcher(client)

            async def fetch(number: int, url: str) -> None:
                async with room:
                    assert (await one.fetch(url, params, store, f"k{number}")).length

            began = time.perf_counter()
            await asyncio.gather(*(fetch(number, url) for number, url in enumerate(urls)))
            return time.perf_counter() - began

    return asyncio.run(run())


def prepare(urls: list[str], concurrency: int) -> tuple[Any, Any, str, dict[int, list[str]]]:
    """A run of the URLs in its own environment: dependencies, the run, its bucket, its tasks by shard."""
    import boto3

    from prismline_ledger.testing import ingest_run
    from prismline_localstack.testing import create_runs_table
    from prismline_worker.dependencies import Dependencies

    environment = f"b{secrets.token_hex(4)}"
    bucket, table = f"bucket-{environment}", f"runs-{environment}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    boto3.client("events").create_event_bus(Name=f"prismline-{environment}")
    boto3.client("sqs").create_queue(QueueName=f"prismline-{environment}-tasks")
    create_runs_table(boto3.client("dynamodb"), table)
    os.environ |= {
        "ENVIRONMENT": environment,
        "RUNS_TABLE": table,
        "URLS_ALLOW_PRIVATE": "true",
        "URLS_CONCURRENCY": str(concurrency),
        "URLS_HOST_CONCURRENCY": str(concurrency),
    }
    deps = Dependencies.from_environment()
    shards = ingest_run(deps.ledger, environment, urls, shard_count=4, survey="s")
    return deps, deps.ledger.run(environment), bucket, shards


def worker(urls: list[str], concurrency: int) -> float:
    from prismline_contracts.commands import TasksProcess
    from prismline_contracts.envelope import Envelope
    from prismline_ledger.testing import Context, lambda_event_of
    from prismline_runtime import batches
    from prismline_worker.handler import build_handler

    deps, run, bucket, shards = prepare(urls, concurrency)
    handler = build_handler(deps)
    fields = {"run_id": run.run_id, "job_id": "j", "survey": "s", "workload": "urls", "bucket": bucket, "params": {}}
    commands = [
        TasksProcess(**fields, shard=shard, shard_count=4, task_ids=names)
        for shard, ids in shards.items()
        for names in batches(ids, PER_MESSAGE)
    ]

    def process(command: TasksProcess) -> None:
        body = Envelope.wrap(command, source="b", traceparent=None).to_json()
        answer = handler(lambda_event_of(body, deps.settings.environment, "tasks"), Context())
        assert not answer["batchItemFailures"]

    began = time.perf_counter()
    with ThreadPoolExecutor(MESSAGES) as pool:
        list(pool.map(process, commands))
    took = time.perf_counter() - began
    assert deps.ledger.run(run.run_id).chunks_completed == len(urls)
    return took


def aws(urls: list[str], concurrency: int) -> float:
    from prismline_contracts.tasks import TaskResult, result_key
    from prismline_ledger import TaskEnding
    from prismline_localstack.standins.site import page_body
    from prismline_runtime import batches, clients
    from prismline_worker.url_tasks import S3_AT_A_TIME

    deps, run, bucket, shards = prepare(urls, concurrency)
    s3, bodies = clients.s3(), [page_body(int(urlsplit(url).path.rpartition("/")[2])) for url in urls]

    def put(task: Any) -> TaskEnding:
        key = result_key(run.run_id, task.task_id)
        s3.put_object(Bucket=bucket, Key=key, Body=bodies[task.index], IfNoneMatch="*")
        result = TaskResult(key=key, http_status=200, length=1, sha256="0" * 64, final_url="u")
        return TaskEnding(task, result=result)

    def process(names: list[str]) -> None:
        tasks = deps.ledger.start_tasks(run, deps.ledger.read_tasks(run, names).values())
        deps.ledger.end_tasks(run, list(puts.map(put, tasks)))

    messages = [names for ids in shards.values() for names in batches(ids, PER_MESSAGE)]
    began = time.perf_counter()
    with ThreadPoolExecutor(S3_AT_A_TIME) as puts, ThreadPoolExecutor(MESSAGES) as pool:
        list(pool.map(process, messages))
    return time.perf_counter() - began


CHILDREN: dict[str, Callable[[list[str], int], float]] = {
    "loop": loop,
    "fetcher": fetcher,
    "worker": worker,
    "aws": aws,
}

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
