"""`python -m tests.fuzz`: search inputs that break the rule, or give one input to a target again.

python -m tests.fuzz --seconds 600 --cores 2            every target for ten minutes, two at a time
python -m tests.fuzz --target manifest                  one target
python -m tests.fuzz --target manifest --input FILE     one input again
"""

from __future__ import annotations

import multiprocessing
import pkgutil
import random
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.fuzz.driver import Engine, Report, fuzz
from tests.fuzz.rule import examine, limited_memory
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets

console = Console(soft_wrap=True, highlight=False)
app = typer.Typer(add_completion=False)


@app.command()
def main(
    target: Annotated[list[str] | None, typer.Option(help="A target; repeatable. Default: every target.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for each target.")] = 60,
    cores: Annotated[int, typer.Option(min=1, help="Targets that are fuzzed at the same time.")] = 1,
    seed: Annotated[int | None, typer.Option(help="The first seed. Default: a random one, which is printed.")] = None,
    engine: Annotated[
        Engine, typer.Option(help="What chooses the inputs; atheris has to be installed.")
    ] = "hypothesis",
    given: Annotated[Path | None, typer.Option("--input", help="Give this file to the target again.")] = None,
) -> None:
    """Search inputs that break the rule. Exit code 1: there are some."""
    known = _import_targets(engine)
    names = target or list(known)
    if unknown := set(names) - known.keys():
        raise typer.BadParameter(f"There is no target {min(unknown)}; there are {', '.join(known)}.")
    if given is not None:
        if len(names) != 1:
            raise typer.BadParameter("--input needs one --target.")
        raise typer.Exit(repeat(known[names[0]], given))
    seed = random.randrange(10**6) if seed is None else seed
    console.print(f"{len(names)} targets, {seconds:g} s each, engine {engine}, --seed {seed}")
    reports = search(names, seconds, cores, seed, engine)
    summarise(reports)
    raise typer.Exit(1 if any(report.found for report in reports) else 0)


def _import_targets(engine: Engine) -> dict[str, Target]:
    """Import the targets; for atheris with the instructions that measure the coverage of the project's code."""
    if engine == "hypothesis":
        return all_targets()
    if find_spec("atheris") is None:
        raise typer.BadParameter("The engine atheris is not installed: .venv/bin/pip install atheris==3.0.0")
    packages = [module.name for module in pkgutil.iter_modules() if module.name.startswith("prismline_")]
    with import_module("atheris").instrument_imports(include=packages):
        return all_targets()


def repeat(target: Target, path: Path) -> int:
    """Give the input in `path` to a target again. Returns the exit code."""
    target.prepare()
    with limited_memory():
        finding = examine(target, path.read_bytes())
    console.print(finding.text if finding else "The input keeps the rule.", markup=False)
    return 1 if finding else 0


def search(names: list[str], seconds: float, cores: int, seed: int, engine: Engine) -> list[Report]:
    """Fuzz the targets, and print each finding with the command that repeats it."""
    reports = []
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("fork")) as pool:
        for future in as_completed([pool.submit(_fuzz, name, seconds, seed, engine) for name in names]):
            report = future.result()
            reports.append(report)
            console.print(f"{report.target}: {report.inputs:,} inputs, {len(report.found)} findings")
            for found in report.found:
                console.print(f"  {found.finding.text}", markup=False)
                console.print(f"    python -m tests.fuzz --target {report.target} --input {found.path}", markup=False)
    return sorted(reports, key=lambda each: each.target)


def _fuzz(name: str, seconds: float, seed: int, engine: Engine) -> Report:
    return fuzz(all_targets()[name], seconds, seed, engine)


def summarise(reports: list[Report]) -> None:
    """Print a table with a row for each target."""
    table = Table("target")
    for name in ("inputs", "inputs/s", "findings"):
        table.add_column(name, justify="right")
    for report in reports:
        speed = f"{report.inputs / report.seconds:,.0f}"
        table.add_row(report.target, f"{report.inputs:,}", speed, str(len(report.found)))
    console.print(table)


if __name__ == "__main__":
    app()
