"""Environment variables for commands that a test runs as another process."""

from __future__ import annotations

import os

#: A fixture that lives for the whole session sets variables that lead to its system. Tests are imported before.
AT_START = dict(os.environ)


def without_a_system() -> dict[str, str]:
    """The variables of a shell in which no system runs: a command starts its own, or finds none."""
    return {name: value for name, value in AT_START.items() if not name.startswith(("AWS_", "PRISMLINE_"))}
