"""`python -m tests.simulation.mutants`: put each fault into a copy of the code and see whether the simulation finds it.

A fault is found when a schedule breaks a promise with it that the same schedule keeps without it. Exit code 1: a fault
survives that is not shown to be equivalent.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.simulation.mutants.catalogue import MUTANTS, Mutant
from tests.simulation.mutants.schedules import RANDOM
from tests.simulation.mutants.trees import HangError, Runner, Tree, preload

console = Console(soft_wrap=True, highlight=False)
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant."""

    mutant: Mutant
    #: Schedules that were run with it.
    schedules: int
    seconds: float
    #: The schedule that found it, its seed, and what it found; None: it survives.
    schedule: str | None = None
    seed: int = 0
    check: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether the mutant survives and should not."""
        return self.schedule is None and self.mutant.equivalent is None


def attempts(mutant: Mutant, directed: int, seeds: int) -> Iterator[tuple[str, int]]:
    """The schedules that are run with a mutant, in order: seeds of the plans that it names, then random plans."""
    for name in mutant.schedules:
        for seed in range(directed):
            yield name, seed
    for seed in range(seeds):
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
    finally:
        mutated.mend()
    return Verdict(mutant, done, time.monotonic() - began)


@app.command()
def main(
    only: Annotated[list[str] | None, typer.Argument(help="Names of mutants; all of them by default.")] = None,
    directed: Annotated[int, typer.Option(help="Seeds of each plan that a mutant names.")] = 25,
    seeds: Annotated[int, typer.Option(help="Seeds of random plans.")] = 150,
    seconds: Annotated[float, typer.Option(help="Longest time that is spent on one mutant.")] = 600.0,
) -> None:
    """Hunt mutants."""
    chosen = [mutant for mutant in MUTANTS if not only or mutant.name in only]
    verdicts = []
    preload()
    with tempfile.TemporaryDirectory(prefix="prismline-mutants-") as folder:
        unmutated, mutated = Tree(Path(folder) / "clean"), Tree(Path(folder) / "mutated")
        with Runner(unmutated) as clean:
            for mutant in chosen:
                verdict = hunt(mutant, mutated, clean, directed, 0 if mutant.equivalent else seeds, seconds)
                verdicts.append(verdict)
                console.print(line(verdict), markup=False)
    show(verdicts)
    raise typer.Exit(1 if any(verdict.failed for verdict in verdicts) else 0)


def line(verdict: Verdict) -> str:
    """A verdict in a line."""
    spent = f"{verdict.schedules} schedules, {verdict.seconds:.0f} s"
    if verdict.schedule is None:
        return f"{'SURVIVES' if verdict.failed else 'equivalent'} {verdict.mutant.name} ({spent})"
    return f"killed {verdict.mutant.name} by {verdict.schedule}/{verdict.seed} ({spent}): {verdict.check}"


def show(verdicts: list[Verdict]) -> None:
    """All verdicts, and how many there are of each kind."""
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
    killed = sum(verdict.schedule is not None for verdict in verdicts)
    survivors = sum(verdict.failed for verdict in verdicts)
    equivalent = len(verdicts) - killed - survivors
    console.print(f"{len(verdicts)} mutants: {killed} killed, {equivalent} equivalent, {survivors} survive.")


if __name__ == "__main__":
    app()
