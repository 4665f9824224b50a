"""Memory and speed of an export, compared with a plain copy of the same bodies, one after the other.

Both peers use one emulator and run in their own processes. The script writes a run whose tasks have all
completed into the ledger. The tasks share a few thousand bodies, which makes no difference for their readers. The
exporter's handler takes one message and writes the ZIP archive. The copy gets each body, adds
it to a buffer and uploads the buffer as a part when it has 32 MiB. It reads no ledger and writes no archive.

    python benchmarks/export.py [--bodies 1000 10000 100000] [--bytes 10000] [--copied 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from prismline_contracts.events import ExportRequested
from prismline_contracts.jobs import export_object_key, jobs_table_name
from prismline_contracts.tasks import TaskItem, TaskResult, partition, shard_of, task_id
from prismline_exporter.dependencies import Dependencies
from prismline_exporter.handler import build_handler
from prismline_ledger import Ledger, NewRun
from prismline_localstack.emulator import Emulator
from prismline_localstack.testing import create_runs_table
from prismline_runtime import clients, encode
from prismline_runtime.consumer import InvocationContext, lambda_record

#: Objects that the tasks share, and clients that write them.
OBJECTS, WRITERS = 2000, 8
#: Bytes of a part of the plain copy, and of the exporter.
PART_BYTES = 32 * 2**20
ENVIRONMENT, BUCKET, RUNS = "bench", "bench-bucket", "bench-runs"
MOMENT = "2026-03-01T12:00:00.000Z"


def main() -> None:
    args = parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](args)))
        return
    with tempfile.TemporaryDirectory(prefix="export-", dir=args.dir) as directory:
        emulator = Emulator.start(Path(directory), Path(directory) / "emulator.log")
        try:
            settings = {"ENVIRONMENT": ENVIRONMENT, "BUCKET": BUCKET, "RUNS_TABLE": RUNS}
            os.environ.update(emulator.environment | settings | {"POWERTOOLS_LOG_LEVEL": "WARNING"})
            prepare(args)
            measure(args)
        finally:
            emulator.stop()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, nargs="+", default=[1000, 10_000, 100_000], help="bodies in an export")
    parser.add_argument("--bytes", type=int, default=10_000, help="mean length of a body")
    parser.add_argument("--copied", type=int, default=10_000, help="most bodies of the plain copy")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of all sizes but the largest")
    parser.add_argument(
        "--dir", type=Path, help="where the emulator keeps its files (default: the temporary directory)"
    )
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_child(child: str, count: int, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, f"--child={child}", f"--count={count}", f"--bytes={args.bytes}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(args: argparse.Namespace) -> None:
    print(f"bodies of {args.bytes} bytes on average, {os.cpu_count()} cores")
    names = ("bodies", "export MB/s", "bodies/s", "RSS MiB", "copy MB/s", "RSS MiB", "ratio")
    print(" ".join(f"{name:>11}" for name in names))
    for count in args.bodies:
        for _ in range(args.rounds if count < max(args.bodies) else 1):
            copy = run_child("copy", min(count, args.copied), args)
            run_child("ledger", count, args)
            export = run_child("export", count, args)
            rates = [each["bytes"] / 1e6 / each["seconds"] for each in (export, copy)]
            row = [
                rates[0],
                count / export["seconds"],
                export["rss_mib"],
                rates[1],
                copy["rss_mib"],
                rates[0] / rates[1],
            ]
            print(" ".join([f"{count:11d}", *(f"{value:11.2f}" for value in row)]), flush=True)


def body_of(number: int, length: int) -> bytes:
    """A body whose length is 0.5 to 1.5 times the mean length."""
    rng = random.Random(number)
    return rng.randbytes(rng.randint(length // 2, length * 3 // 2))


def key_of(number: int) -> str:
    return f"results/shared/{number % OBJECTS:06d}"


def prepare(args: argparse.Namespace) -> None:
    """Tables, queue, bus, bucket and bodies."""
    dynamodb, s3 = clients.dynamodb(), clients.s3()
    for table in (RUNS, jobs_table_name(ENVIRONMENT)):
        create_runs_table(dynamodb, table)
    s3.create_bucket(Bucket=BUCKET)
    clients.events().create_event_bus(Name=f"prismline-{ENVIRONMENT}")
    for queue in ("exports", "exports-dlq"):
        clients.sqs().create_queue(QueueName=f"prismline-{ENVIRONMENT}-{queue}")
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(
            lambda n: s3.put_object(Bucket=BUCKET, Key=key_of(n), Body=body_of(n, args.bytes)), range(OBJECTS)
        ):
            pass


def ledger(args: argparse.Namespace) -> dict[str, float]:
    """Write a run of completed tasks."""
    run_id, count = f"run-{args.count}", args.count
    shards = 1 if count <= 10_000 else 16
    dynamodb = clients.dynamodb()
    book = Ledger(dynamodb, RUNS)
    book.open_run(
        NewRun(
            run_id=run_id,
            survey="pages",
            job_id="job",
            workload="urls",
            unit="task",
            shard_count=shards,
        )
    )
    bodies = [body_of(n, args.bytes) for n in range(min(count, OBJECTS))]
    facts = [(len(body), sha256(body).hexdigest()) for body in bodies]

    def item(index: int) -> TaskItem:
        name = task_id(run_id, index)
        length, digest = facts[index % OBJECTS]
        return TaskItem(
            PK=partition(run_id, shard_of(name, shards), shards),
            SK=f"TASK#{name}",
            index=index,
            source=f"https://example.org/{index}",
            status="COMPLETED",
            created_at=MOMENT,
            completed_at=MOMENT,
            attempts=1,
            result=TaskResult(
                key=key_of(index),
                http_status=200,
                content_type="text/html",
                length=length,
                sha256=digest,
                final_url=f"https://example.org/{index}",
            ),
        )

    for start in range(0, count, 25):
        puts = [
            {"PutRequest": {"Item": encode(item(n).model_dump(exclude_none=True))}}
            for n in range(start, min(start + 25, count))
        ]
        dynamodb.batch_write_item(RequestItems={RUNS: puts})  # type: ignore[dict-item, list-item]
    dynamodb.update_item(
        TableName=RUNS,
        Key={"PK": {"S": run_id}, "SK": {"S": "RUN"}},
        UpdateExpression="SET jobs_total = :n, jobs_completed = :n, latched_at = :now, drained_at = :now",
        ExpressionAttributeValues={":n": {"N": str(count)}, ":now": {"S": MOMENT}},
    )
    return {}


def export(args: argparse.Namespace) -> dict[str, float]:
    """Call the exporter's handler with the request."""
    deps = Dependencies.from_environment()
    run_id = f"run-{args.count}"
    export_id = f"e{time.time_ns()}"
    request = deps.transport.wrap(ExportRequested(run_id=run_id, export_id=export_id), traceparent=None)
    arn = f"arn:aws:sqs:us-east-1:000000000000:prismline-{ENVIRONMENT}-exports"
    message = {
        "MessageId": "m",
        "ReceiptHandle": "r",
        "Body": request.to_json(),
        "Attributes": {"ApproximateReceiveCount": "1"},
    }
    handler = build_handler(deps)
    began = time.perf_counter()
    event = {"Records": [lambda_record(message, arn)]}  # type: ignore[arg-type]
    answer = handler(event, InvocationContext("exports", time.monotonic() + 7200))
    seconds = time.perf_counter() - began
    item = deps.exports.get(run_id, export_id)
    if answer["batchItemFailures"] or item is None or item.status != "COMPLETED" or item.entries != args.count:
        sys.exit(f"the export did not complete: {item}")
    key = export_object_key(run_id, export_id, "zip")
    clients.s3().delete_object(Bucket=BUCKET, Key=key)
    return {"seconds": seconds, "bytes": float(bytes_of(args)), "rss_mib": peak_rss()}


def copy(args: argparse.Namespace) -> dict[str, float]:
    """Get one body after the other and upload them in parts."""
    s3 = clients.s3()
    began = time.perf_counter()
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="copy")["UploadId"]
    parts, buffer = [], bytearray()

    def put() -> None:
        nonlocal buffer
        number = len(parts) + 1
        answer = s3.upload_part(Bucket=BUCKET, Key="copy", UploadId=upload, PartNumber=number, Body=bytes(buffer))
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        buffer = bytearray()

    for number in range(args.count):
        buffer += s3.get_object(Bucket=BUCKET, Key=key_of(number))["Body"].read()
        if len(buffer) >= PART_BYTES:
            put()
    put()
    s3.complete_multipart_upload(Bucket=BUCKET, Key="copy", UploadId=upload, MultipartUpload={"Parts": parts})  # type: ignore[typeddict-item]
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "bytes": float(bytes_of(args)), "rss_mib": peak_rss()}


def bytes_of(args: argparse.Namespace) -> int:
    """Bytes of the bodies."""
    lengths = [len(body_of(n, args.bytes)) for n in range(min(args.count, OBJECTS))]
    return sum(lengths[n % OBJECTS] for n in range(args.count))


def peak_rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CHILDREN: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "ledger": ledger,
    "export": export,
    "copy": copy,
}

if __name__ == "__main__":
    main()
