"""Rules for the templates, and damage to a template that a rule has to detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.templates.reading import Stacks

#: A rule gives one sentence for each place that breaks it.
Rule = Callable[[Stacks], Iterator[str]]
Damage = Callable[[Stacks], None]
#: A rule, and damage that it has to detect.
Case = tuple[Rule, Damage]


def properties(stacks: Stacks, stack: str, logical_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stacks[stack]["Resources"][logical_id]["Properties"]
    return found


def without(stack: str, logical_id: str, *path: str | int) -> Damage:
    """Damage that removes a property."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return damage


def changed(stack: str, logical_id: str, value: Any, *path: str) -> Damage:
    """Damage that sets a property."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return damage


def removed(stack: str, logical_id: str) -> Damage:
    """Damage that removes a resource."""

    def damage(stacks: Stacks) -> None:
        del stacks[stack]["Resources"][logical_id]

    return damage
