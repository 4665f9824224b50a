"""Ingestion of an uploaded list of URLs, compared with the bare calls that every ingestion needs.

Both run in their own processes, in turns, each on a new emulator:

- splitter: processes `run.split`, and every command by which the ingestion continues, until the run is latched.
  It reads the list from S3, checks each line, inserts each task only if it is not there, and writes checkpoints;
- bare: reads the list from a file, and calls `BatchWriteItem` (25 items, which overwrite) and `SendMessageBatch` (10
  messages, each with 100 ids) for the same tasks, in the same blocks, with the same settings of the clients and with
  the same number of threads.

The table compares the rates and also the processor times, with those of the emulators. On a busy machine the processor
times are more reliable.

    python benchmarks/ingestion.py [--urls 10000 100000 1000000] [--peer-up-to 1000000] [--rounds 3]
    python benchmarks/ingestion.py --beside 1000000

The second form measures how long small runs (10 tasks) take from `run.split` to the latch, with an idle splitter and
with a splitter that ingests a long list at the same time. The splitter's process is started as in the harness.

Peak resident memory is the child's own (`ru_maxrss`). A child also makes the list, because a child's peak begins
with its parent's. The emulator is one Python process on the same machine and limits both rates.
"""

# ruff: noqa: PLC0415  each child imports only what it measures
from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

SUBJECT, PEER = "splitter", "bare"
RUN, MANIFEST_KEY, LIST_KEY = "run-1", "jobs/job/manifest-run-1.json", "uploads/t/list"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--peer-up-to", type=int, default=1_000_000, help="do not run the bare calls for more URLs")
    parser.add_argument("--rounds", type=int, default=1, help="the table has the medians of this many rounds")
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--beside", type=int, help="URLs in the list that is ingested beside small runs")
    args = parser.parse_args()
    if args.beside:
        report_small_runs(args.beside)
        return
    if args.child:
        print("result", json.dumps(CHILDREN[args.child](args.urls[0])))
        return
    print(
        "| URLs | splitter, tasks/s | bare calls, tasks/s | ratio | ratio of processor time | splitter's peak memory |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for n_urls in args.urls:
        report_list(n_urls, args.rounds, compare=n_urls <= args.peer_up_to)


def report_list(n_urls: int, rounds: int, *, compare: bool) -> None:
    """The medians of some rounds. In each round the two peers take turns."""
    names = [SUBJECT, PEER] if compare else [SUBJECT]
    found = [{name: on_new_emulator(name, n_urls) for name in names} for _ in range(rounds)]

    def middle(of: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(map(of, found))

    compared = "| | "
    if compare:
        bare = middle(lambda each: n_urls / each[PEER]["seconds"])
        ratio = middle(lambda each: each[PEER]["seconds"] / each[SUBJECT]["seconds"])
        of_processor = middle(lambda each: each[PEER]["cpu"] / each[SUBJECT]["cpu"])
        compared = f"{bare:,.0f} | {ratio:.2f} | {of_processor:.2f}"
    rate, peak = middle(lambda each: n_urls / each[SUBJECT]["seconds"]), middle(lambda each: each[SUBJECT]["peak_mb"])
    print(f"| {n_urls:,} | {rate:,.0f} | {compared} | {peak:.0f} MB |", flush=True)
    for number, both in enumerate(found, 1):
        for name, one in both.items():
            spent = "".join(f", {part} {seconds:.1f} s" for part, seconds in one.get("spent", {}).items())
            own, emulator = (1e6 * one[part] / n_urls for part in ("own_cpu", "emulator_cpu"))
            print(
                f"  round {number}, {name}: {one['seconds']:.1f} s{spent}; "
                f"processor time of a task {own:.0f} us, of the emulator {emulator:.0f} us",
                file=sys.stderr,
            )


def report_small_runs(n_urls: int) -> None:
    """Small runs alone and during a large one, on one splitter."""
    print("| small runs | median, s | longest, s |")
    print("| --- | --- | --- |")
    for name, beside in (("alone", 0), (f"beside {n_urls:,} URLs", n_urls)):
        found = on_new_emulator("small", n_urls, serving=True, large=bool(beside))
        print(f"| {name} | {found['median']:.2f} | {found['longest']:.2f} |", flush=True)


def on_new_emulator(
    child: str, n_urls: int, *, serving: bool = False, large: bool = False, script: str = __file__
) -> dict[str, Any]:
    """The result of a child on an emulator that it has for itself. script: the benchmark that has the children."""
    from prismline_localstack.emulator import Emulator
    from prismline_localstack.processes import processor_seconds

    with tempfile.TemporaryDirectory(prefix="ingestion-") as directory:
        emulator = Emulator.start(Path(directory), Path(directory) / "log")
        try:
            os.environ.update(emulator.environment)
            os.environ.update(
                ENVIRONMENT="bench",
                RUNS_TABLE="prismline-bench-runs",
                BUCKET="bench",
                WORKDIR=directory,
                POWERTOOLS_LOG_LEVEL="WARNING",
            )
            run_child("prepare", n_urls, script)
            if not serving:
                before = processor_seconds(emulator.child.pid)
                found = run_child(child, n_urls, script)
                found["emulator_cpu"] = processor_seconds(emulator.child.pid) - before
                return found | {"cpu": found["own_cpu"] + found["emulator_cpu"]}
            os.environ["LARGE"] = "1" if large else ""
            with subprocess.Popen(splitter_command()) as server:
                try:
                    return run_child(child, n_urls, script)
                finally:
                    server.terminate()
        finally:
            emulator.stop()


def splitter_command() -> list[str]:
    """The command of a splitter's process, as the harness starts it."""
    from prismline_localstack.registry import service_processes

    (process,) = service_processes(Path(__file__).parents[1], services=["splitter"], standins=False)
    return process.command


def run_child(name: str, n_urls: int, script: str) -> dict[str, Any]:
    command = [sys.executable, script, "--child", name, "--urls", str(n_urls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.rpartition("result ")[2])
    return found


def urls(n_urls: int) -> Iterator[str]:
    return (
        f"https://site-{n % 97}.example.org/pages/{n:09d}/index.html?session={n * 7919 % 100_003}"
        for n in range(n_urls)
    )


def create_environment() -> None:
    """Table, queues, bucket and bus."""
    import boto3

    from prismline_localstack.testing import create_runs_table

    create_runs_table(boto3.client("dynamodb"), os.environ["RUNS_TABLE"])
    sqs, s3 = boto3.client("sqs"), boto3.client("s3")
    for queue in ("split", "split-dlq", "tasks", "tasks-dlq"):
        sqs.create_queue(QueueName=f"prismline-bench-{queue}")
    boto3.client("events").create_event_bus(Name="prismline-bench")
    s3.create_bucket(Bucket="bench")


def prepare(n_urls: int) -> dict[str, Any]:
    """The environment, the list and its manifest."""
    import boto3

    create_environment()
    s3 = boto3.client("s3")
    path = Path(os.environ["WORKDIR"]) / "list"
    with path.open("w") as file:
        file.writelines(f"{url}\n" for url in urls(n_urls))
    s3.upload_file(str(path), "bench", LIST_KEY)
    document = {"workload": "urls", "survey": "bench", "list": {"key": LIST_KEY, "format": "text"}}
    s3.put_object(Bucket="bench", Key=MANIFEST_KEY, Body=json.dumps(document).encode())
    return {}


def splitter(n_urls: int) -> dict[str, Any]:
    """Deliver the command and its successors, like the runtime, until the run is latched."""
    import boto3

    from prismline_contracts.commands import RunSplit
    from prismline_contracts.envelope import Envelope
    from prismline_ledger import Ledger
    from prismline_ledger.testing import Context
    from prismline_runtime import Transport
    from prismline_runtime.consumer import lambda_record
    from prismline_splitter.dependencies import Dependencies
    from prismline_splitter.handler import build_handler

    spent: dict[str, float] = {}
    for owner, name in ((Ledger, "add_tasks"), (Transport, "send"), (Ledger, "checkpoint"), (Ledger, "set_task_total")):
        setattr(owner, name, timed(getattr(owner, name), name, spent))
    deps = Dependencies.from_environment()
    handler = build_handler(deps)
    command = RunSplit(run_id=RUN, job_id="job", bucket="bench", manifest_key=MANIFEST_KEY)
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="prismline-bench-split")["QueueUrl"]
    began, own = time.perf_counter(), time.process_time()
    deps.transport.send("split", [Envelope.wrap(command, source="bench", traceparent=None)])
    while (run := deps.ledger.get_run(RUN)) is None or run.latched_at is None:
        for message in sqs.receive_message(QueueUrl=url, AttributeNames=["All"]).get("Messages", []):
            event = {"Records": [lambda_record(message, "arn:aws:sqs:us-east-1:0:prismline-bench-split")]}
            assert handler(event, Context()) == {"batchItemFailures": []}
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    seconds, own_cpu = time.perf_counter() - began, time.process_time() - own
    assert run.chunks_total == n_urls
    return {"seconds": seconds, "own_cpu": own_cpu, "peak_mb": peak_mb(), "spent": spent}


def small(_: int) -> dict[str, Any]:
    """Submit small runs one after the other, and wait for the latch of each."""
    import boto3

    from prismline_contracts.commands import RunSplit
    from prismline_contracts.envelope import Envelope
    from prismline_runtime import Transport
    from prismline_splitter.dependencies import Dependencies

    transport, ledger = Transport.connect("bench", "bench"), Dependencies.from_environment().ledger

    def split(run_id: str, key: str) -> None:
        command = RunSplit(run_id=run_id, job_id="job", bucket="bench", manifest_key=key)
        transport.send("split", [Envelope.wrap(command, source="bench", traceparent=None)])

    document = {"workload": "urls", "survey": "bench", "urls": [f"https://example.org/{n}" for n in range(10)]}
    boto3.client("s3").put_object(Bucket="bench", Key="jobs/small.json", Body=json.dumps(document).encode())
    if os.environ["LARGE"]:
        split(RUN, MANIFEST_KEY)
        while (run := ledger.get_run(RUN)) is None or run.checkpoint is None:
            time.sleep(0.1)
    taken = []
    for number in range(13):
        began = time.perf_counter()
        split(f"small-{number}", "jobs/small.json")
        while (run := ledger.get_run(f"small-{number}")) is None or run.latched_at is None:
            time.sleep(0.02)
        taken.append(time.perf_counter() - began)
        time.sleep(0.37)  # a varying pause, so that the runs meet different moments of a slice
    if os.environ["LARGE"]:
        large_run = ledger.get_run(RUN)
        assert large_run is not None
        assert large_run.latched_at is None, "the large run ended too early: give more URLs"
    taken = taken[3:]  # the first ones open connections
    return {"median": statistics.median(taken), "longest": max(taken)}


def timed(call: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    return wrapped


def bare(n_urls: int, sources: Iterable[str] | None = None) -> dict[str, Any]:
    """Write the same tasks in the same blocks with only the two calls. sources: by default the lines of the list."""
    from prismline_contracts.base import timestamp
    from prismline_contracts.tasks import partition, shard_of, task_id
    from prismline_runtime import clients
    from prismline_splitter.ingestion import block_size, shard_count_of
    from prismline_splitter.settings import SplitterSettings

    dynamodb, sqs = clients.dynamodb(), clients.sqs()
    url = sqs.get_queue_url(QueueName="prismline-bench-tasks")["QueueUrl"]
    shards = shard_count_of(n_urls)
    table = os.environ["RUNS_TABLE"]

    def write(puts: list[dict[str, Any]]) -> None:
        assert not dynamodb.batch_write_item(RequestItems={table: puts}).get("UnprocessedItems")

    lines = enumerate((Path(os.environ["WORKDIR"]) / "list").open() if sources is None else sources)
    began, own = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(SplitterSettings().write_calls) as pool:
        while block := list(islice(lines, block_size(shards))):
            by_shard: dict[int, list[str]] = {}
            puts = []
            created_at = timestamp()
            for index, line in block:
                name = task_id(RUN, index)
                shard = shard_of(name, shards)
                by_shard.setdefault(shard, []).append(name)
                item = {
                    "PK": {"S": partition(RUN, shard, shards)},
                    "SK": {"S": f"TASK#{name}"},
                    "index": {"N": str(index)},
                    "source": {"S": line.rstrip("\n")},
                    "status": {"S": "PENDING"},
                    "created_at": {"S": created_at},
                    "attempts": {"N": "0"},
                    "interruptions": {"N": "0"},
                }
                puts.append({"PutRequest": {"Item": item}})
            list(pool.map(write, [puts[start : start + 25] for start in range(0, len(puts), 25)]))
            bodies = [
                json.dumps({"task_ids": names[start : start + 100]})
                for names in by_shard.values()
                for start in range(0, len(names), 100)
            ]
            for start in range(0, len(bodies), 10):
                entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[start : start + 10])]
                sqs.send_message_batch(QueueUrl=url, Entries=entries)
    seconds, own_cpu = time.perf_counter() - began, time.process_time() - own
    return {"seconds": seconds, "own_cpu": own_cpu, "peak_mb": peak_mb()}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CHILDREN: dict[str, Callable[[int], dict[str, Any]]] = {
    "prepare": prepare,
    SUBJECT: splitter,
    PEER: bare,
    "small": small,
}


if __name__ == "__main__":
    main()
