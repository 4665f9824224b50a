"""How long the cube of a run takes to open in the console: 500 x 3,600 spectra in 16 chunks, read by a new api process.

The emulator holds generated outputs with every column, as large as those of a Galactic survey (two components
for each spectrum). Each round starts an api process and sends the requests of the page: the list of maps, then the
range of the map and its coarsest tile in parallel, until nothing is pending; then another map, the tiles of a closer
view, and spectra along a row and a column. The processor time and the memory are those of the api process.

Before the rounds, Chromium opens the pages once, with an api process that has read nothing: seconds until it first
paints content (`paint`), and until the map of the cube is complete.

    python benchmarks/console_maps.py [--rounds 3] [--nx 3600] [--ny 500] [--keep]

`--keep` serves the console with the generated run until Ctrl-C, so that you can open it in a browser.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from prismline_api.dependencies import Dependencies
from prismline_contracts.base import chunk_id
from prismline_contracts.decomposition import arrow_schema
from prismline_contracts.objects import CubeGeometry, geometry_key, output_key
from prismline_contracts.references import CubeReference
from prismline_ledger import NewChunk, NewRun, Outcome, Started
from prismline_localstack import harness
from prismline_localstack.api_keys import read_api_key
from prismline_localstack.processes import processor_seconds
from tests.console import chromium

#: Channels of a survey like GRS; rows that a worker writes at a time.
CHANNELS, BLOCK_ROWS = 424, 4945
#: Channels of the cube in the bucket. All channels would take three gigabytes.
STORED_CHANNELS = 100
CHUNKS = 16
CUBE = "cubes/bench/field.fits"
#: The times of the browser at which the page first had content.
PAINTS = "performance.getEntriesByName('first-contentful-paint')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nx", type=int, default=3600)
    parser.add_argument("--ny", type=int, default=500)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maps-benchmark-") as folder:
        home = Path(folder)
        limits = {"REQUESTS_PER_SECOND": "1000000", "REQUEST_BURST": "1000000"}
        state = harness.up(home, services=["api"], settings=limits)
        try:
            state.activate()
            os.environ |= limits
            key = read_api_key(home / "api-key") or ""
            deps = Dependencies.from_environment()
            run_id, size = make_run(deps, httpx.Client(base_url=state.url("api")), key, arguments.nx, arguments.ny)
            if arguments.keep:
                print(f"{state.url('api')}/console/runs/{run_id}/cube", flush=True)
                while True:
                    time.sleep(3600)
            painted = in_the_browser(state.url("api"), run_id)
            rounds = [one_round(run_id, key, arguments) for _ in range(arguments.rounds)]
            found = {"outputs_mb": round(size / 1e6), "browser": painted, "median": median(rounds), "rounds": rounds}
            print(json.dumps(found, indent=2))
        finally:
            harness.down(home)


def make_run(deps: Dependencies, client: httpx.Client, key: str, nx: int, ny: int) -> tuple[str, int]:
    """A run whose chunks have completed, and the bytes of its outputs."""
    celestial: dict[str, str | int | float | bool] = {
        "CTYPE1": "GLON-CAR", "CTYPE2": "GLAT-CAR", "CUNIT1": "deg", "CUNIT2": "deg", "CRVAL1": 30.0, "CRVAL2": 0.0,
        "CRPIX1": nx / 2, "CRPIX2": ny / 2, "CDELT1": -0.006, "CDELT2": 0.006,
    }  # fmt: skip
    geometry = CubeGeometry(
        n_channels=STORED_CHANNELS, ny=ny, nx=nx, ctype="VRAD", crval=-5000.0, crpix=1.0, cdelt=850.0, cunit="m/s",
        bunit="K", object_name="bench", cube_key=CUBE, celestial=celestial,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    cube = rng.integers(90, 110, STORED_CHANNELS * nx * ny, dtype=np.uint8)
    deps.bucket.write(CUBE, cube.tobytes())
    body = {"workload": "spectra", "name": "bench", "cube_key": CUBE}
    answer = client.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {key}"})
    job = answer.raise_for_status().json()
    run_id = job["run"]["run_id"]
    deps.ledger.open_run(NewRun(run_id=run_id, survey="bench", job_id=job["job_id"], workload="spectra"))
    deps.bucket.write(geometry_key(run_id), geometry.model_dump_json().encode())
    whole = CubeReference(
        key=CUBE, etag=deps.bucket.version(CUBE), offset=0, bitpix=8, axes=[nx, ny, STORED_CHANNELS], spectral_axis=3,
        bscale=0.02, bzero=-2.0, first=0, count=nx * ny,
    )  # fmt: skip
    size = -(-nx * ny // CHUNKS)
    counts = {first: min(size, nx * ny - first) for first in range(0, nx * ny, size)}
    deps.ledger.add_chunks(
        run_id,
        (
            NewChunk(chunk_id(first), CUBE, count, whole.model_copy(update={"first": first, "count": count}))
            for first, count in counts.items()
        ),
    )
    deps.ledger.set_total(run_id, n_chunks=len(counts), n_items=nx * ny, n_blank=None)
    deps.ledger.latch(run_id)
    written = 0
    for first, count in counts.items():
        written += len(output := made_up(geometry, first, count))
        deps.bucket.write(output_key("bench", run_id, chunk_id(first)), output)
        started = deps.ledger.start_chunk(run_id, chunk_id(first))
        assert isinstance(started, Started)
        deps.ledger.complete_chunk(
            started.chunk, Outcome(output_key("bench", run_id, chunk_id(first))), duration_ms=20_000
        )
    return run_id, written


def made_up(geometry: CubeGeometry, first: int, count: int) -> bytes:
    """An output of a chunk, block by block as a worker writes it."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, arrow_schema(geometry), compression="zstd") as writer:
        for start in range(first, first + count, BLOCK_ROWS):
            writer.write_table(rows(geometry, start, min(BLOCK_ROWS, first + count - start)))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def rows(geometry: CubeGeometry, first: int, count: int) -> pa.Table:
    """Rows with two components on average, whose brightness varies smoothly over the map."""
    rng = np.random.default_rng(first)
    y, x = np.divmod(np.arange(first, first + count), geometry.nx)
    bright = 1.5 + np.sin(x / 90.0) * np.cos(y / 60.0)
    n = rng.poisson(2.0, count)
    owner = np.repeat(np.arange(count), n)
    offsets = np.concatenate([[0], np.cumsum(n)]).astype(np.int32)
    amplitude = rng.gamma(2.0, 0.5, len(owner)) * bright[owner]
    mean = rng.normal(geometry.n_channels / 2 + 20 * np.sin(x[owner] / 300.0), 8.0)
    stddev = rng.uniform(1.0, 6.0, len(owner))
    flux, step = amplitude * stddev * np.sqrt(2 * np.pi), geometry.cdelt
    lists = {
        "amplitudes": amplitude, "means": mean, "stddevs": stddev, "fluxes": flux,
        "amplitude_errors": 0.1 * stddev, "mean_errors": 0.05 * stddev, "stddev_errors": 0.06 * stddev,
        "flux_errors": 0.1 * flux, "means_physical": geometry.crval + mean * step,
        "mean_errors_physical": 0.05 * stddev * step, "stddevs_physical": stddev * step,
        "stddev_errors_physical": 0.06 * stddev * step, "fluxes_physical": flux * step,
        "flux_errors_physical": 0.1 * flux * step,
    }  # fmt: skip
    columns: dict[str, Any] = {
        "x": x, "y": y, "beta": np.full(count, 5.0), "rms": rng.normal(0.1, 0.01, count),
        "min_persistence": rng.normal(0.5, 0.05, count), "n_components": n,
        "status": np.where(n > 0, "fitted", "empty"), "chi2_reduced": rng.normal(1.0, 0.05, count),
        "aicc": rng.normal(500.0, 10.0, count), "flags": (n > 0).astype(int),
        "decomposer": np.full(count, "gaussline"), "longitude": 30.0 - 0.006 * (x - geometry.nx / 2),
        "latitude": 0.006 * (y - geometry.ny / 2),
    } | {
        f"component_{name}": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        for name, values in lists.items()
    }  # fmt: skip
    schema = arrow_schema(geometry)
    # Columns of other decomposers have no values.
    empty = [None] * count
    return pa.table([pa.array(columns.get(field.name, empty), field.type) for field in schema], schema=schema)


def one_round(run_id: str, key: str, arguments: argparse.Namespace) -> dict[str, float]:
    """The measurements of a new process: seconds, or megabytes if the name says so."""
    with api_process() as (url, pid):
        client = httpx.Client(
            base_url=f"{url}/v1/runs/{run_id}", headers={"Authorization": f"Bearer {key}"}, timeout=120
        )
        found: dict[str, float] = {}
        began, used = time.perf_counter(), processor_seconds(pid)
        about = client.get("/maps").raise_for_status().json()
        found["list_of_maps"] = time.perf_counter() - began
        first, whole = open_map(client, "integrated", about["levels"] - 1)
        found["first_picture"], found["whole_picture"] = first - began, whole - began
        found["processor"] = processor_seconds(pid) - used
        for name in ("rms", "velocity"):
            began, used = time.perf_counter(), processor_seconds(pid)
            _, whole = open_map(client, name, about["levels"] - 1)
            found[f"{name}_whole"], found[f"{name}_processor"] = whole - began, processor_seconds(pid) - used
        began = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:  # the tiles that a window of 1,280 x 512 pixels shows
            list(pool.map(lambda at: tile(client, "integrated", f"0/{at % 5}/{at // 5 % 2}"), range(10)))
        found["ten_tiles_of_level_0"] = time.perf_counter() - began
        x, y = arguments.nx // 2, arguments.ny // 2
        found["first_spectrum"] = timed(client, [(x, y)])
        found["spectrum_along_a_row"] = timed(client, [(x + step, y) for step in range(1, 11)])
        found["spectrum_along_a_column"] = timed(client, [(x, y + step) for step in range(1, 11)])
        found["sky"] = elapsed(lambda: client.get("/sky").raise_for_status())
        found["peak_rss_mb"] = peak_megabytes(pid)
        return {name: round(value, 3) for name, value in found.items()}


def in_the_browser(url: str, run_id: str) -> dict[str, float]:
    """Seconds until each page paints content for the first time, and until the map of the cube is complete."""
    found: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright.chromium)
        for name, path in (("runs", "runs"), ("run", f"runs/{run_id}"), ("cube", f"runs/{run_id}/cube")):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(f"{url}/console/{path}")
            expect(page.locator("h1")).to_be_visible()
            while not page.evaluate(f"{PAINTS}.length"):
                page.wait_for_timeout(50)
            found[f"{name}_paint"] = page.evaluate(f"{PAINTS}[0].startTime") / 1000
            if name == "cube":
                expect(page.locator("#legend")).not_to_be_empty(timeout=120_000)
                expect(page.locator("#progress")).to_be_empty(timeout=120_000)
                found["map_complete"] = page.evaluate("performance.now()") / 1000
            page.close()
        browser.close()
    return {name: round(value, 3) for name, value in found.items()}


def open_map(client: httpx.Client, name: str, level: int) -> tuple[float, float]:
    """Seconds until the first picture with any value, and until the complete picture."""
    first = None
    with ThreadPoolExecutor(1) as pool:
        values = pool.submit(client.get, f"/maps/{name}")
        while True:
            answer = tile(client, name, f"{level}/0/0")
            if first is None and np.isfinite(np.frombuffer(answer.content, "<f4")).any():
                values.result().raise_for_status()
                first = time.perf_counter()
            if answer.headers["Prismline-Pending"] == "0":
                return first or time.perf_counter(), time.perf_counter()


def tile(client: httpx.Client, name: str, place: str) -> httpx.Response:
    return client.get(f"/maps/{name}/tiles/{place}").raise_for_status()


def timed(client: httpx.Client, pixels: list[tuple[int, int]]) -> float:
    """Median of the seconds that a spectrum takes."""
    return statistics.median(elapsed(partial(spectrum, client, x, y)) for x, y in pixels)


def spectrum(client: httpx.Client, x: int, y: int) -> None:
    client.get(f"/spectra/{x}/{y}").raise_for_status()


def elapsed(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@contextmanager
def api_process() -> Iterator[tuple[str, int]]:
    """A new api process: its address and its id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prismline_runtime.server", "--port", str(port), "prismline_api.app:create_app"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/health").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def peak_megabytes(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


if __name__ == "__main__":
    main()
