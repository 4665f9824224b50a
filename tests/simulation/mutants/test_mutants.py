"""Every mutant still applies to the present code, and the result compiles. `make mutants` hunts them."""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.mutants.__main__ import NOT_FOUND, RESULTS, Verdict, updated
from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.functions import FUNCTION_MUTANTS
from tests.simulation.mutants.lists import LIST_MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.schedules import LISTS, SCHEDULES
from tests.simulation.mutants.trees import ROOT, Runner, Tree


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_in_one_place_and_compiles(mutant: Mutant) -> None:
    path, mutated = mutant.change.apply(ROOT)
    if path.suffix == ".json":
        assert json.loads(mutated) != json.loads(path.read_text())
    else:
        compile(mutated, path.name, "exec")
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(path.read_text()))


@pytest.mark.slow
def test_a_copy_of_the_sources_runs_schedules(tmp_path: Path) -> None:
    """Otherwise a hunt would end with the error of a process that does not start."""
    with Runner(Tree(tmp_path)) as runner:
        assert runner.run("everybody dies", 0) is None


def test_mutants_say_what_they_are() -> None:
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    assert len(MUTANTS) >= 40
    for mutant in MUTANTS:
        assert mutant.harm.endswith(".")
        assert set(mutant.schedules) <= {*SCHEDULES, LISTS}
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_results_are_of_mutants_of_now() -> None:
    lines = list(csv.DictReader(RESULTS.read_text().splitlines()))
    assert {line["mutant"] for line in lines} <= {mutant.name for mutant in MUTANTS}
    assert {mutant.name for mutant in (*LIST_MUTANTS, *FUNCTION_MUTANTS)} <= {line["mutant"] for line in lines}
    assert NOT_FOUND not in {line["found by"] for line in lines}


def test_a_hunt_changes_the_result_of_its_mutant_alone() -> None:
    before = RESULTS.read_text()
    after = updated(before, Verdict(MUTANTS[0], schedules=1, seconds=1.0, schedule="random", seed=7, check="a check"))
    assert f"{MUTANTS[0].name},a check,random,7" in after
    assert len(set(before.splitlines()) - set(after.splitlines())) == 1
