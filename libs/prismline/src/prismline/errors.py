"""Errors that an author raises, and those that an author reads."""

from __future__ import annotations


class Permanent(Exception):  # noqa: N818  authors read `raise Permanent(...)`
    """This item can never succeed: it fails at once with this sentence, and is not tried again.

    Any other exception costs the item an attempt.
    """


class WorkloadError(ValueError):
    """A workload cannot be used as it is written or installed. The text says what to change."""
