"""How long the whole Galactic Ring Survey takes with 1 to 1,000 workers: a model, from named constants.

    python benchmarks/scale_out.py [--workers 1 10 100 1000] [--seed 1] [--picture scale-out.png]

The script measures nothing. `estimate` is arithmetic. `Simulation` simulates the same survey event by event: splitters,
an unordered queue, workers, every ranged request with its own latency, the limits of S3. Both share the constants and
the costs of one split and one fit, but not the rules of who waits for whom. So the simulation checks these rules of the
arithmetic. The script prints both results in one table.

The clock starts when all cubes are in S3 ("object created") and stops when the last chunk is in the ledger. The sizes
and ranges of the chunks come from the functions of the splitter and of `prismline_cube`.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismline_contracts.fit_costs import COST_MS
from prismline_cube import Layout, StoredValues, slab_size
from prismline_cube.ranges import count_requests, pieces
from prismline_cube.reading import CONNECTIONS
from prismline_runtime.storage import PART_BYTES
from prismline_splitter.chunking import choose_chunk_size, choose_reference_size
from prismline_splitter.input_cost import COPY_BYTES_PER_SECOND

# ---- the survey

#: Tiles of the Galactic Ring Survey. Each is a cube and a run (the first full run had the same number).
TILES = 22
#: Pixels along both sides of a tile: two degrees, a pixel being 22 arcsec (the header of the survey's test field).
#: All tiles have 2.3 million pixels, each of which counts as a spectrum here. Jackson et al. 2006 (ApJS 163, 145) count
#: 1,993,522 spectra.
TILE_SIDE = 323
#: The side of one cube with the same number of pixels.
WHOLE_SIDE = 1515
#: Channels of a spectrum, float32, the spectral axis last in the file (the survey's test field).
CHANNELS = 424
VALUE_BYTES = 4

# ---- measured here (these pages, benchmarks/gaussline/MEASUREMENTS.md)

#: Seconds of one core for the kernel to fit a spectrum (`COST_MS`; 0.0503 ms on the survey's test field).
FIT_SECONDS = COST_MS["gaussline"] / 1000
#: The same for a spectrum's row in the table (end_to_end.py: 19.2 s of "fit" beside 12.4 s of the bare kernel, two
#: workers, 2,000,000 spectra).
TABLE_SECONDS = 7e-6
#: From "object created" to the splitter's command: events, status, state machine (end_to_end.py with references: 0.5 s
#: until the first chunk starts, less the split).
SUBMISSION_SECONDS = 0.35
#: Seconds to split a run into references, whatever the size of the cube (chunk_inputs.py: 0.134 to 0.182).
REFERENCE_SECONDS = 0.15
#: A worker's processor time for one ranged request (ranges.py).
REQUEST_PROCESSOR_SECONDS = 0.0005
#: Bytes of Parquet for a spectrum (console_maps.py: 557 MB of 1.8 million spectra).
OUTPUT_BYTES = 309
#: Processor time of a function from its cold start to its first answer (cold_starts.py).
SPLITTER_COLD_SECONDS, WORKER_COLD_SECONDS = 0.85, 1.29
#: Calls for a chunk without those to S3: receive, delete, and the four that a test of the worker counts.
CHUNK_CALLS = 6
#: About the number of calls of a run's split without those for its chunks (services/splitter, `splitting.py`).
SPLIT_CALLS = 8

# ---- published by AWS

#: Lowest limit of requests a second for each partitioned prefix. The model puts all cubes and outputs into one.
#: docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
GETS_PER_SECOND, PUTS_PER_SECOND = 5500.0, 3500.0
#: Bytes a second of one connection to S3: 85 to 90 MB/s.
#: docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html
CONNECTION_BYTES_PER_SECOND = 87.5e6
#: Seconds until the first byte of an answer of S3. "Tens of milliseconds", the median of requests below 512 kB:
#: whitepaper "Best Practices Design Patterns: Optimizing Amazon S3 Performance", page on timeouts and retries.
FIRST_BYTE_SECONDS = 0.030
#: Concurrent functions of an SQS queue: so many at first, and so many more each second (300 each minute).
#: docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
FIRST_FUNCTIONS, MORE_FUNCTIONS_PER_SECOND = 5, 5.0
#: Items of a BatchWriteItem, messages of a SendMessageBatch (the services' quotas).
ITEMS_OF_A_CALL, MESSAGES_OF_A_CALL = 25, 10

# ---- settings of the templates, and assumptions

#: Concurrent splitters (services/splitter/template.yaml, MaximumConcurrency). A test compares the two.
SPLITTERS = 10
#: A request to DynamoDB, SQS or EventBridge (assumed, as in shards.py).
CALL_SECONDS = 0.008
#: Bytes a second of a worker's network. AWS publishes no figure for Lambda; others report 600 Mbit/s.
NETWORK_BYTES_PER_SECOND = 75e6
#: Scatter in the simulation (log-normal, about the means above): of a request's first byte, and of work.
LATENCY_SCATTER, WORK_SCATTER = 0.5, 0.1

#: Largest difference between the times of the simulation and of the arithmetic, as a share of the latter.
MARGIN = 0.10
#: The same where two limits meet. There processes that began together wait for S3 together and fit together.
MARGIN_WHERE_LIMITS_MEET = 0.3
#: A limit that costs less than this share of the time is not reported as the bottleneck.
WORTH_NAMING = 0.05
#: A chunk counts as one of the largest if it takes at least this share of the largest one's time. A tile's last chunk
#: is small.
LARGE = 0.9


@dataclass(frozen=True)
class Slab:
    """The unit that a worker reads before it can fit it: a slab of ranges, or a part of a chunk file."""

    n_spectra: int
    n_requests: int

    @property
    def n_bytes(self) -> int:
        return self.n_spectra * CHANNELS * VALUE_BYTES


@dataclass(frozen=True)
class Chunk:
    """Slabs, read one after the other over `connections`; one is read while the previous one is fitted."""

    slabs: tuple[Slab, ...]
    connections: int
    #: Small objects that are read before the slabs.
    lookups: int

    @property
    def n_spectra(self) -> int:
        return sum(slab.n_spectra for slab in self.slabs)

    @property
    def n_requests(self) -> int:
        return sum(slab.n_requests for slab in self.slabs) + self.lookups


@dataclass(frozen=True)
class Plan:
    """One tile, split."""

    chunk_input: str
    chunks: tuple[Chunk, ...]
    split_seconds: float


@dataclass(frozen=True)
class Setting:
    """Numbers of workers and splitters, and the limits that apply to them."""

    workers: int
    #: Whether functions have to be started, a few more each second. Otherwise all processes are already running.
    functions: bool = False
    splitters: int = SPLITTERS
    #: The speed of a splitter, relative to the measured one.
    splitter_speed: float = 1.0
    gets_per_second: float = GETS_PER_SECOND
    puts_per_second: float = PUTS_PER_SECOND
    tiles: int = TILES

    def starts(self, n: int, cold_seconds: float) -> NDArray[np.float64]:
        """When each of `n` processes can begin, in seconds after the first message, ascending."""
        if not self.functions:
            return np.zeros(n)
        return np.maximum(0.0, np.arange(1, n + 1) - FIRST_FUNCTIONS) / MORE_FUNCTIONS_PER_SECOND + cold_seconds


@lru_cache
def plan_of(chunk_input: str, side: int = TILE_SIDE) -> Plan:
    """The chunks of a tile of side * side spectra, and how workers read them. chunk_input: copy or reference."""
    n = side**2
    stored = StoredValues(offset=2880, inner=n, dtype=np.dtype(">f4"), bscale=1.0, bzero=0.0, blank=None)
    layout = Layout(stored, CHANNELS, n, side, np.dtype(np.float32))
    size = choose_chunk_size(n, CHANNELS, VALUE_BYTES, "gaussline")
    if chunk_input == "reference":
        size = choose_reference_size(size, layout, "gaussline")
    chunks = []
    for start in range(0, n, size):
        stop = min(start + size, n)
        if chunk_input == "reference":
            most = slab_size(layout)
            slabs = [
                Slab(len(piece), count_requests(layout, piece.start, piece.start + len(piece), most))
                for piece in pieces(layout, start, stop, most)
            ]
            chunks.append(Chunk(tuple(slabs), CONNECTIONS, lookups=1))
        else:
            part = PART_BYTES // (CHANNELS * VALUE_BYTES)
            parts = [Slab(min(part, stop - at), 1) for at in range(start, stop, part)]
            chunks.append(Chunk(tuple(parts), connections=1, lookups=0))
    calls = SPLIT_CALLS + math.ceil(len(chunks) / ITEMS_OF_A_CALL) + math.ceil(len(chunks) / MESSAGES_OF_A_CALL)
    inputs = REFERENCE_SECONDS if chunk_input == "reference" else n * CHANNELS * VALUE_BYTES / COPY_BYTES_PER_SECOND
    return Plan(chunk_input, tuple(chunks), inputs + calls * CALL_SECONDS)


# ---- arithmetic


def read_seconds(slab: Slab, connections: int) -> float:
    """Seconds to read a slab if nobody else reads: the longest of latencies, processor time and network time."""
    answer = FIRST_BYTE_SECONDS + slab.n_bytes / slab.n_requests / CONNECTION_BYTES_PER_SECOND
    return max(
        math.ceil(slab.n_requests / connections) * (answer + REQUEST_PROCESSOR_SECONDS),
        slab.n_requests * REQUEST_PROCESSOR_SECONDS,
        slab.n_bytes / NETWORK_BYTES_PER_SECOND,
    )


def fit_seconds(slab: Slab) -> float:
    return slab.n_spectra * (FIT_SECONDS + TABLE_SECONDS)


def write_seconds(chunk: Chunk) -> float:
    return FIRST_BYTE_SECONDS + chunk.n_spectra * OUTPUT_BYTES / CONNECTION_BYTES_PER_SECOND


def chunk_seconds(chunk: Chunk) -> float:
    """Seconds of a worker for a chunk if nobody else reads: calls, reading, fitting, writing."""
    reads = [read_seconds(slab, chunk.connections) for slab in chunk.slabs]
    fits = [fit_seconds(slab) for slab in chunk.slabs]
    both = reads[0] + sum(max(fit, read) for fit, read in zip(fits, reads[1:], strict=False)) + fits[-1]
    return CHUNK_CALLS * CALL_SECONDS + chunk.lookups * FIRST_BYTE_SECONDS + both + write_seconds(chunk)


def useful_workers(workers: int, alone: float, shared: float) -> NDArray[np.float64]:
    """The throughput of 1 to `workers` workers, in units of a worker that never waits for another.

    For each chunk a worker takes `alone` seconds by itself and `shared` seconds of S3, which serves one after the
    other. This is mean value analysis (Reiser and Lavenberg 1980): an arriving worker finds the queue of one worker
    less.
    """
    useful, queue = np.empty(workers), 0.0
    for n in range(1, workers + 1):
        waits = shared * (1 + queue)
        per_second = n / (alone + waits)
        queue = per_second * waits
        useful[n - 1] = per_second * (alone + shared)
    return useful


def ends(n: int, seconds: float, starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """When `n` jobs of equal length end, one after the other, on servers that begin at `starts` (ascending)."""
    starts = starts[:n]
    waits = (starts[-1] - starts[0]) / seconds if seconds else 0
    each = min(n, math.ceil(n / len(starts)) + math.ceil(waits))  # no server can take more jobs
    return np.sort(starts[:, None] + seconds * np.arange(1, each + 1), axis=None)[:n]


def work_done(seconds: float, starts: NDArray[np.float64], useful: NDArray[np.float64]) -> float:
    """When workers that begin at `starts` (ascending) have done `work`; n of them have the throughput useful[n - 1]."""
    done = np.concatenate([[0.0], np.cumsum(useful[:-1] * np.diff(starts))])
    last = int(np.searchsorted(done, seconds, side="right")) - 1
    return float(starts[last] + (seconds - done[last]) / useful[last])


def estimate(plan: Plan, setting: Setting) -> float:
    """Seconds for the survey. Pure.

    No chunk of a tile begins before the tile is split. So after each split there must be time for three things: the
    largest remaining chunks, one after the other; all the remaining work, with half of a last chunk while other workers
    are idle; and the remaining requests to S3, with the fit of the last slab. The largest of these times is the answer.
    """
    splitters = SUBMISSION_SECONDS + setting.starts(min(setting.splitters, setting.tiles), SPLITTER_COLD_SECONDS)
    released = ends(setting.tiles, plan.split_seconds / setting.splitter_speed, splitters)
    starts = released[0] + setting.starts(setting.workers, WORKER_COLD_SECONDS)
    chunks = [chunk_seconds(chunk) for chunk in plan.chunks]
    total, largest = sum(chunks), max(chunks)
    n_large = sum(1 for seconds in chunks if seconds > LARGE * largest)
    requests = sum(chunk.n_requests for chunk in plan.chunks) / setting.gets_per_second
    useful = useful_workers(setting.workers, (total - requests) / len(chunks), requests / len(chunks))
    after_reading = fit_seconds(plan.chunks[0].slabs[-1]) + write_seconds(plan.chunks[0])
    needed = 0.0
    for done, release in enumerate(released):
        left, free = setting.tiles - done, np.maximum(starts, release)
        needed = max(
            needed,
            float(ends(left * n_large, largest, free)[-1]),
            work_done(left * total - largest / 2, free, useful) + largest / 2,
            float(free[0]) + left * requests + after_reading,
            float(free[0]) + left * len(chunks) / setting.puts_per_second,
        )
    return needed


def bound_of(plan: Plan, setting: Setting) -> tuple[str, float]:
    """The bottleneck: the limit without which the time would be shortest, and that time."""
    without = {
        "workers": replace(setting, workers=10 * setting.tiles * len(plan.chunks)),
        "splitter": replace(setting, splitter_speed=math.inf),
        "S3 requests": replace(setting, gets_per_second=math.inf, puts_per_second=math.inf),
        "start of functions": replace(setting, functions=False),
    }
    now = estimate(plan, setting)
    name, seconds = min(((name, estimate(plan, other)) for name, other in without.items()), key=lambda pair: pair[1])
    return (name, seconds) if seconds < (1 - WORTH_NAMING) * now else ("size of a chunk", now)


# ---- simulation


@dataclass
class Rate:
    """A limit of requests a second. A request over the limit waits; S3 would answer 503 and the client would retry."""

    per_second: float
    free_at: float = 0.0

    def pass_at(self, now: float) -> float:
        passed = max(now, self.free_at)
        self.free_at = passed + 1 / self.per_second
        return passed


@dataclass
class Worker:
    """The processor and the network of one worker. Each serves one request after the other."""

    network_free_at: float = 0.0
    processor_free_at: float = 0.0


@dataclass
class Simulation:
    """Simulates the survey event by event. `run()` returns its seconds; the same seed gives the same result."""

    plan: Plan
    setting: Setting
    seed: int = 1
    now: float = 0.0
    completed: int = 0
    ended_at: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _n_events: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.gets = Rate(self.setting.gets_per_second)
        self.puts = Rate(self.setting.puts_per_second)
        self._queue: list[Chunk] = []
        self._idle: deque[Worker] = deque()
        self._tiles = self.setting.tiles
        self._workers_wanted = self.setting.workers

    def run(self) -> float:
        for start in self.setting.starts(self.setting.splitters, SPLITTER_COLD_SECONDS):
            self.at(SUBMISSION_SECONDS + start, self._split)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.ended_at

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (time, self._n_events, event))

    def scattered(self, mean: float, scatter: float) -> float:
        return mean * self._random.lognormvariate(-(scatter**2) / 2, scatter)

    def latency(self) -> float:
        return self.scattered(FIRST_BYTE_SECONDS, LATENCY_SCATTER)

    def _split(self) -> None:
        """A splitter takes the next tile, if there is one."""
        if not self._tiles:
            return
        self._tiles -= 1
        done = self.now + self.scattered(self.plan.split_seconds / self.setting.splitter_speed, WORK_SCATTER)
        self.at(done, self._send)

    def _send(self) -> None:
        """A splitter's messages arrive. The first messages start the workers."""
        if self.plan.chunk_input == "copy":
            for _ in self.plan.chunks:
                self.puts.pass_at(self.now)
        self._queue += self.plan.chunks
        if self._workers_wanted:
            for start in self.setting.starts(self._workers_wanted, WORKER_COLD_SECONDS):
                self.at(self.now + start, lambda: self._receive(Worker()))
            self._workers_wanted = 0
        while self._idle and self._queue:
            self._receive(self._idle.popleft())
        self._split()

    def _receive(self, worker: Worker) -> None:
        """A worker gets any message of the queue, or waits for one."""
        if not self._queue:
            self._idle.append(worker)
            return
        position = self._random.randrange(len(self._queue))
        self._queue[position], self._queue[-1] = self._queue[-1], self._queue[position]
        chunk = self._queue.pop()
        ready = self.now + CHUNK_CALLS * CALL_SECONDS
        for _ in range(chunk.lookups):
            ready = self.gets.pass_at(ready) + self.latency()
        self.at(ready, lambda: Reading(self, worker, chunk).read())

    def write(self, worker: Worker, chunk: Chunk) -> None:
        """A worker stores a chunk's output and takes the next chunk."""
        stored = self.puts.pass_at(self.now) + self.latency()
        stored += chunk.n_spectra * OUTPUT_BYTES / CONNECTION_BYTES_PER_SECOND

        def end() -> None:
            self.completed, self.ended_at = self.completed + 1, self.now
            self._receive(worker)

        self.at(stored, end)


@dataclass
class Reading:
    """A chunk in a worker: one slab is read while the previous one is fitted."""

    simulation: Simulation
    worker: Worker
    chunk: Chunk
    n_read: int = 0
    n_fitted: int = 0
    reading: bool = False
    fitting: bool = False

    def read(self) -> None:
        """Begin to read the next slab, unless the worker already holds two."""
        if self.reading or self.n_read == len(self.chunk.slabs) or self.n_read > self.n_fitted + self.fitting:
            return
        self.reading = True
        slab = self.chunk.slabs[self.n_read]
        self.unasked = self.unanswered = slab.n_requests
        self.bytes_each = slab.n_bytes / slab.n_requests
        for _ in range(min(self.chunk.connections, slab.n_requests)):
            self._request()

    def _request(self) -> None:
        """A connection requests its next range."""
        if not self.unasked:
            return
        self.unasked -= 1
        simulation, worker = self.simulation, self.worker
        began = simulation.gets.pass_at(simulation.now) + simulation.latency()

        def transfer() -> None:
            wire = max(simulation.now, worker.network_free_at) + self.bytes_each / NETWORK_BYTES_PER_SECOND
            worker.network_free_at = wire
            arrived = max(wire, simulation.now + self.bytes_each / CONNECTION_BYTES_PER_SECOND)
            simulation.at(arrived, process)

        def process() -> None:
            worker.processor_free_at = max(simulation.now, worker.processor_free_at) + REQUEST_PROCESSOR_SECONDS
            simulation.at(worker.processor_free_at, self._answered)

        simulation.at(began, transfer)

    def _answered(self) -> None:
        self.unanswered -= 1
        if self.unanswered:
            self._request()
            return
        self.reading = False
        self.n_read += 1
        self._fit()

    def _fit(self) -> None:
        """Fit the next slab that has been read, and read the following one meanwhile."""
        if not self.fitting and self.n_read > self.n_fitted:
            self.fitting = True
            seconds = fit_seconds(self.chunk.slabs[self.n_fitted])
            self.simulation.at(self.simulation.now + self.simulation.scattered(seconds, WORK_SCATTER), self._fitted)
        self.read()

    def _fitted(self) -> None:
        self.fitting = False
        self.n_fitted += 1
        if self.n_fitted == len(self.chunk.slabs):
            self.simulation.write(self.worker, self.chunk)
        else:
            self._fit()


# ---- the report


@dataclass(frozen=True)
class Case:
    """A table of the report."""

    title: str
    functions: bool = False
    tiles: int = TILES
    side: int = TILE_SIDE


CASES = (
    Case("22 tiles, processes that are already running"),
    Case("22 tiles, Lambda functions", functions=True),
    Case("one cube, processes that are already running", tiles=1, side=WHOLE_SIDE),
)
INPUTS = {"copy": "tab:orange", "reference": "tab:blue"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="both inputs, arithmetic and simulation, as PNG")
    args = parser.parse_args()
    kernel = TILES * TILE_SIDE**2 * FIT_SECONDS
    print(f"{TILES} tiles, {TILES * TILE_SIDE**2:,} spectra of {CHANNELS} channels; the kernel alone: {kernel:.0f} s")
    simulated: dict[tuple[Case, str, int], float] = {}
    worst = 0.0
    for case in CASES:
        print(f"\n{case.title}\n")
        for chunk_input in INPUTS:
            describe(plan_of(chunk_input, case.side), case.tiles)
        print("\n| workers | input | arithmetic, s | simulation, s | difference | bottleneck | without it, s |")
        print("| ---: | --- | ---: | ---: | ---: | --- | ---: |")
        for workers in args.workers:
            for chunk_input in INPUTS:
                plan, setting = plan_of(chunk_input, case.side), Setting(workers, case.functions, tiles=case.tiles)
                seconds = estimate(plan, setting)
                found = simulated[case, chunk_input, workers] = Simulation(plan, setting, args.seed).run()
                worst = max(worst, abs(found / seconds - 1))
                name, without = bound_of(plan, setting)
                print(
                    f"| {workers:,} | {chunk_input} | {seconds:.1f} | {found:.1f} | {found / seconds - 1:+.0%} |"
                    f" {name} | {without:.1f} |"
                )
    print(f"\nlargest difference {worst:.0%}; a test allows {MARGIN:.0%} at 1, 10, 100 and 1,000 workers,")
    print(f"and {MARGIN_WHERE_LIMITS_MEET:.0%} at 30 and where each worker has one chunk of one cube: two limits meet")
    if args.picture:
        draw(args.picture, simulated, kernel)


def describe(plan: Plan, tiles: int) -> None:
    seconds = [chunk_seconds(chunk) for chunk in plan.chunks]
    gets = sum(chunk.n_requests for chunk in plan.chunks)
    print(
        f"{plan.chunk_input}: {plan.split_seconds:.2f} s to split a tile into {len(plan.chunks)} chunks of up to"
        f" {plan.chunks[0].n_spectra:,} spectra and {max(seconds):.2f} s; in all {tiles * gets:,} GETs and"
        f" {tiles * sum(seconds):.0f} s of workers"
    )


def draw(path: Path, simulated: dict[tuple[Case, str, int], float], kernel: float) -> None:
    """Time over workers for both inputs: the arithmetic as lines, the simulation as points."""
    import matplotlib  # noqa: PLC0415 - for the picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its backend is chosen

    counts = sorted({round(value) for value in np.geomspace(1, 1000, 40)})
    figure, panels = plt.subplots(1, len(CASES), figsize=(11, 3.8), sharey=True, layout="constrained")
    for axes, case in zip(panels, CASES, strict=True):
        for chunk_input, colour in INPUTS.items():
            plan = plan_of(chunk_input, case.side)
            times = [estimate(plan, Setting(n, case.functions, tiles=case.tiles)) for n in counts]
            axes.loglog(counts, times, color=colour, label=f"{chunk_input}, arithmetic")
            points = {n: found for (of, name, n), found in simulated.items() if (of, name) == (case, chunk_input)}
            axes.plot(points.keys(), points.values(), "o", color=colour, label=f"{chunk_input}, simulation")
        axes.plot(counts, [kernel / n for n in counts], ":", color="0.5", label="bare kernel, divided")
        axes.set_title(case.title, fontsize=10)
        axes.set_xlabel("workers")
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.grid(which="major", alpha=0.3)
        axes.set_ylim(1, 500)
    panels[0].set_ylabel("seconds for 2.3 million spectra (model)")
    panels[0].set_yticks([1, 10, 100], ["1", "10", "100"])
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
