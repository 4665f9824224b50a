"""Where the API is, and the key for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from prismline_client.errors import ApiError

#: Environment variables of the address, the key, and the folder of a system on this machine.
URL_VARIABLE, KEY_VARIABLE, HOME_VARIABLE = "PRISMLINE_API_URL", "PRISMLINE_API_KEY", "PRISMLINE_HOME"
#: The folder if the variable is not set, in the current folder.
DEFAULT_HOME = ".prismline"
#: Files in the folder: the shell commands that export the system's variables, while it runs, and the key.
ENVIRONMENT_FILE, KEY_FILE = "environment", "api-key"


def find() -> tuple[str, str]:
    """The address and the key of the system that runs on this machine, else those of the environment variables.

    `PRISMLINE_API_KEY` replaces the key of a local system. Raises ApiError if one of the two is missing.
    """
    url = find_url()
    key = os.environ.get(KEY_VARIABLE) or _read(_home() / KEY_FILE).strip()
    if not url or not key:
        raise ApiError(
            f"Nothing runs in {_home().absolute()}. Start a system with `prismline up`, or set {URL_VARIABLE} and"
            f" {KEY_VARIABLE}."
        )
    return url, key


def find_url() -> str | None:
    """The address of the system that runs on this machine, else that of the environment variable."""
    for word in shlex.split(_read(_home() / ENVIRONMENT_FILE)):
        name, _, value = word.partition("=")
        if name == URL_VARIABLE:
            return value
    return os.environ.get(URL_VARIABLE)


def _home() -> Path:
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
