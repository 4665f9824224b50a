"""Every mutant still applies to the present code, and the result compiles. `make mutants` hunts them."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.schedules import LISTS, SCHEDULES
from tests.simulation.mutants.trees import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_in_one_place_and_compiles(mutant: Mutant) -> None:
    path, mutated = mutant.change.apply(ROOT)
    if path.suffix == ".json":
        assert json.loads(mutated) != json.loads(path.read_text())
    else:
        compile(mutated, path.name, "exec")
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(path.read_text()))


def test_mutants_say_what_they_are() -> None:
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    assert len(MUTANTS) >= 40
    for mutant in MUTANTS:
        assert mutant.harm.endswith(".")
        assert set(mutant.schedules) <= {*SCHEDULES, LISTS}
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)
