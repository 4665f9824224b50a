"""What the Dockerfile of a service copies into its image."""

from __future__ import annotations

from pathlib import Path

from prismline_deploy.errors import DeployError


def copied(dockerfile: Path) -> list[str]:
    """The folders of a checkout that a Dockerfile copies to `/app/`. Raises DeployError if there is none."""
    found: list[str] = []
    for line in dockerfile.read_text().splitlines() if dockerfile.exists() else []:
        match line.split():
            case ["COPY", *folders, "/app/"] if not folders[0].startswith("--"):
                found += folders
    if not found:
        raise DeployError(f"{dockerfile} has no COPY to /app/, so the function would have no code.")
    return found
