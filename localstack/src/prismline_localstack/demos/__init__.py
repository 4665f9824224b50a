"""The demonstrations. Each starts its own system or uses the one that runs."""

from __future__ import annotations

from typing import NamedTuple


class DemoResult(NamedTuple):
    """Whether a demonstration succeeded, and its run."""

    ok: bool
    run_id: str | None
