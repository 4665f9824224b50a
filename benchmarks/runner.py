"""What it costs to run a function in a runner process, item by item, compared with other ways to run it elsewhere.

    python benchmarks/runner.py [--items 1000] [--milliseconds 0 1 50] [--rounds 5]

Four peers take turns. Each runs the same function, one item after the other, in one process at a time:

- runner: the supervisor of the package prismline, with all limits;
- pool: `ProcessPoolExecutor(1)`, which has no limits, and after a crash no process;
- process: a new process for each item (fork), which has no limits of memory or output, but could be killed;
- call: the function itself.

An item sleeps, so the difference to `call` is what a peer adds. Starts of runner and pool are not counted; a start of
the runner is measured apart. The peer `process` gets fewer items, because it is slow.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from prismline.supervisor import Supervisor

#: Share of the items that a peer gets which starts a process for each.
FEW = 0.1


def work(item: dict) -> dict:
    """Sleep for some milliseconds; an item of 0 does nothing."""
    if item["milliseconds"]:
        time.sleep(item["milliseconds"] / 1000)
    return {"n": item["n"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--milliseconds", type=int, nargs="+", default=[0, 1, 50])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = str(Path(__file__).parent)
    starts = []
    for _ in range(options.rounds):
        began = time.perf_counter()
        with Supervisor("runner:work", paths=[folder]) as supervisor:
            supervisor.run({"milliseconds": 0, "n": 0}, item_id="first")
            starts.append(time.perf_counter() - began)
    print(f"start of a runner with its first item: {spread(starts, 's', 2)}\n")
    print("| item, ms | peer | items/s | added per item, ms | ratio to `pool` |")
    print("| --- | --- | --- | --- | --- |")
    with ProcessPoolExecutor(1) as pool, Supervisor("runner:work", paths=[folder]) as supervisor:
        peers: dict[str, Callable[[dict], object]] = {
            "runner": lambda item: supervisor.run(item, item_id=str(item["n"])).value,
            "pool": lambda item: pool.submit(work, item).result(),
            "process": in_process,
            "call": work,
        }
        for milliseconds in options.milliseconds:
            report(milliseconds, measure(peers, milliseconds, options.items, options.rounds))


def in_process(item: dict) -> object:
    """Run an item in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work(item)))
    process.start()
    value = receiver.recv()
    process.join()
    return value


def measure(
    peers: dict[str, Callable[[dict], object]], milliseconds: int, items: int, rounds: int
) -> dict[str, list[float]]:
    """Seconds per item of each peer, in each round. Long items are fewer."""
    times: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(rounds + 1):
        for name, run in peers.items():
            count = max(10, round(items / max(1, milliseconds) * (FEW if name == "process" else 1)))
            began = time.perf_counter()
            for n in range(count):
                if run({"milliseconds": milliseconds, "n": n}) != {"n": n}:
                    raise SystemExit(f"{name} lost the item {n}.")
            if number:  # the first round warms up
                times[name].append((time.perf_counter() - began) / count)
    return times


def report(milliseconds: int, times: dict[str, list[float]]) -> None:
    """Print the lines of the table for one length of items."""
    for name, found in times.items():
        rates = [1 / each for each in found]
        added = [1000 * (each - call) for each, call in zip(found, times["call"], strict=True)]
        ratios = [each / pool for each, pool in zip(rates, (1 / one for one in times["pool"]), strict=True)]
        columns = (spread(rates, "", 0), "" if name == "call" else spread(added, "", 3), spread(ratios, "", 2))
        print(f"| {milliseconds} | {name} | {' | '.join(columns)} |", flush=True)


def spread(values: Sequence[float], unit: str, digits: int) -> str:
    """The median, and the smallest and the largest value."""
    middle, low, high = (f"{each:,.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    return f"{middle}{' ' if unit else ''}{unit} ({low} to {high})"


if __name__ == "__main__":
    main()
