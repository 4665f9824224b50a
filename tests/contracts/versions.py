"""The versions of packages in this checkout."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def version_of(service: str) -> str:
    """The version of a service, or of the command line, in this checkout."""
    folder = "cli" if service == "cli" else f"services/{service}"
    version: str = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["version"]
    return version
