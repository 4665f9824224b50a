"""The fixed corpus: each named hostile input, and each example of a past finding, keeps the rule."""

from __future__ import annotations

import pytest

from tests.fuzz.rule import examine, limited_memory
from tests.fuzz.targets import all_targets

CORPUS = [
    pytest.param(target.name, name, id=f"{target.name}-{name}")
    for target in all_targets().values()
    for name in target.hostile
]


@pytest.mark.parametrize(("target", "name"), CORPUS)
def test_a_hostile_input_gives_a_result_or_a_refusal_of_one_sentence(target: str, name: str) -> None:
    chosen = all_targets()[target]
    chosen.prepare()
    with limited_memory():
        assert examine(chosen, chosen.hostile[name]) is None


@pytest.mark.parametrize("target", all_targets())
def test_every_target_has_hostile_inputs(target: str) -> None:
    assert all_targets()[target].hostile
