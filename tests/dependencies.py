"""Checks that each package declares what it imports, and nothing else: `python -m tests.dependencies`, in `make check`.

deptry reads the sources and the `pyproject.toml` of one package at a time. The harness is left out: its `setup.py` has
its dependencies, because every service of the checkout is among them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Packages that a declared one always brings and makes a part of its interface: of boto3, FastAPI and pydantic.
BROUGHT = "botocore|starlette|anyio|pydantic_core"
#: Packages that no module names: FastAPI and uvicorn import them.
BY_NAME = "jinja2|httptools"


def packages() -> list[Path]:
    """The folders of the packages, without the harness."""
    found = [path.parent for depth in ("*", "*/*") for path in ROOT.glob(f"{depth}/pyproject.toml")]
    return sorted(folder for folder in found if folder.name != "localstack")


def undeclared(folder: Path) -> str:
    """What deptry says of a package. Empty if it declares what it imports."""
    command = [sys.executable, "-m", "deptry", "--no-ansi", "--per-rule-ignores", f"DEP002={BY_NAME},DEP003={BROUGHT}"]
    done = subprocess.run([*command, "src"], cwd=folder, capture_output=True, text=True, check=False)
    return f"{folder.relative_to(ROOT)}:\n{done.stderr}" if done.returncode else ""


def main() -> int:
    """Entry point. Returns 0 if every package declares what it imports."""
    findings = [text for folder in packages() if (text := undeclared(folder))]
    print("".join(findings), end="", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
