"""`python -m tests.simulation.mutants`: put each mutant into a copy of the code and let the simulation search for it.

A mutant is found when a schedule breaks a promise with it and keeps the promise without it, or a test fails with it and
passes without it. Exit code 1: a mutant survives that is not marked as equivalent.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.schedules import LISTS, RANDOM, SCHEDULES
from tests.simulation.mutants.trees import HangError, Runner, Tree, preload
from tests.simulation.scripts import SCRIPTS

#: The result of the last hunt of each mutant.
RESULTS = Path(__file__).parent / "results.csv"
COLUMNS = ("mutant", "found by", "schedule", "seed")
#: What found a mutant that no schedule found.
A_TEST = "a test"
NOT_FOUND, EQUIVALENT = "not found", "equivalent"
console = Console(soft_wrap=True, highlight=False)
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Verdict:
    """The result of the hunt for a mutant."""

    mutant: Mutant
    #: Number of schedules that were run with it.
    schedules: int
    seconds: float
    #: The schedule that found it, with seed, check and message. None: it survives.
    schedule: str | None = None
    seed: int = 0
    check: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether the mutant survives although it is not equivalent."""
        return self.schedule is None and self.mutant.equivalent is None


def attempts(mutant: Mutant, directed: int, seeds: int) -> Iterator[tuple[str, int]]:
    """The schedules for a mutant, in order: seeds of the plans that it names, then random plans."""
    for name in mutant.schedules:
        scripted = name != LISTS and SCHEDULES[name].script
        for seed in range(1 if scripted else directed):
            yield name, seed
    for seed in range(0 if mutant.tests else seeds):
        yield RANDOM, seed


def hunt(mutant: Mutant, mutated: Tree, clean: Runner, directed: int, seeds: int, most_seconds: float) -> Verdict:
    """Run schedules with the mutant until one breaks a promise that it keeps without the mutant."""
    began, done = time.monotonic(), 0
    mutated.mutate(mutant)
    try:
        with Runner(mutated) as runner:
            for schedule, seed in attempts(mutant, directed, seeds):
                if time.monotonic() - began > most_seconds:
                    break
                done += 1
                try:
                    found = runner.run(schedule, seed)
                except (HangError, EOFError, OSError) as error:
                    found = {"check": "schedules end", "message": f"{error!r}"}
                if found is not None and clean.run(schedule, seed) is None:
                    seconds = time.monotonic() - began
                    return Verdict(mutant, done, seconds, schedule, seed, found["check"], found["message"])
                if found is not None and found["check"] == "schedules end":
                    break
        failing = [test for test in mutant.tests if mutated.fails(test)]
        mutated.mend()
        for test in failing:
            if not mutated.fails(test):
                return Verdict(mutant, done, time.monotonic() - began, test, 0, A_TEST)
    finally:
        mutated.mend()
    return Verdict(mutant, done, time.monotonic() - began)


class Hunter:
    """A process that hunts one mutant after the other, with its own copies of the sources."""

    def __init__(self, folder: str) -> None:
        own = Path(folder) / str(os.getpid())
        self.mutated = Tree(own / "mutated")
        self.clean = Runner(Tree(own / "clean"))

    @classmethod
    def start(cls, folder: str) -> None:
        """Make this process's hunter."""
        global _hunter  # noqa: PLW0603
        _hunter = cls(folder)

    @staticmethod
    def hunt(mutant: Mutant, directed: int, seeds: int, seconds: float) -> Verdict:
        """The verdict on a mutant."""
        assert _hunter is not None
        return hunt(mutant, _hunter.mutated, _hunter.clean, directed, seeds, seconds)


_hunter: Hunter | None = None


@app.command()
def main(
    only: Annotated[list[str] | None, typer.Argument(help="Names of mutants; all of them by default.")] = None,
    directed: Annotated[int, typer.Option(help="Seeds of each plan that a mutant names.")] = 25,
    seeds: Annotated[int, typer.Option(help="Seeds of random plans.")] = 150,
    seconds: Annotated[float, typer.Option(help="Longest time for one mutant.")] = 600.0,
    cores: Annotated[int, typer.Option(help="Number of mutants to hunt at the same time.")] = os.cpu_count() or 1,
    write: Annotated[bool, typer.Option("--write", help="Write the results to results.csv.")] = False,
) -> None:
    """Hunt mutants."""
    chosen = [mutant for mutant in MUTANTS if not only or mutant.name in only]
    began, found = time.monotonic(), {}
    preload()
    with (
        tempfile.TemporaryDirectory(prefix="prismline-mutants-") as folder,
        ProcessPoolExecutor(cores, get_context("fork"), Hunter.start, (folder,)) as hunters,
    ):
        hunts = [
            hunters.submit(Hunter.hunt, mutant, directed, 0 if mutant.equivalent else seeds, seconds)
            for mutant in chosen
        ]
        for done in as_completed(hunts):
            verdict = done.result()
            found[verdict.mutant.name] = verdict
            console.print(line(verdict), markup=False)
            if write:
                RESULTS.write_text(updated(RESULTS.read_text(), verdict))
    verdicts = [found[mutant.name] for mutant in chosen]
    show(verdicts)
    console.print(f"{time.monotonic() - began:.0f} s on {cores} cores.")
    raise typer.Exit(1 if any(verdict.failed for verdict in verdicts) else 0)


def updated(text: str, verdict: Verdict) -> str:
    """The results with this verdict. Rows of other mutants stay."""
    rows = {line[0]: line for line in csv.reader(text.splitlines()[1:])}
    rows[verdict.mutant.name] = row(verdict)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows[mutant.name] for mutant in MUTANTS if mutant.name in rows)
    return file.getvalue()


def row(verdict: Verdict) -> list[str]:
    """A line of the results."""
    mutant = verdict.mutant
    if verdict.schedule is None:
        return [mutant.name, EQUIVALENT if mutant.equivalent else NOT_FOUND, "", ""]
    alone = verdict.schedule in SCRIPTS or verdict.check == A_TEST
    where = verdict.schedule.rpartition("/")[2] if alone else verdict.schedule
    return [mutant.name, verdict.check, where, "" if alone else str(verdict.seed)]


def summary(verdicts: list[Verdict]) -> str:
    """The numbers of found, equivalent and surviving mutants."""
    killed = sum(verdict.schedule is not None for verdict in verdicts)
    survivors = sum(verdict.failed for verdict in verdicts)
    return f"{len(verdicts)} mutants: {killed} found, {len(verdicts) - killed - survivors} equivalent, {survivors} not."


def line(verdict: Verdict) -> str:
    """A verdict in a line."""
    spent = f"{verdict.schedules} schedules, {verdict.seconds:.0f} s"
    if verdict.schedule is None:
        return f"{'SURVIVES' if verdict.failed else 'equivalent'} {verdict.mutant.name} ({spent})"
    return f"killed {verdict.mutant.name} by {verdict.schedule}/{verdict.seed} ({spent}): {verdict.check}"


def show(verdicts: list[Verdict]) -> None:
    """Print all verdicts and their numbers."""
    table = Table("mutant", "killed by", "schedule", "seed", "seconds", box=None)
    for verdict in verdicts:
        if verdict.schedule is None:
            check = "[bold red]SURVIVES" if verdict.failed else f"equivalent: {verdict.mutant.equivalent}"
            table.add_row(verdict.mutant.name, check, "", "", f"{verdict.seconds:.0f}")
        else:
            table.add_row(
                verdict.mutant.name, verdict.check, verdict.schedule, str(verdict.seed), f"{verdict.seconds:.0f}"
            )
    console.print(table)
    console.print(summary(verdicts))


if __name__ == "__main__":
    app()
