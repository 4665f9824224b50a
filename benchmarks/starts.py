"""Processor time of a command that reads one page of runs, beside a program that only makes the client for it.

    python benchmarks/starts.py

The system of `PRISMLINE_HOME` has to run (`prismline up`). Each round runs both, one after the other. The result is the
ratio of their processor times, system calls included, with its spread over the rounds.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

ROUNDS = 10
COMMAND = [sys.executable, "-m", "prismline_cli.main", "runs"]
#: What every command of this kind needs: parse options, print a table, call an HTTP interface, validate its answer.
PEER = [sys.executable, "-c", "import httpx, pydantic, rich.console, rich.table, typer; httpx.Client()"]


def processor_seconds(command: list[str]) -> float:
    """Run `command` and return the processor time that it and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run all rounds and print the ratio."""
    times = [(processor_seconds(COMMAND), processor_seconds(PEER)) for _ in range(ROUNDS)]
    ratios = sorted(ours / peer for ours, peer in times)
    print(f"prismline runs {statistics.median(ours for ours, _ in times):.2f} s, ", end="")
    print(f"the client alone {statistics.median(peer for _, peer in times):.2f} s: ", end="")
    print(f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
