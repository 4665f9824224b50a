"""Connect the `prismline` command to the system that the harness runs: the entry point in `prismline.connections`."""

from __future__ import annotations

import os

from prismline_localstack.api_keys import API_KEY_VARIABLE, read_api_key
from prismline_localstack.errors import HarnessError
from prismline_localstack.harness import load_state
from prismline_localstack.home import Home


def connect() -> str | None:
    """Point the AWS environment variables at the system in `PRISMLINE_HOME`. Return the reason if none runs."""
    try:
        load_state().activate()
        if (key := read_api_key(Home.at(None).api_key)) is not None:
            os.environ.setdefault(API_KEY_VARIABLE, key)
    except HarnessError as error:
        return str(error)
    return None
