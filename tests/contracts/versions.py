"""The versions of packages in this checkout."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from prismline_contracts_tool.deploying import VERIFICATIONS, Verifications

ROOT = Path(__file__).parents[2]


def version_of(service: str) -> str:
    """The version of a service, or of the command line, in this checkout."""
    folder = "cli" if service == "cli" else f"services/{service}"
    version: str = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["version"]
    return version


def verify_as(checkout: Path, service: str, version: str) -> None:
    """Record in a checkout that a version of a service exchanges what the present one does."""
    path = checkout / "contracts" / VERIFICATIONS
    verified = Verifications.read(path)
    for recorded in (verified.sends, verified.takes, verified.needs, verified.keeps):
        rows: dict[str, Any] = recorded.get(service, {})  # type: ignore[assignment]
        if version_of(service) in rows:
            rows[version] = rows[version_of(service)]
    verified.write(path)
