"""`python -m tests.simulation`: search schedules for broken promises, or replay one.

python -m tests.simulation --seeds 100000 --cores 2     search
python -m tests.simulation --seeds 300 --focus day      search one situation (plan.FOCUSES)
python -m tests.simulation --seed 42                    replay, with the trace
python -m tests.simulation --seed 42 --shrink           the smallest schedule that breaks the same promise
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from tests.simulation.coverage import Coverage
from tests.simulation.plan import FOCUSES
from tests.simulation.shrink import MOST_SECONDS, shrink
from tests.simulation.simulation import Result, simulate

#: Schedules that a process of the search runs before it reports.
BATCH = 25
#: Schedules between two garbage collections.
EACH_COLLECTION = 3
console = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, highlight=False)
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Found:
    """A seed whose schedule broke a promise."""

    seed: int
    check: str
    message: str


@dataclass
class Batch:
    """The results of some schedules."""

    seeds: int
    found: list[Found]
    coverage: Coverage


def search(seeds: range, focus: str | None = None) -> Batch:
    """Run the schedules of `seeds`."""
    batch = Batch(len(seeds), [], Coverage())
    gc.disable()
    for number, seed in enumerate(seeds, 1):
        result = simulate(seed, focus=focus)
        batch.coverage.add(result.coverage)
        if result.finding is not None:
            batch.found.append(Found(seed, result.finding.check, result.finding.message))
        if number % EACH_COLLECTION == 0:
            gc.collect()
            gc.freeze()  # the caches that live from schedule to schedule are not scanned again
    return batch


@app.command()
def main(
    seeds: Annotated[int, typer.Option(help="Number of schedules to run.")] = 1000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    cores: Annotated[int, typer.Option(min=1, help="Processes that search at the same time.")] = 1,
    most: Annotated[int, typer.Option(help="Stop after so many findings.")] = 10,
    focus: Annotated[str | None, typer.Option(help=f"Search one situation: {', '.join(FOCUSES)}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Replay this schedule and print its trace.")] = None,
    smallest: Annotated[bool, typer.Option("--shrink", help="Replay the smallest schedule like it instead.")] = False,
    shrink_seconds: Annotated[float, typer.Option(help="Longest time to shrink.")] = MOST_SECONDS,
) -> None:
    """Search schedules for broken promises, or replay one. Exit code 1: a promise was broken."""
    if focus is not None and focus not in FOCUSES:
        raise typer.BadParameter(f"There is no focus {focus}; there are {', '.join(FOCUSES)}.")
    if seed is not None:
        result = (
            shrink(seed, focus, most_seconds=shrink_seconds) if smallest else simulate(seed, focus=focus, trace=True)
        )
        show(result)
        raise typer.Exit(1 if result.finding else 0)
    began, done, found, coverage = time.monotonic(), 0, list[Found](), Coverage()
    parts = [range(start, min(start + BATCH, first + seeds)) for start in range(first, first + seeds, BATCH)]
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        for batch in pool.imap_unordered(partial(search, focus=focus), parts):
            done += batch.seeds
            found += batch.found
            coverage.add(batch.coverage)
            seconds = time.monotonic() - began
            stderr.print(
                f"{done}/{seeds} schedules, {done / seconds:.0f}/s, {len(found)} findings", end="\r", style="dim"
            )
            if len(found) >= most:
                pool.terminate()
                break
    stderr.print()
    coverage.show(console)
    summarise(found)
    seconds = time.monotonic() - began
    console.print(
        f"{done} schedules in {seconds:.0f} s on {cores} cores, {done / seconds:.0f} a second; {len(found)} findings."
    )
    raise typer.Exit(1 if found else 0)


def summarise(found: list[Found]) -> None:
    """Print a line for each broken promise: how many schedules broke it, and the first one. Then print all seeds."""
    for check, count in Counter(each.check for each in found).most_common():
        one = min((each for each in found if each.check == check), key=lambda each: each.seed)
        console.print(f"{check}: {count} schedules, the first with seed {one.seed}: {one.message}", markup=False)
    if found:
        console.print("Seeds:", *sorted(each.seed for each in found))


def show(result: Result) -> None:
    """Print a schedule in readable form."""
    console.print(result.plan.describe(), markup=False)
    console.print(result.trace.text(), markup=False)
    console.print(
        f"\n{result.events} events, {result.seconds / 3600:.2f} virtual hours, trace {result.trace.digest()}",
        markup=False,
    )
    console.print(f"FOUND {result.finding}" if result.finding else "Nothing was found.", markup=False)


if __name__ == "__main__":
    app()
