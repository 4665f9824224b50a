"""Ingestion of the items of a function from each of their sources, compared with the bare calls of every ingestion.

    python benchmarks/item_sources.py [--items 1000000] [--objects 100000] [--sources jsonl csv ...] [--rounds 1]

It measures like `ingestion.py`: the splitter ingests the source until its run is latched; the peer reads the finished
items from a file, and makes the bare writes and sends. `--objects` is for a prefix, whose objects have to be created
first; there the peer lists the objects in place of the file. An item has about 90 characters. Peak resident memory is
that of the splitter's process.
"""

# ruff: noqa: PLC0415  each child imports only what it measures
from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ingestion import MANIFEST_KEY, PEER, SUBJECT, bare, create_environment, on_new_emulator, splitter

SOURCES = ("jsonl", "jsonl.gz", "csv", "csv.gz", "parquet", "inventory", "prefix")
SOURCE_KEY, PREFIX, INVENTORY_KEY = "sources/list", "sources/objects/", "sources/inventory/manifest.json"
CODE = "0" * 64
#: Rows of a Parquet row group, and of a file of an inventory.
GROUP_ROWS, FILE_ROWS = 100_000, 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--urls", type=int, nargs=1, help=argparse.SUPPRESS)  # the items of a child
    options = parser.parse_args()
    if options.child:
        print("result", json.dumps(CHILDREN[options.child](options.urls[0])))
        return
    print("| source | items | splitter, items/s | bare calls, items/s | ratio of processor time | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for source in options.sources:
        os.environ["ITEM_SOURCE"] = source
        report(source, options.objects if source == "prefix" else options.items, options.rounds)


def report(source: str, n_items: int, rounds: int) -> None:
    """The medians of some rounds. In each round the two peers take turns."""
    found = [{name: on_new_emulator(name, n_items, script=__file__) for name in (SUBJECT, PEER)} for _ in range(rounds)]

    def middle(of: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(map(of, found))

    rate, bare_rate = (middle(lambda each, name=name: n_items / each[name]["seconds"]) for name in (SUBJECT, PEER))
    ratio = middle(lambda each: each[PEER]["cpu"] / each[SUBJECT]["cpu"])
    peak = middle(lambda each: each[SUBJECT]["peak_mb"])
    print(f"| {source} | {n_items:,} | {rate:,.0f} | {bare_rate:,.0f} | {ratio:.2f} | {peak:.0f} MB |", flush=True)
    for both in found:
        for name, one in both.items():
            own, emulator = (1e6 * one[part] / n_items for part in ("own_cpu", "emulator_cpu"))
            print(f"  {name}: {own:.0f} us of an item, the emulator {emulator:.0f} us", file=sys.stderr)


def items(n_items: int) -> Iterator[dict[str, str]]:
    return (
        {"path": f"s3://field-{n % 97}/images/{n:09d}.fits", "filter": "gri"[n % 3], "seed": str(n * 7919 % 100_003)}
        for n in range(n_items)
    )


def prepare(n_items: int) -> dict[str, Any]:
    """The environment, a registered function, the source and its manifest, and the finished items in a file."""
    import boto3

    from prismline_contracts.item_sources import canonical_json
    from prismline_contracts.workloads import RegisteredWorkload, WorkloadLimits, latest_workload_key, workload_key

    create_environment()
    s3, source, folder = boto3.client("s3"), os.environ["ITEM_SOURCE"], Path(os.environ["WORKDIR"])
    limits = WorkloadLimits(timeout=60, attempts=3, batch=100, memory=2048, processes=64, files=1024)
    function = RegisteredWorkload(
        name="measure", code=CODE, item={}, parameters={}, limits=limits, registered_at="2026-03-01T12:00:00.000Z"
    )
    for key in (latest_workload_key("measure"), workload_key("measure", CODE)):
        s3.put_object(Bucket="bench", Key=key, Body=function.model_dump_json().encode())
    with (folder / "list").open("w") as file:
        file.writelines(f"{canonical_json(item)}\n" for item in items(n_items))
    document = {"workload": "measure", "survey": "bench", "source": put_source(s3, source, folder, n_items)}
    s3.put_object(Bucket="bench", Key=MANIFEST_KEY, Body=json.dumps(document).encode())
    return {}


def put_source(s3: Any, source: str, folder: Path, n_items: int) -> dict[str, Any]:
    """Put the source into the bucket. Return it as a manifest names it."""
    if source == "prefix":
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: s3.put_object(Bucket="bench", Key=f"{PREFIX}{n:09d}", Body=b"x"), range(n_items)))
        return {"kind": "prefix", "prefix": PREFIX}
    if source == "inventory":
        return put_inventory(s3, n_items)
    row_format = source.removesuffix(".gz")
    path = folder / "source"
    if row_format == "parquet":
        write_parquet(path, n_items)
    else:
        with gzip.open(path, "wb", 6) if source.endswith(".gz") else path.open("wb") as file:
            write_lines(file, row_format, n_items)
    s3.upload_file(str(path), "bench", SOURCE_KEY)
    return {"kind": "object", "key": SOURCE_KEY, "format": row_format}


def write_lines(file: BinaryIO, row_format: str, n_items: int) -> None:
    if row_format == "jsonl":
        file.writelines(f"{json.dumps(item)}\n".encode() for item in items(n_items))
    else:
        file.write(b"path,filter,seed\n")
        file.writelines(f"{','.join(item.values())}\n".encode() for item in items(n_items))


def write_parquet(path: Path, n_items: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = items(n_items)
    schema = pa.schema([(name, pa.string()) for name in ("path", "filter", "seed")])
    with parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(group, schema))


def put_inventory(s3: Any, n_items: int) -> dict[str, Any]:
    files = []
    for start in range(0, n_items, FILE_ROWS):
        rows = (
            f'"field","images/{n:09d}.fits","{n}","e{n:031d}"' for n in range(start, min(start + FILE_ROWS, n_items))
        )
        body = gzip.compress("\n".join(rows).encode(), 6)
        key = f"sources/inventory/data/{start:09d}.csv.gz"
        s3.put_object(Bucket="bench", Key=key, Body=body)
        files.append({"key": key, "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()})
    manifest = {"sourceBucket": "field", "fileFormat": "CSV", "fileSchema": "Bucket, Key, Size, ETag", "files": files}
    s3.put_object(Bucket="bench", Key=INVENTORY_KEY, Body=json.dumps(manifest).encode())
    return {"kind": "inventory", "key": INVENTORY_KEY}


def bare_calls(n_items: int) -> dict[str, Any]:
    """The bare writes and sends. A prefix has to be listed, too."""
    return bare(n_items, listed_keys() if os.environ["ITEM_SOURCE"] == "prefix" else None)


def listed_keys() -> Iterator[str]:
    from prismline_runtime import clients

    pages = clients.s3().get_paginator("list_objects_v2").paginate(Bucket="bench", Prefix=PREFIX)
    return (entry["Key"] for page in pages for entry in page.get("Contents", []))


CHILDREN: dict[str, Callable[[int], dict[str, Any]]] = {"prepare": prepare, SUBJECT: splitter, PEER: bare_calls}


if __name__ == "__main__":
    main()
