"""Rules that the templates keep, and damage to the templates that shows a rule what it has to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.templates.reading import Stacks

#: A rule says of each place that breaks it, in a sentence, what is wrong there.
Rule = Callable[[Stacks], Iterator[str]]
Damage = Callable[[Stacks], None]
#: A rule, and damage that it has to see.
Case = tuple[Rule, Damage]


def properties(stacks: Stacks, stack: str, logical_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stacks[stack]["Resources"][logical_id]["Properties"]
    return found


def without(stack: str, logical_id: str, *path: str | int) -> Damage:
    """Take a property away."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return damage


def changed(stack: str, logical_id: str, value: Any, *path: str) -> Damage:
    """Set a property."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return damage


def removed(stack: str, logical_id: str) -> Damage:
    """Take a resource away."""

    def damage(stacks: Stacks) -> None:
        del stacks[stack]["Resources"][logical_id]

    return damage
