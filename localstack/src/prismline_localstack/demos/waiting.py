"""Wait, in a demonstration, for an effect of a service."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from prismline_cli.output import fail

#: Time limit for a step of a demonstration, in seconds.
PATIENCE_SECONDS = 300.0
#: Seconds between two checks.
POLL_SECONDS = 0.5

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str) -> T:
    """Return the first true result of `condition`. Ends the command with a sentence if it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            fail(f"Waited {PATIENCE_SECONDS:.0f} s in vain for {what}.")
        time.sleep(POLL_SECONDS)
    return found
