"""Environment variables for commands that a test runs as another process."""

from __future__ import annotations

import os

#: The variables before a session fixture sets those of its system: tests are imported before fixtures run.
AT_START = dict(os.environ)


def without_a_system() -> dict[str, str]:
    """The variables of a shell without a running system: a command starts its own system, or finds none."""
    return {name: value for name, value in AT_START.items() if not name.startswith(("AWS_", "PRISMLINE_"))}
