"""What a chunk costs in addition to its work: the worker's handler processes many tiny chunks, compared with bare
calls.

    python benchmarks/book_keeping.py [--chunks 1000] [--spectra 5] [--workers 2] [--rounds 3]

Two peers on an emulator take turns:

- system: worker processes receive the chunks' messages, process them like the service, and delete the messages;
- bare: the same number of processes make the same calls for each chunk, with about the same sizes, without our code
  between them: ReceiveMessage, UpdateItem, GetObject, PutObject, TransactWriteItems, GetItem, PutEvents, DeleteMessage.

So the ratio shows what our code adds to the calls. The rate of the bare calls shows the limit of the emulator, which is
one Python process that answers one request after the other.
"""

# ruff: noqa: PLC0415  each child imports only what it measures
from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from prismline_ledger import NewRun

SYSTEM, BARE = "system", "bare"
#: Channels of a spectrum.
CHANNELS = 100
#: A worker ends after so many seconds without a message.
QUIET_SECONDS = 1
RUN_ID = "run-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--spectra", type=int, default=5, help="in a chunk")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=[SYSTEM, BARE, "prepare"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        children = {SYSTEM: work, BARE: call, "prepare": lambda: prepare(args.chunks, args.spectra)}
        print("result", json.dumps(children[args.child]()))
        return
    from prismline_localstack.emulator import Emulator
    from prismline_localstack.processes import processor_seconds

    with tempfile.TemporaryDirectory(prefix="book-keeping-") as directory:
        emulator = Emulator.start(Path(directory), Path(directory) / "log")
        try:
            os.environ.update(emulator.environment)
            rounds: list[dict[str, dict[str, float]]] = []
            for number in range(args.rounds):
                measured = {}
                for name in (SYSTEM, BARE):
                    environment = f"k{number}{name[0]}"
                    finish([start("prepare", environment, args)])
                    before = processor_seconds(emulator.child.pid)
                    parts = finish([start(name, environment, args) for _ in range(args.workers)])
                    seconds = max(part["ended"] for part in parts) - min(part["began"] for part in parts)
                    if (done := sum(part["chunks"] for part in parts)) != args.chunks:
                        sys.exit(f"{name}: {done:.0f} of {args.chunks} chunks were worked off")
                    measured[name] = {
                        "rate": args.chunks / seconds,
                        "clients_ms": 1000 * sum(part["processor"] for part in parts) / args.chunks,
                        "emulator_ms": 1000 * (processor_seconds(emulator.child.pid) - before) / args.chunks,
                    }
                rounds.append(measured)
        finally:
            emulator.stop()
    report(rounds, args)


def start(name: str, environment: str, args: argparse.Namespace) -> subprocess.Popen[str]:
    variables = os.environ | {
        "ENVIRONMENT": environment,
        "RUNS_TABLE": f"runs-{environment}",
        "POWERTOOLS_LOG_LEVEL": "ERROR",
        "POWERTOOLS_METRICS_DISABLED": "true",
    }
    command = [sys.executable, __file__, f"--child={name}", f"--chunks={args.chunks}", f"--spectra={args.spectra}"]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)


def finish(children: list[subprocess.Popen[str]]) -> list[dict[str, float]]:
    found = []
    for child in children:
        out, _ = child.communicate()
        if child.returncode:
            sys.exit(child.returncode)
        found.append(json.loads(next(line for line in out.splitlines() if line.startswith("result "))[7:]))
    return found


def names() -> tuple[str, str, str, str]:
    """The bucket, the table, the bus and the queue of this environment."""
    environment = os.environ["ENVIRONMENT"]
    return f"bucket-{environment}", f"runs-{environment}", f"prismline-{environment}", f"prismline-{environment}-chunks"


def prepare(n_chunks: int, n_spectra: int) -> dict[str, float]:
    """A run of copied chunks whose messages wait in the queue."""
    import numpy as np

    from prismline_contracts.base import chunk_id
    from prismline_contracts.commands import ChunkProcess
    from prismline_contracts.objects import chunk_key
    from prismline_ledger import Ledger, NewChunk
    from prismline_localstack.testing import create_runs_table
    from prismline_runtime import Transport, clients

    bucket, table, bus, queue = names()
    clients.s3().create_bucket(Bucket=bucket)
    create_runs_table(clients.dynamodb(), table)
    clients.events().create_event_bus(Name=bus)
    for name in (queue, f"{queue}-dlq", queue.replace("-chunks", "-refits")):
        clients.sqs().create_queue(QueueName=name, Attributes={"VisibilityTimeout": "600"})
    body, pixels = io.BytesIO(), np.arange(n_spectra)
    np.savez(body, spectra=np.random.default_rng(1).normal(size=(n_spectra, CHANNELS)), x=pixels, y=pixels)
    ledger, transport = Ledger(clients.dynamodb(), table), Transport.connect(os.environ["ENVIRONMENT"], "benchmark")
    ledger.open_run(NewRun(run_id=RUN_ID, survey="s", job_id="j", workload="spectra"))
    ids = [chunk_id(number * n_spectra) for number in range(n_chunks)]
    s3 = clients.s3()
    for name in ids:
        s3.put_object(Bucket=bucket, Key=chunk_key(RUN_ID, name), Body=body.getvalue())
    ledger.add_chunks(RUN_ID, [NewChunk(name, chunk_key(RUN_ID, name), n_spectra) for name in ids])
    ledger.set_total(RUN_ID, n_chunks=n_chunks, n_items=n_chunks * n_spectra, n_blank=0)
    run = ledger.latch(RUN_ID)
    commands = (ChunkProcess.of(chunk, run, bucket) for chunk in ledger.chunks(RUN_ID))
    transport.send("chunks", (transport.wrap(each, traceparent=None, key=(each.chunk_id,)) for each in commands))
    return {}


def messages(wait_seconds: int = QUIET_SECONDS) -> Any:
    """Each message of the queue. It is deleted when the caller takes the next one."""
    from prismline_runtime import clients

    sqs = clients.sqs()
    url = sqs.get_queue_url(QueueName=names()[3])["QueueUrl"]
    while found := sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=wait_seconds, MessageAttributeNames=["All"], AttributeNames=["All"]
    ).get("Messages"):
        for message in found:
            yield message
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def measured(work_off: Any) -> dict[str, float]:
    """Work off what is in the queue, and say when that began and ended, and what it took of the processor."""
    n, began, processor, ended = 0, time.time(), time.process_time(), 0.0
    for message in messages():
        work_off(message)
        n, ended = n + 1, time.time()
    return {"chunks": n, "began": began, "ended": ended, "processor": time.process_time() - processor}


def work() -> dict[str, float]:
    """The worker's handler."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from prismline_ledger.testing import Context, lambda_event
    from prismline_worker.dependencies import Dependencies
    from prismline_worker.handler import build_handler

    handler = build_handler(Dependencies.from_environment())  # the clients are made before the clock starts

    def work_off(message: Any) -> None:
        answer = handler(lambda_event([message], os.environ["ENVIRONMENT"], "chunks"), Context())
        if answer["batchItemFailures"]:
            sys.exit(f"a chunk was not worked off: {message['Body']}")

    return measured(work_off)


def call() -> dict[str, float]:
    """The same calls without our code."""
    from prismline_runtime import clients

    bucket, table, bus, _ = names()
    s3, dynamodb, events = clients.s3(), clients.dynamodb(), clients.events()
    run = {"PK": {"S": RUN_ID}, "SK": {"S": "RUN"}}
    output = bytes(12_000)

    def work_off(message: Any) -> None:
        data = json.loads(message["Body"])["data"]
        chunk = {"PK": {"S": RUN_ID}, "SK": {"S": f"CHUNK#{data['chunk_id']}"}}
        dynamodb.update_item(
            TableName=table, Key=chunk, UpdateExpression="SET #s = :s, started_at = :t ADD attempts :n",
            ConditionExpression="attribute_exists(PK)", ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": {"S": "IN_PROGRESS"}, ":t": {"S": "t"}, ":n": {"N": "1"}},
            ReturnValues="ALL_NEW",
        )  # fmt: skip
        s3.get_object(Bucket=bucket, Key=data["chunk_key"], Range="bytes=0-8388607")["Body"].read()
        s3.put_object(Bucket=bucket, Key=f"out/{data['chunk_id']}", Body=output, IfNoneMatch="*")
        end = {"TableName": table, "Key": chunk, "UpdateExpression": "SET #s = :s, output_key = :o, duration_ms = :n",
               "ConditionExpression": "#s = :b", "ExpressionAttributeNames": {"#s": "status"},
               "ExpressionAttributeValues": {":s": {"S": "COMPLETED"}, ":b": {"S": "IN_PROGRESS"}, ":o": {"S": "o"},
                                             ":n": {"N": "1"}}}  # fmt: skip
        count = {"TableName": table, "Key": run, "UpdateExpression": "ADD jobs_completed :n",
                 "ConditionExpression": "attribute_exists(PK)",
                 "ExpressionAttributeValues": {":n": {"N": "1"}}}  # fmt: skip
        dynamodb.transact_write_items(TransactItems=[{"Update": end}, {"Update": count}])
        dynamodb.get_item(TableName=table, Key=run, ConsistentRead=True)
        events.put_events(
            Entries=[{"EventBusName": bus, "Source": "b", "DetailType": "d", "Detail": json.dumps({"data": data})}]
        )

    return measured(work_off)


def report(rounds: list[dict[str, dict[str, float]]], args: argparse.Namespace) -> None:
    print(f"{args.chunks} chunks of {args.spectra} spectra, {args.workers} workers, {args.rounds} rounds\n")
    print("| | chunks/s | of bare calls | processor of workers, ms a chunk | of the emulator, ms a chunk |")
    print("| --- | --- | --- | --- | --- |")
    for name in (SYSTEM, BARE):
        rates = spread([each[name]["rate"] for each in rounds], ".1f")
        ratio = spread([each[name]["rate"] / each[BARE]["rate"] for each in rounds], ".2f")
        processor = (spread([each[name][who] for each in rounds], ".1f") for who in ("clients_ms", "emulator_ms"))
        print(f"| {name} | {rates} | {ratio} | {' | '.join(processor)} |")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
