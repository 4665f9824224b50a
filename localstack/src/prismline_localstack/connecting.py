"""Connect the `prismline` command to the system that the harness runs: the entry point in `prismline.connections`."""

from __future__ import annotations

from prismline_localstack.errors import HarnessError
from prismline_localstack.harness import load_state


def connect() -> str | None:
    """Point the AWS environment variables at the system in `PRISMLINE_HOME`. Return the reason if none runs."""
    try:
        load_state().activate()
    except HarnessError as error:
        return str(error)
    return None
