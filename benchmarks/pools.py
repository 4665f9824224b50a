"""A run of one pool, alone and while the only worker of another pool is held up.

    python benchmarks/pools.py [--items 200] [--rounds 3]

The run that is measured has items of 50 ms. Beside it, items of the other pool sleep for five seconds each. All is on
this machine, so the pools share its processors. The ratio is the median of some rounds, with the smallest and the
largest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import pytest

import prismline
from prismline_client import FunctionRun
from tests.system import CHUNK_SERVICES, System, wait_for

AUTHOR = """
import time

from prismline import workload

@workload(attempts=1, timeout=120, batch=10)
def work(item: float) -> float:
    time.sleep(item)
    return item
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("author.py").write_text(AUTHOR)
        pools = {"red": "", "blue": ""}
        with System.running(Path(folder), patch, services=CHUNK_SERVICES, pools=pools):
            begin(1, "red").wait()
            begin(1, "blue").wait()
            report(options.items, options.rounds)


def report(n_items: int, rounds: int) -> None:
    """Print how long the run takes in both situations, and the ratio within a round."""
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(seconds(n_items, "blue"))
        slow = begin(400, "red", item=5.0)
        wait_for(lambda run=slow: any(row.attempts for row in run.client.tasks(run.run_id, 400)), "an attempt")
        beside.append(seconds(n_items, "blue"))
        slow.cancel()
        slow.wait()
    ratios = [each / before for each, before in zip(beside, alone, strict=True)]
    print(f"{n_items} items of 50 ms on {os.cpu_count()} cores, {rounds} rounds")
    print(f"alone: {statistics.median(alone):.1f} s, beside a pool that is held up: {statistics.median(beside):.1f} s")
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def begin(n_items: int, pool: str, *, item: float = 0.05) -> FunctionRun:
    return prismline.map("author:work", [item] * n_items, pool=pool)


def seconds(n_items: int, pool: str) -> float:
    began = time.monotonic()
    state = begin(n_items, pool).wait(timeout=1800)
    assert (state.status, state.counts.completed) == ("completed", n_items), state
    return time.monotonic() - began


if __name__ == "__main__":
    main()
