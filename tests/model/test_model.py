"""The model of how a run ends keeps its promises in every state, and the checker finds every deliberate fault."""

from __future__ import annotations

import re

import pytest

from tests.model.check import CHANGEABLE, FAULTS, INSTALL, MODEL, REACHED, SPACES, Space, explore, missing

needs_checker = pytest.mark.skipif(missing() is not None, reason=f"there is no {missing()}: {INSTALL}")


@pytest.mark.slow
@needs_checker
@pytest.mark.parametrize("space", [space for space in SPACES if space.small], ids=str)
def test_nothing_breaks_a_promise(space: Space) -> None:
    outcome = explore(space)
    assert not outcome.finding
    assert outcome.exhausted
    assert outcome.states > 10_000


@pytest.mark.slow
@needs_checker
@pytest.mark.parametrize("number", FAULTS, ids=lambda number: FAULTS[number][0].replace(" ", "-"))
def test_a_deliberate_fault_is_found(number: int) -> None:
    _, space = FAULTS[number]
    assert explore(space, fault=number).finding


@pytest.mark.slow
@needs_checker
@pytest.mark.parametrize("number", REACHED, ids=lambda number: REACHED[number].replace(" ", "-"))
def test_a_state_worth_reaching_is_reached(number: int) -> None:
    assert explore(CHANGEABLE, reached=number).finding


def test_every_fault_and_every_state_is_in_the_model() -> None:
    text = MODEL.read_text()
    faults = {int(number) for number in re.findall(r"(?:UNLESS\(|FAULT [!=]= )(\d+)", text)}
    assert faults - {0} == set(FAULTS)
    assert {int(number) for number in re.findall(r"NEVER\((\d+)", text)} == set(REACHED)
