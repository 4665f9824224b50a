"""Recovery of archived dead letters, compared with a plain loop that lists, sends and deletes them one by one.

The peers run in their own processes, in turns, on one emulator, each with its own records:

- recovery: that of the dlq-consumer. It also reads the ledger, claims each chunk in it and counts in the operation's
  item;
- loop: `list_objects_v2`, then for each record `get_object`, `send_message`, `delete_object`. It uses no ledger, sends
  a chunk once for each of its records, and counts nothing. If it is killed between two calls, it sends a record twice;
- calls: the calls of the recovery for each record, with the same concurrency and the same batches, without our code
  between them. So no recovery of this kind can be faster on this emulator.

    python benchmarks/recovery.py [--records 10000] [--rounds 3] [--latency-ms 20]

On this machine a call costs only processor time. `--latency-ms` delays each call of the three peers before
it is sent, like a network and a remote service.

Peak resident memory is the child's own (`ru_maxrss`). A child also makes the records, because a child's peak begins
with its parent's. The emulator is one Python process on the same machine and limits all rates. So a ratio compares the
load on the emulator rather than the speed on AWS.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SUBJECT, PEER, BOUND = "recovery", "loop", "calls"
#: Records of a window, and calls at a time, as in the settings of the dlq-consumer.
WINDOW, CALLS_AT_A_TIME = 200, 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=0, help="that each call waits before it is sent")
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        delay_calls(args.latency_ms / 1000)
        print("result", json.dumps(CHILDREN[args.child](args.records)))
        return
    from prismline_localstack.emulator import Emulator

    with tempfile.TemporaryDirectory(prefix="recovery-") as directory:
        emulator = Emulator.start(Path(directory), Path(directory) / "log")
        try:
            os.environ.update(emulator.environment)
            turns: dict[str, list[dict[str, float]]] = {SUBJECT: [], PEER: [], BOUND: []}
            for number in range(args.rounds):
                for name, measured in turns.items():
                    environment = f"b{number}{name}"
                    run_child("prepare", environment, args.records)
                    measured.append(run_child(name, environment, args.records, args.latency_ms))
        finally:
            emulator.stop()
    report(turns, args.records)


def delay_calls(seconds: float) -> None:
    """Delay each call of this process's clients before it is sent."""
    import boto3

    boto3.setup_default_session()
    boto3.DEFAULT_SESSION.events.register("before-send", lambda **_: time.sleep(seconds))


def prepare(n_records: int) -> dict[str, float]:
    """A run, and one archived record for each of its chunks."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "services/dlq-consumer/tests"))
    import pytest
    from dlq_world import DlqConsumerWorld, chunk_message

    environment = os.environ["ENVIRONMENT"]
    with pytest.MonkeyPatch.context() as patch:
        world = DlqConsumerWorld.create(environment, patch)
        chunk_ids = world.run("r", n_records)  # the chunks have neither begun nor ended, as if their messages were lost

        def put(chunk_id: str) -> None:
            key = f"dead-letter-archive/sqs/2026-03-01/{chunk_id}.json"
            record = {"body": chunk_message("r", chunk_id), "messageId": chunk_id, "source_queue": "chunks"}
            world.bucket.write(key, json.dumps(record).encode())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put, chunk_ids))
    return {}


def run_child(name: str, environment: str, n_records: int, latency_ms: float = 0) -> dict[str, float]:
    variables = os.environ | {
        "ENVIRONMENT": environment,
        "RUNS_TABLE": f"runs-{environment}",
        "BUCKET": f"bucket-{environment}",
        "POWERTOOLS_LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, __file__, f"--child={name}", f"--records={n_records}", f"--latency-ms={latency_ms}"]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("result "))
    measured: dict[str, float] = json.loads(line.removeprefix("result "))
    return measured


def recover(n_records: int) -> dict[str, float]:
    from prismline_contracts.base import timestamp
    from prismline_contracts.deadletters import DeadlettersRecover
    from prismline_contracts.envelope import Envelope
    from prismline_dlq_consumer.dependencies import Dependencies
    from prismline_dlq_consumer.recovery import on_recover
    from prismline_runtime import Delivery, Message

    deps = Dependencies.from_environment()
    request = DeadlettersRecover(operation_id="op", requested_at=timestamp())
    message = Message(
        Envelope.wrap(request, source="benchmark", traceparent=None), Delivery("recoveries", "m", "h", "", 1)
    )
    began = time.perf_counter()
    on_recover(request, message, deps)
    measured = measure(began, n_records)
    operation = deps.operations.get("op")
    if operation is None or operation.n_sent != n_records:
        sys.exit(f"not all of {n_records} records were recovered: {operation}")
    return measured


def loop(n_records: int) -> dict[str, float]:
    from prismline_runtime import clients

    s3, sqs, bucket = clients.s3(), clients.sqs(), os.environ["BUCKET"]
    url = sqs.get_queue_url(QueueName=f"prismline-{os.environ['ENVIRONMENT']}-chunks")["QueueUrl"]
    began = time.perf_counter()
    sent = 0
    keys: list[str] = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="dead-letter-archive/sqs/"):
        keys += [entry["Key"] for entry in page.get("Contents", [])]
    for key in keys:
        record: dict[str, Any] = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        sqs.send_message(QueueUrl=url, MessageBody=record["body"])
        s3.delete_object(Bucket=bucket, Key=key)
        sent += 1
    if sent != n_records:
        sys.exit(f"the loop sent {sent} of {n_records} records")
    return measure(began, n_records)


def calls(n_records: int) -> dict[str, float]:
    from prismline_runtime import batches, clients

    s3, sqs, dynamodb = clients.s3(), clients.sqs(), clients.dynamodb()
    bucket, table = os.environ["BUCKET"], os.environ["RUNS_TABLE"]
    url = sqs.get_queue_url(QueueName=f"prismline-{os.environ['ENVIRONMENT']}-chunks")["QueueUrl"]

    def read(key: str) -> bytes:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def take(key: str, body: bytes) -> str:
        taken = key.replace("/sqs/", "/recovering/")
        s3.put_object(Bucket=bucket, Key=taken, Body=body, IfNoneMatch="*")
        return taken

    def claim(key: str) -> None:
        name = key.rpartition("/")[2].removesuffix(".json")
        dynamodb.update_item(
            TableName=table, Key={"PK": {"S": "r"}, "SK": {"S": f"CHUNK#{name}"}}, ReturnValues="ALL_NEW",
            UpdateExpression="SET recovery = :r, sent_at = :r", ConditionExpression="#s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":r": {"S": "op"}, ":s": {"S": "PENDING"}},
        )  # fmt: skip

    def send(records: list[bytes]) -> None:
        bodies = [json.loads(record)["body"] for record in records]
        sqs.send_message_batch(
            QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        )

    began, prefix, taken = time.perf_counter(), "dead-letter-archive/sqs/", list[str]()
    with ThreadPoolExecutor(CALLS_AT_A_TIME) as pool:
        while listed := s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=WINDOW).get("Contents"):
            keys = [entry["Key"] for entry in listed]
            taken += pool.map(take, keys, pool.map(read, keys))
            s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        for window in batches(taken, WINDOW):
            records = list(pool.map(read, window))
            list(pool.map(claim, window))
            list(pool.map(send, batches(records)))
    if len(taken) != n_records:
        sys.exit(f"{len(taken)} of {n_records} records were taken")
    return measure(began, n_records)


def measure(began: float, n_records: int) -> dict[str, float]:
    seconds = time.perf_counter() - began
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rss_mib": rss, "rate": n_records / seconds}


CHILDREN: dict[str, Callable[[int], dict[str, float]]] = {
    SUBJECT: recover,
    PEER: loop,
    BOUND: calls,
    "prepare": prepare,
}


def report(turns: dict[str, list[dict[str, float]]], n_records: int) -> None:
    print(f"{n_records} records, {os.cpu_count()} cores, {len(turns[SUBJECT])} rounds; spread is min..max")
    print(f"{'':10} {'peak RSS MiB':>20} {'records/s':>22} {'RSS ratio':>20} {'speed ratio':>20}")
    for name, measured in turns.items():
        pairs = list(zip(measured, turns[PEER], strict=True))
        columns = (
            spread([turn["rss_mib"] for turn in measured], ".0f"),
            spread([turn["rate"] for turn in measured], ".0f"),
            spread([turn["rss_mib"] / peer["rss_mib"] for turn, peer in pairs], ".2f"),
            spread([turn["rate"] / peer["rate"] for turn, peer in pairs], ".2f"),
        )
        print(f"{name:10} {columns[0]:>20} {columns[1]:>22} {columns[2]:>20} {columns[3]:>20}")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


if __name__ == "__main__":
    main()
