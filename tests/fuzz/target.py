"""A target: a parser of bytes from outside, the inputs that it gets, and the hostile inputs of its fixed corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis.strategies import SearchStrategy

from prismline_runtime.errors import PermanentError


@dataclass(frozen=True)
class Target:
    """A parser of bytes from outside."""

    name: str
    #: Gives the parser one input. It returns the text of a refusal, or None for a result. It may also raise one of
    #: `refuses_with`, whose text is then the refusal. Every other exception is a finding.
    run: Callable[[bytes], str | None]
    #: Strategy of random inputs; `mutations` makes most of them from valid examples.
    inputs: SearchStrategy[bytes]
    #: The fixed corpus of `make test`: hostile inputs by a name that reads like a sentence.
    hostile: Mapping[str, bytes] = field(default_factory=dict)
    #: The exceptions with which the parser refuses an input.
    refuses_with: tuple[type[Exception], ...] = (PermanentError,)
    #: Called once in each process before its first input, for instance to make clients.
    prepare: Callable[[], object] = lambda: None


class BrokenRuleError(Exception):
    """A target's own check failed, for instance because the answer to a request is a 500."""
