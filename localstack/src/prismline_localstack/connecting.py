"""Points the `prismline` command at the system that the harness runs: its entry point in `prismline.connections`."""

from __future__ import annotations

from prismline_localstack.errors import HarnessError
from prismline_localstack.harness import load_state


def connect() -> str | None:
    """Set the AWS environment variables to what runs under `PRISMLINE_HOME`; why not, if nothing does."""
    try:
        load_state().activate()
    except HarnessError as error:
        return str(error)
    return None
