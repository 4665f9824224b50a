"""Damage to the templates, for tests that show a rule what it has to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.templates.reading import Stacks


def properties(stacks: Stacks, stack: str, logical_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stacks[stack]["Resources"][logical_id]["Properties"]
    return found


def without(stack: str, logical_id: str, *path: str | int) -> Callable[[Stacks], None]:
    """Take a property away."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return damage


def changed(stack: str, logical_id: str, value: Any, *path: str) -> Callable[[Stacks], None]:
    """Set a property."""

    def damage(stacks: Stacks) -> None:
        at: Any = properties(stacks, stack, logical_id)
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return damage


def removed(stack: str, logical_id: str) -> Callable[[Stacks], None]:
    """Take a resource away."""

    def damage(stacks: Stacks) -> None:
        del stacks[stack]["Resources"][logical_id]

    return damage
