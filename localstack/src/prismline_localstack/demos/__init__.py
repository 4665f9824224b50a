"""Demonstrations, each on a harness of its own or on the one that runs."""

from __future__ import annotations

from typing import NamedTuple


class DemoResult(NamedTuple):
    """Whether a demonstration went as it should, and its run."""

    ok: bool
    run_id: str | None
