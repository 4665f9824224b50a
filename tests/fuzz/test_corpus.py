"""The fixed corpus: each named hostile input, and each example of a past finding, keeps the rule."""

from __future__ import annotations

from functools import cache

import pytest

from tests.fuzz.driver import examine_all
from tests.fuzz.targets import all_targets

CORPUS = [
    pytest.param(target.name, name, id=f"{target.name}-{name}")
    for target in all_targets().values()
    for name in target.hostile
]


@cache
def examined(target: str) -> dict[str, str]:
    """What a process of its own found in the corpus of a target: some targets replace clients of the process."""
    chosen = all_targets()[target]
    return examine_all(chosen, chosen.hostile)


@pytest.mark.parametrize(("target", "name"), CORPUS)
def test_a_hostile_input_gives_a_result_or_a_refusal_of_one_sentence(target: str, name: str) -> None:
    assert examined(target).get(name) is None


@pytest.mark.parametrize("target", all_targets())
def test_every_target_has_hostile_inputs(target: str) -> None:
    assert all_targets()[target].hostile
