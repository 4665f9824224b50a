"""Splitting a cube by reference and by copies, and how many bytes the workers then read.

    python benchmarks/chunk_inputs.py [--gigabytes 0.3 3.4 100] [--copied 0.3] [--rounds 3] [--dir FOLDER]

A server on the loopback interface serves a FITS cube like S3: HEAD, ranged GET with If-Match, PUT. It counts bytes.
The file is sparse, so a cube of 100 GB takes no disk space. Each splitter runs in its own process, in turns:

- reference: `SpectraSplitter.split` with `chunk_input: reference`;
- copy: the same with `copy`, only for the cubes in `--copied`, because it takes time and disk space for two more cubes.

The time is that of the splitter's workload, without the ledger's items and the messages. Then one process reads all the
chunks of the smallest cube like a worker, to measure how many bytes workers read for each byte of the cube.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import boto3
from astropy.io import fits
from botocore.config import Config

from prismline_contracts.manifest import SpectraManifest
from prismline_contracts.objects import CubeGeometry
from prismline_runtime import Bucket
from prismline_splitter.workload import Source
from prismline_splitter.workloads.spectra import SpectraSplitter
from prismline_worker.cube_chunk import CubeChunk

CHANNELS = 424
#: MiB of resident memory that splitting by reference may take.
MEMORY_LIMIT_MIB = 150
#: Most bytes that workers may read for each byte of the cube.
READ_LIMIT = 1.05
ETAG = '"pinned"'
#: Bytes of one read or write of a file.
BLOCK_BYTES = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.3, 3.4, 100.0])
    parser.add_argument("--copied", type=float, nargs="*", default=[0.3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where the cubes are made (default: the temporary directory)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](json.loads(os.environ["CHILD"]))))
        return
    with tempfile.TemporaryDirectory(prefix="chunk-inputs-", dir=args.dir) as folder:
        measure(args, Path(folder))


def measure(args: argparse.Namespace, folder: Path) -> None:
    print(f"cubes of {CHANNELS} channels, float32, spectral axis last; {args.rounds} rounds; spread is least to most\n")
    print("| cube, GB | spectra | input | chunks | s | peak RSS, MiB | bytes read | written per byte of cube |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    met = True
    for gigabytes in args.gigabytes:
        cube = folder / "cube.fits"
        n_spectra = make_cube(cube, gigabytes)
        cube_bytes = n_spectra * CHANNELS * 4
        inputs = ["reference", *(["copy"] if gigabytes in args.copied else [])]
        turns: dict[str, list[dict[str, float]]] = {chunk_input: [] for chunk_input in inputs}
        for _ in range(args.rounds):
            for chunk_input in inputs:
                turns[chunk_input].append(served(cube, folder, "split", chunk_input=chunk_input))
        for chunk_input, found in turns.items():
            print(
                f"| {gigabytes:g} | {n_spectra:,} | {chunk_input} | {found[0]['chunks']:.0f} |"
                f" {spread([turn['seconds'] for turn in found], '.3f')} |"
                f" {spread([turn['rss_mib'] for turn in found], '.0f')} | {found[0]['read']:,.0f} |"
                f" {found[0]['written'] / cube_bytes:.6f} |"
            )
        met &= max(turn["rss_mib"] for turn in turns["reference"]) < MEMORY_LIMIT_MIB
    n_spectra = make_cube(folder / "cube.fits", min(args.gigabytes))
    worked = served(folder / "cube.fits", folder, "work")
    share = worked["read"] / (n_spectra * CHANNELS * 4)
    print(f"\nworkers read {share:.4f} bytes for each byte of the cube, in {worked['requests']:,.0f} requests;")
    print(f"one process read all chunks in {worked['seconds']:.2f} s with a peak of {worked['rss_mib']:.0f} MiB")
    print(f"memory of the splitter under {MEMORY_LIMIT_MIB} MiB: {'met' if met else 'MISSED'}")
    print(f"bytes read under {READ_LIMIT}: {'met' if share < READ_LIMIT else 'MISSED'}")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def make_cube(path: Path, gigabytes: float) -> int:
    """A sparse cube of zeros; its number of spectra."""
    nx = ny = round((gigabytes * 1e9 / CHANNELS / 4) ** 0.5)
    header = fits.Header([("SIMPLE", True), ("BITPIX", -32), ("NAXIS", 3)])
    header.extend([("NAXIS1", nx), ("NAXIS2", ny), ("NAXIS3", CHANNELS)])
    header.extend([("CTYPE1", "GLON-CAR"), ("CTYPE2", "GLAT-CAR"), ("CTYPE3", "VRAD"), ("BUNIT", "K")])
    head = header.tostring().encode()
    path.unlink(missing_ok=True)
    path.write_bytes(head)
    os.truncate(path, -(-(len(head) + nx * ny * CHANNELS * 4) // 2880) * 2880)
    return nx * ny


def served(cube: Path, folder: Path, child: str, **given: Any) -> dict[str, float]:
    """The measurements of a child process while a server serves the cube, with the bytes that the server counted."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, cube, folder), daemon=True)
    server.start()
    port = ours.recv()
    environment = os.environ | {"CHILD": json.dumps(given | {"port": port, "folder": str(folder)})}
    done = subprocess.run(
        [sys.executable, __file__, f"--child={child}"], stdout=subprocess.PIPE, check=True, env=environment
    )
    ours.send("stop")
    counted = ours.recv()
    server.join()
    found: dict[str, float] = json.loads(done.stdout) | counted
    return found


def serve(pipe: Connection, cube: Path, folder: Path) -> None:
    """Serve the cube as the object `cube`. Other objects are files that can be written and read."""
    counted = {"read": 0, "written": 0, "requests": 0}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def path_of(self) -> Path:
            name = self.path.partition("?")[0].strip("/").partition("/")[2]
            return cube if name == "cube" else folder / hashlib.sha256(name.encode()).hexdigest()

        def do_HEAD(self) -> None:
            self.answer(200, self.path_of().stat().st_size)

        def do_PUT(self) -> None:
            left = int(self.headers["x-amz-decoded-content-length"] or self.headers["Content-Length"])
            counted["written"] += left
            path = self.path_of()
            if self.headers.get("Content-Encoding", "").startswith("aws-chunked"):
                self.rfile.read(int(self.headers["Content-Length"]))
            else:
                with path.open("wb") as file:
                    while left:
                        left -= file.write(self.rfile.read(min(left, BLOCK_BYTES)))
                path.unlink()  # the benchmark does not read the splitter's chunk files
            self.answer(200, 0)

        def do_GET(self) -> None:
            path = self.path_of()
            size = path.stat().st_size
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            start = int(asked[1]) if asked else 0
            stop = min(int(asked[2] or size) + 1, size) if asked else size
            counted["requests"] += 1
            counted["read"] += stop - start
            self.answer(206 if asked else 200, stop - start, f"bytes {start}-{stop - 1}/{size}" if asked else None)
            self.wfile.flush()
            with path.open("rb") as file:
                while start < stop:
                    start += os.sendfile(self.connection.fileno(), file.fileno(), start, stop - start)

        def answer(self, status: int, length: int, content_range: str | None = None) -> None:
            self.send_response(status)
            self.send_header("ETag", ETAG)
            self.send_header("Content-Length", str(length))
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    import threading  # noqa: PLC0415 - in the server's process only

    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.recv()
    pipe.send(counted)


def bucket_of(given: dict[str, Any]) -> Bucket:
    config = Config(
        s3={"addressing_style": "path"}, max_pool_connections=25, request_checksum_calculation="when_required"
    )
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{given['port']}", region_name="us-east-1", config=config,
        aws_access_key_id="none", aws_secret_access_key="none",
    )  # fmt: skip
    return Bucket(client, "bucket")


def split(given: dict[str, Any], chunk_input: str | None = None) -> dict[str, float]:
    manifest = SpectraManifest(survey="s", cube_key="cube", chunk_input=chunk_input or given["chunk_input"])
    bucket = bucket_of(given)
    began = time.perf_counter()
    source = Source("run", bucket, Path(given["folder"]), lambda _, find: find(), lambda _: bucket, 0.002)
    found = SpectraSplitter().split(manifest, source)
    return {"seconds": time.perf_counter() - began, "chunks": len(found.chunks), "rss_mib": peak_mib()}


def work(given: dict[str, Any]) -> dict[str, float]:
    bucket = bucket_of(given)
    manifest = SpectraManifest(survey="s", cube_key="cube", chunk_input="reference")
    source = Source("run", bucket, Path(given["folder"]), lambda _, find: find(), lambda _: bucket, 0.002)
    geometry = CubeGeometry(
        n_channels=CHANNELS, ny=1, nx=1, ctype="VRAD", crval=0.0, crpix=0.0, cdelt=1.0, cunit="m/s", bunit="K",
        object_name="", cube_key="cube",
    )  # fmt: skip
    began = time.perf_counter()
    for chunk in SpectraSplitter().split(manifest, source).chunks:
        assert chunk.reference is not None
        for _ in CubeChunk(chunk.reference, geometry, bucket, bucket).blocks():
            pass
    return {"seconds": time.perf_counter() - began, "rss_mib": peak_mib()}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CHILDREN = {"split": split, "work": work}

if __name__ == "__main__":
    main()
