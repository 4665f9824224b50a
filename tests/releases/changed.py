"""Prints, as a JSON list, the services whose image is built from files that changed.

    python -m tests.releases.changed --since main       # since the commit at which this branch left main
    python -m tests.releases.changed                    # all services

The workflow `ci` tests these. This module needs only Python and git. A commit that git does not know, such as
the one before the first push of a branch, gives all services.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Files that are part of the test of every service.
SHARED = ("services/service.mk", "tests/releases/changed.py", ".github/workflows/ci.yml", "pyproject.toml")


def services(root: Path) -> list[str]:
    """The folders below `services/` that are a service."""
    return sorted(path.parent.name for path in root.glob("services/*/pyproject.toml"))


def built_from(root: Path, service: str) -> set[str]:
    """What the image of a service is built from: the folders of packages, and files that images share.

    Its Dockerfile copies them.
    """
    dockerfile = (root / "services" / service / "Dockerfile").read_text()
    sources = [
        source for line in re.findall(r"^COPY (?!--)(.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()
    ]
    packages = re.compile(r"(contracts|libs/[^/]+|services/[^/]+)(/|$)")
    return {match[1] for source in sources if (match := packages.match(source))}


def affected(root: Path, changed: Iterable[str]) -> list[str]:
    """The services that a change of these files, relative to the root, concerns."""
    changed = list(changed)
    if set(changed) & set(SHARED):
        return services(root)
    return [
        service
        for service in services(root)
        if any(f"{path}/".startswith(f"{source}/") for source in built_from(root, service) for path in changed)
    ]


def changed_since(root: Path, commit: str) -> list[str] | None:
    """The files that HEAD changed since it left the history of `commit`. None if git does not know the commit."""
    command = ["git", "-C", str(root), "diff", "--name-only", "--no-renames", f"{commit}...HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="", help="a commit; default: all services")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args()
    changed = changed_since(options.root, options.since) if options.since else None
    sys.stdout.write(json.dumps(services(options.root) if changed is None else affected(options.root, changed)) + "\n")


if __name__ == "__main__":
    main()
