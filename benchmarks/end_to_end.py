"""A cube from upload to Parquet through the whole system on this machine, compared with the bare kernel.

    python benchmarks/end_to_end.py [--side 400 500] [--repeat 10] [--chunk-input copy reference] [--rounds 3]
        [--picture shares.png]

`--repeat` stacks the generated field so many times, for a cube that is too large to generate in memory.

In each round an embedded harness with two workers decomposes a generated cube, once with each input of the chunks. Then
`prismline_gaussline.decompose` fits the same spectra from memory with the same number of threads. The time of each part
comes from the ledger's timestamps and the workers' logs. Worker times are divided by the number of workers, so
that the parts add up to the total:

    split         from the end of the upload to the start of the first chunk: the event, the splitter, the first message
    move          the upload, and the waits of a worker: chunk input, Parquet, the output's upload
    fit           the time of the workers in the kernel and in making its table
    book-keeping  the ledger, the queue, idle workers, and the run's end
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from prismline_cli.connection import Connection
from prismline_cli.runs import RunView, load_run
from prismline_cli.submission import submit
from prismline_contracts.items import ChunkStatus
from prismline_gaussline import decompose
from prismline_localstack import harness
from prismline_localstack.demos import synthetic
from prismline_localstack.processes import processor_seconds
from prismline_localstack.state import State

#: Seconds between two polls of a run.
POLL_SECONDS = 0.1
#: The length of a FITS file is a multiple of so many bytes.
FITS_RECORD = 2880
#: Longest run, seconds.
PATIENCE_SECONDS = 1800.0
#: Log messages of a worker about a chunk, with their fields of milliseconds, by the name of the part in this script.
LOGGED = {
    "fit": ("chunk_decomposed", "fit_ms"),
    "wait": ("chunk_decomposed", "wait_ms"),
    "write": ("output_written", "write_ms"),
}


@dataclass(frozen=True)
class Run:
    """One run of the system: seconds of each part, and processor seconds of each service after the upload."""

    parts: dict[str, float]
    processor: dict[str, float]
    n_chunks: int
    #: The input of the chunks.
    chunk_input: str

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def seconds_after_upload(self) -> float:
        """From "object created" to the run's end."""
        return self.seconds - self.parts["upload"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, nargs=2, default=(400, 500), metavar=("NY", "NX"), help="spectra")
    parser.add_argument("--repeat", type=int, default=1, help="the field is stacked so many times")
    parser.add_argument("--channels", type=int, default=424)
    parser.add_argument("--chunk-size", type=int, help="spectra in a chunk; default: the splitter's choice")
    parser.add_argument("--chunk-input", nargs="+", default=["auto"], choices=["auto", "copy", "reference"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="a stacked bar of the median round, as PNG")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="end-to-end-") as directory:
        cube = Path(directory) / "cube.fits"
        make_cube(cube, *args.side, args.channels, repeat=args.repeat)
        home = Path(directory) / "home"
        os.environ["PRISMLINE_HOME"] = str(home)
        state = harness.up(home, workers=args.workers)
        try:
            state.activate()
            rounds: dict[str, list[tuple[Run, float]]] = {chunk_input: [] for chunk_input in args.chunk_input}
            for _ in range(args.rounds):
                for chunk_input, found in rounds.items():
                    run = run_system(cube, state, home, args, chunk_input)
                    found.append((run, bare_kernel(cube, args.workers)))
        finally:
            harness.down(home)
    for chunk_input, found in rounds.items():
        print(f"\n## chunk input: {chunk_input}\n")
        report(found, args.side[0] * args.side[1] * args.repeat, args)


def make_cube(path: Path, ny: int, nx: int, n_channels: int, *, repeat: int) -> None:
    """Write a generated field to the FITS file `path`, stacked `repeat` times."""
    field = path.with_suffix(".field.fits")
    synthetic.make_cube(field, ny=ny, nx=nx, n_channels=n_channels)
    with fits.open(field) as units, path.open("wb") as file:
        header, values = units[0].header, units[0].data
        header["NAXIS2"] = ny * repeat
        file.write(header.tostring().encode("ascii"))
        for channel in values:
            file.write(channel.astype(">f4").tobytes() * repeat)
        file.write(bytes(-file.tell() % FITS_RECORD))
    field.unlink()


def run_system(cube: Path, state: State, home: Path, args: argparse.Namespace, chunk_input: str) -> Run:
    """Submit the cube, wait for the end of its run, and account for the time."""
    connection = Connection(state.environment)
    fields: dict[str, Any] = {"survey": "benchmark", "chunk_input": chunk_input}
    if args.chunk_size:
        fields["chunk_size"] = args.chunk_size
    began = time.time()
    run_id = submit(connection, str(cube), fields)
    submitted = time.time()
    processor = processor_by_service(state)
    view = wait(connection, run_id)
    ended = time.time()
    spent = {name: now - processor[name] for name, now in processor_by_service(state).items()}
    chunks = list(connection.ledger.chunks(run_id))
    if not view.ok or any(chunk.state is not ChunkStatus.COMPLETED for chunk in chunks):
        sys.exit(f"run {run_id} did not complete: {view.as_json()}")
    started = min(moment(chunk.started_at) for chunk in chunks)
    completed = max(moment(chunk.completed_at) for chunk in chunks)
    logged = logged_seconds(home, run_id)
    processing = sum((chunk.duration_ms or 0) / 1000 for chunk in chunks)
    parts = {
        "upload": submitted - began,
        "split": started - submitted,
        **{name: seconds / args.workers for name, seconds in logged.items()},
        "ledger": (processing - sum(logged.values())) / args.workers,
        "queue and idle": completed - started - processing / args.workers,
        "run's end": ended - completed,
    }
    return Run(parts, spent, len(chunks), "copy" if chunks[0].reference is None else "reference")


def wait(connection: Connection, run_id: str) -> RunView:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        view = load_run(connection, run_id)
        if view is not None and view.ended:
            return view
        time.sleep(POLL_SECONDS)
    sys.exit(f"run {run_id} did not end within {PATIENCE_SECONDS:.0f} s")


def moment(value: str | None) -> float:
    if value is None:
        sys.exit("a chunk that completed has no timestamp in the ledger")
    return datetime.fromisoformat(value).timestamp()


def logged_seconds(home: Path, run_id: str) -> dict[str, float]:
    """The milliseconds that the workers logged for the run's chunks, summed over the chunks."""
    totals = dict.fromkeys(LOGGED, 0.0)
    for line in harness.logs(home, "worker"):
        if run_id not in line.text:
            continue
        try:
            record = json.loads(line.text)
        except json.JSONDecodeError:
            continue
        for name, (message, field) in LOGGED.items():
            if record.get("message") == message and record.get("run_id") == run_id:
                totals[name] += record[field] / 1000
    return totals


def processor_by_service(state: State) -> dict[str, float]:
    """Processor time so far, by service. Processes that have ended, and systems without /proc, count as 0."""
    totals: dict[str, float] = {}
    for entry in state.processes.values():
        spent = processor_seconds(entry.process.pid) if entry.process is not None else 0.0
        totals[entry.service] = totals.get(entry.service, 0.0) + spent
    return totals


def bare_kernel(cube: Path, threads: int) -> float:
    """Seconds of the bare kernel for all spectra, which are in memory."""
    with fits.open(cube) as units:
        values = units[0].data
        spectra = np.ascontiguousarray(values.reshape(len(values), -1).T, dtype=np.float32)
    began = time.perf_counter()
    decompose(spectra, threads=threads)
    return time.perf_counter() - began


def shares(parts: dict[str, float]) -> dict[str, float]:
    return {
        "split": parts["split"],
        "move": parts["upload"] + parts["wait"] + parts["write"],
        "fit": parts["fit"],
        "book-keeping": parts["ledger"] + parts["queue and idle"] + parts["run's end"],
    }


def report(rounds: list[tuple[Run, float]], n_spectra: int, args: argparse.Namespace) -> None:
    middle, kernel = sorted(rounds, key=lambda pair: pair[0].seconds)[len(rounds) // 2]
    print(
        f"{n_spectra:,} spectra of {args.channels} channels, {middle.n_chunks} chunks ({middle.chunk_input}),"
        f" {args.workers} workers,"
        f" {args.rounds} rounds\n"
    )
    print("| | median (least to most) |\n| --- | --- |")
    print(f"| system, s | {spread([run.seconds for run, _ in rounds])} |")
    print(f"| from object created, s | {spread([run.seconds_after_upload for run, _ in rounds])} |")
    print(f"| system, spectra/s | {spread([n_spectra / run.seconds for run, _ in rounds], '.0f')} |")
    print(f"| bare kernel, {args.workers} threads, s | {spread([kernel for _, kernel in rounds])} |")
    print(f"| system over bare kernel | {spread([run.seconds / kernel for run, kernel in rounds])} |")
    ratios = [run.seconds_after_upload / kernel for run, kernel in rounds]
    print(f"| from object created, over bare kernel | {spread(ratios)} |")
    print("\n| median round | s | share |\n| --- | --- | --- |")
    for name, seconds in shares(middle.parts).items():
        print(f"| {name} | {seconds:.2f} | {seconds / middle.seconds:.0%} |")
    print("\n| in parts | s |\n| --- | --- |")
    for name, seconds in middle.parts.items():
        print(f"| {name} | {seconds:.2f} |")
    print("\n| processor time from object created | s |\n| --- | --- |")
    for name, seconds in sorted(middle.processor.items(), key=lambda item: -item[1]):
        print(f"| {name} | {seconds:.2f} |")
    if args.picture:
        draw(middle, kernel, args.picture)


def spread(values: list[float], form: str = ".2f") -> str:
    middle, least, most = (f"{value:{form}}" for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


def draw(run: Run, kernel: float, path: Path) -> None:
    """The parts of a run as one bar, and the bare kernel as another."""
    import matplotlib  # noqa: PLC0415 - for the picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its backend is chosen

    figure, axes = plt.subplots(figsize=(10, 2.6), layout="constrained")
    left = 0.0
    for name, seconds in run.parts.items():
        axes.barh("system", seconds, left=left, label=f"{name}, {seconds:.1f} s")
        left += seconds
    axes.barh("bare kernel", kernel, color="0.6")
    axes.set_xlabel("seconds")
    axes.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
