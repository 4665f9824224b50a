"""What one ranged request to S3 costs: with boto3, and with a presigned URL.

    python benchmarks/ranges.py [--requests 2000] [--connections 16] [--kib 256] [--rounds 3]

A worker reads a part of a cube in such requests. The peers take turns on one object of an emulator. The
figures are processor time of this process and of the emulator, so a busy machine does not matter much.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prismline_localstack.emulator import Emulator
from prismline_localstack.processes import processor_seconds
from prismline_runtime import Bucket, PresignedRanges, clients

#: Bytes of the object.
SIZE = 256 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--kib", type=int, default=256, help="of one request")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ranges-") as directory:
        emulator = Emulator.start(Path(directory), Path(directory) / "log")
        try:
            os.environ.update(emulator.environment)
            s3 = clients.s3()
            s3.create_bucket(Bucket="ranges")
            s3.put_object(Bucket="ranges", Key="cube", Body=bytes(SIZE))
            presigned = PresignedRanges(s3)
            peers = {"boto3": Bucket(s3, "ranges"), "presigned": Bucket(s3, "ranges", presigned)}
            rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
            for _ in range(args.rounds):
                for name, bucket in peers.items():
                    rounds[name].append(measure(bucket, emulator.child.pid, args))
        finally:
            emulator.stop()
    print("| | client, ms | emulator, ms | client over boto3 |\n| --- | --- | --- | --- |")
    for name, found in rounds.items():
        ratios = [own / peer for (own, _), (peer, _) in zip(found, rounds["boto3"], strict=True)]
        client, server = ([each[n] for each in found] for n in (0, 1))
        print(f"| {name} | {spread(client)} | {spread(server)} | {spread(ratios)} |")


def measure(bucket: Bucket, emulator: int, args: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds of processor time of this process and of the emulator, for one request."""
    etag, length = bucket.version("cube"), args.kib * 1024
    places = [number * 2 * length % (SIZE - length) for number in range(args.requests)]
    read: Callable[[int], bytes] = lambda at: bucket.read_range("cube", at, at + length, etag=etag)  # noqa: E731
    began, before = time.process_time(), processor_seconds(emulator)
    with ThreadPoolExecutor(args.connections) as pool:
        for _ in pool.map(read, places):
            pass
    own, other = time.process_time() - began, processor_seconds(emulator) - before
    return 1000 * own / args.requests, 1000 * other / args.requests


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
