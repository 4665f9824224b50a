"""Every mutant still applies to the present code, and the result compiles. `make mutants` hunts them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.simulation.mutants.catalogue import MUTANTS, Mutant
from tests.simulation.mutants.schedules import SCHEDULES
from tests.simulation.mutants.trees import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_applies_once_and_compiles(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    mutated = mutant.applied(text)
    assert mutated != text
    if mutant.file.endswith(".json"):
        json.loads(mutated)
    else:
        compile(mutated, mutant.file, "exec")


def test_mutants_say_what_they_are() -> None:
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    assert len(MUTANTS) >= 40
    for mutant in MUTANTS:
        assert mutant.harm.endswith(".")
        assert set(mutant.schedules) <= set(SCHEDULES)
