"""The templates keep every rule, and each rule detects a broken template."""

from __future__ import annotations

import copy
import re
from importlib import import_module

import pytest

from prismline_contracts.delivery import VISIBILITY_PER_TIMEOUT
from tests.templates import infrastructure, rights, roles, worker_compute
from tests.templates.damage import Damage, Rule
from tests.templates.needs import KNOWN
from tests.templates.reading import Stacks, imports, of_kind, read_stacks

CASES = [*infrastructure.CASES, *rights.CASES, *roles.CASES, *worker_compute.CASES]
RULES = list(dict.fromkeys(rule for rule, _ in CASES))


@pytest.fixture(scope="module")
def stacks() -> Stacks:
    return read_stacks()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_templates_keep_the_rule(rule: Rule, stacks: Stacks) -> None:
    assert list(rule(stacks)) == []


@pytest.mark.parametrize(("rule", "damage"), CASES)
def test_a_broken_fact_is_said(rule: Rule, damage: Damage, stacks: Stacks) -> None:
    broken = copy.deepcopy(stacks)
    damage(broken)
    assert list(rule(broken)) != []


@pytest.mark.parametrize("name", KNOWN)
def test_a_value_whose_origin_is_declared_exists(name: str) -> None:
    module, *path = re.split(r"\.(?=[A-Z])", name) if re.search("[A-Z]", name) else name.rsplit(".", 1)
    owner, _, field = path[0].partition(".")
    found = getattr(import_module(module), owner)
    assert not field or field in found.__annotations__


def test_the_table_of_limits_hides_messages_long_enough() -> None:
    assert VISIBILITY_PER_TIMEOUT >= 6


def test_the_dead_letter_consumer_is_deployed_before_those_who_map_their_dead_letters_to_it(stacks: Stacks) -> None:
    users = {name for name, template in stacks.items() if "DeadLettersFunction" in imports(template)}
    owners = {stack for stack, _, _ in of_kind(stacks, "SQS::Queue")}
    assert users == owners - {"dlq-consumer"}
