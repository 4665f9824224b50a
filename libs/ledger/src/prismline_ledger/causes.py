"""Failures grouped by their error: messages that differ only in numbers and ids are one cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Ids and numbers in a message. A long hexadecimal word is an id if it has a digit.
_VARYING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*"
)


@dataclass(frozen=True)
class Failure:
    """A chunk or a task that failed: what a person calls it, when it ended, and its error."""

    name: str
    ended_at: str
    error: str


@dataclass(frozen=True)
class Cause:
    """Failures with the same error."""

    count: int
    #: The latest of them.
    example: Failure


def folded(error: str) -> str:
    """The error without the numbers and ids that differ between failures of one cause."""
    return _VARYING.sub("#", error)


def causes_of(failures: Iterable[Failure]) -> list[Cause]:
    """The causes of failures, the one with the latest failure first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(folded(failure.error), []).append(failure)
    causes = [Cause(len(group), max(group, key=lambda each: each.ended_at)) for group in groups.values()]
    return sorted(causes, key=lambda cause: cause.example.ended_at, reverse=True)
