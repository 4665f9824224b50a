"""Points the `prismline` command at the system that the harness runs: its entry point in `prismline.connections`."""

from __future__ import annotations

import os

from prismline_localstack.api_keys import API_KEY_VARIABLE, read_api_key
from prismline_localstack.errors import HarnessError
from prismline_localstack.harness import load_state
from prismline_localstack.home import Home


def connect() -> str | None:
    """Set the AWS environment variables to what runs under `PRISMLINE_HOME`; why not, if nothing does."""
    try:
        load_state().activate()
        if (key := read_api_key(Home.at(None).api_key)) is not None:
            os.environ.setdefault(API_KEY_VARIABLE, key)
    except HarnessError as error:
        return str(error)
    return None
