"""Memory and speed of reading a large cube in blocks, compared with astropy, which reads all of it.

Each reader runs in its own process, in turns, on one generated file. All of them return the same blocks of
native-endian, C-contiguous spectra (the splitter also checks them for infinities):

- blocks: the splitter's `open_cube(...).blocks(...)`;
- mapped: `astropy.io.fits.getdata(path)`, which maps the file, then a copy of each block;
- loaded: `astropy.io.fits.getdata(path, memmap=False)`, which holds the cube in memory, then a copy of each block.

    python benchmarks/split_memory.py [--channels 424 --ny 1416 --nx 1416] [--npz none|memory|disk]

If the machine has enough memory, all turns except the first read the file from the page cache. Resident memory
includes mapped pages. A child also generates the cube, because a child's peak begins with its parent's.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from prismline_cube.cube_file import open_cube

READERS = ("blocks", "mapped", "loaded")

#: Ratios are relative to this reader.
SUBJECT = "blocks"

#: Most MiB of RSS that the splitter's reader may take.
MEMORY_LIMIT_MIB = 512

#: Bytes of noise. The generated cube repeats them, from a different place in each channel.
NOISE_BYTES = 64 * 2**20

#: Memory that a process needs in addition to a loaded cube. With less to spare, `loaded` is left out.
SPARE_BYTES = 2**30


def main() -> None:
    args = parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](args)))
        return
    with tempfile.TemporaryDirectory(prefix="split-memory-", dir=args.dir) as directory:
        args.path = Path(directory) / "cube.fits"
        cube_bytes = 4 * args.channels * args.ny * args.nx
        print(
            f"cube {args.channels} x {args.ny} x {args.nx} float32, {cube_bytes / 1e9:.2f} GB; blocks of {args.block}"
        )
        print(f"npz: {args.npz}; {os.cpu_count()} cores; {args.rounds} rounds; spread is min..max")
        print(f"generated in {run_child('generate', args)['seconds']:.1f} s\n")
        readers = list(READERS)
        if available_bytes() < cube_bytes + SPARE_BYTES:
            readers.remove("loaded")
            print(f"loaded is left out: it needs {cube_bytes / 2**20:.0f} MiB and this machine has less to spare\n")
        turns: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
        for _ in range(args.rounds):
            for reader in readers:
                turns[reader].append(run_child(reader, args))
    report(turns, cube_bytes)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=424)
    parser.add_argument("--ny", type=int, default=1416)
    parser.add_argument("--nx", type=int, default=1416)
    parser.add_argument("--block", type=int, default=500, help="spectra in a block")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--npz", choices=["none", "memory", "disk"], default="none", help="write each block as .npz, and discard it"
    )
    parser.add_argument("--dir", type=Path, help="where the cube is generated (default: the temporary directory)")
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_child(child: str, args: argparse.Namespace) -> dict[str, float]:
    options = {name: value for name, value in vars(args).items() if value is not None and name != "child"}
    argv = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run([sys.executable, __file__, f"--child={child}", *argv], stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def report(turns: dict[str, list[dict[str, float]]], cube_bytes: int) -> None:
    print(f"{'reader':8} {'peak RSS MiB':>20} {'spectra/s':>26} {'MB/s':>18} {'RSS ratio':>20} {'speed ratio':>20}")
    for reader, measured in turns.items():
        rss = [turn["rss_mib"] for turn in measured]
        rate = [turn["spectra"] / turn["seconds"] for turn in measured]
        speed = [cube_bytes / 1e6 / turn["seconds"] for turn in measured]
        rss_ratio = [turn["rss_mib"] / own["rss_mib"] for turn, own in zip(measured, turns[SUBJECT], strict=True)]
        speed_ratio = [own["seconds"] / turn["seconds"] for turn, own in zip(measured, turns[SUBJECT], strict=True)]
        print(
            f"{reader:8} {spread(rss, '.0f'):>20} {spread(rate, '.0f'):>26} {spread(speed, '.0f'):>18} "
            f"{spread(rss_ratio, '.2f'):>20} {spread(speed_ratio, '.2f'):>20}"
        )
    if len({turn["checksum"] for measured in turns.values() for turn in measured}) > 1:
        sys.exit("the readers do not agree on the spectra")
    peak = max(turn["rss_mib"] for turn in turns[SUBJECT])
    verdict = "met" if peak < MEMORY_LIMIT_MIB else "MISSED"
    print(f"\npeak of {SUBJECT}: {peak:.0f} MiB, limit {MEMORY_LIMIT_MIB} MiB: {verdict}")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def generate(args: argparse.Namespace) -> dict[str, float]:
    """Write a cube of noise, channel by channel, with one spectrum in sixteen blank."""
    began = time.perf_counter()
    rng = np.random.default_rng(1)
    plane = args.ny * args.nx
    noise = rng.standard_normal(max(NOISE_BYTES // 4, 2 * plane), dtype=np.float32).astype(">f4")
    blank = np.arange(plane) % 16 == 0
    header = fits.Header([("SIMPLE", True), ("BITPIX", -32), ("NAXIS", 3)])
    header.extend([("NAXIS1", args.nx), ("NAXIS2", args.ny), ("NAXIS3", args.channels)])
    header.extend([("CTYPE1", "GLON-CAR"), ("CTYPE2", "GLAT-CAR"), ("CTYPE3", "VRAD"), ("BUNIT", "K")])
    with args.path.open("wb") as file:
        file.write(header.tostring().encode())
        for _ in range(args.channels):
            at = int(rng.integers(0, len(noise) - plane + 1))
            file.write(np.where(blank, np.float32(np.nan), noise[at : at + plane]).astype(">f4").tobytes())
        file.write(bytes(-file.tell() % 2880))
    return {"seconds": time.perf_counter() - began}


def own_blocks(args: argparse.Namespace) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    for block in open_cube(args.path, args.path.parent).blocks(args.block):
        yield block.spectra, block.x, block.y


def astropy_blocks(args: argparse.Namespace, **options: bool) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    data = fits.getdata(args.path, **options)
    n_channels, ny, nx = data.shape
    flat = data.reshape(n_channels, ny * nx)
    for start in range(0, ny * nx, args.block):
        spectra = np.ascontiguousarray(flat[:, start : start + args.block].T, dtype=np.float32)
        y, x = np.divmod(np.arange(start, start + len(spectra)), nx)
        yield spectra, x.astype(np.int32), y.astype(np.int32)


def measure(blocks: Iterator[tuple[np.ndarray[Any, Any], ...]], args: argparse.Namespace) -> dict[str, float]:
    began = time.perf_counter()
    n_spectra, checksum = 0, 0.0
    for spectra, x, y in blocks:
        if args.npz == "memory":
            np.savez(io.BytesIO(), spectra=spectra, x=x, y=y)
        elif args.npz == "disk":
            np.savez(args.path.with_suffix(".npz"), spectra=spectra, x=x, y=y)
        n_spectra += len(spectra)
        checksum += float(np.nansum(spectra[:: args.block // 4 or 1], dtype=np.float64)) + float(x[-1]) + float(y[-1])
    seconds = time.perf_counter() - began
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"spectra": n_spectra, "seconds": seconds, "rss_mib": rss_mib, "checksum": checksum}


CHILDREN: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "generate": generate,
    "blocks": lambda args: measure(own_blocks(args), args),
    "mapped": lambda args: measure(astropy_blocks(args), args),
    "loaded": lambda args: measure(astropy_blocks(args, memmap=False), args),
}

if __name__ == "__main__":
    main()
