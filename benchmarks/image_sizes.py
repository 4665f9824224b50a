"""Measures the third-party packages of each image, as its Dockerfile installs them.

    python benchmarks/image_sizes.py [--before COMMIT]

Installs each `requirements.txt` into a temporary folder with uv, and removes from it what the Dockerfile removes. With
a commit, it does the same with the requirements of that commit, and prints both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEGABYTE = 2**20
PRUNE = "services/prune.sh"


def images() -> list[str]:
    return sorted(
        str(path.parent.relative_to(ROOT)) for path in (*ROOT.glob("services/*/Dockerfile"), ROOT / "cli/Dockerfile")
    )


def shown(commit: str, path: str) -> str | None:
    """A file of a commit. None if it has none."""
    done = subprocess.run(["git", "-C", ROOT, "show", f"{commit}:{path}"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def installed(image: str, commit: str | None) -> dict[str, int] | None:
    """Bytes of each package of an image, by the name of its folder. None if the commit has no such image."""

    def text(path: str) -> str | None:
        return shown(commit, path) if commit else (ROOT / path).read_text()

    requirements, dockerfile = text(f"{image}/requirements.txt"), text(f"{image}/Dockerfile")
    if requirements is None or dockerfile is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text(requirements)
        packages = Path(folder) / "packages"
        install = ["pip", "install", "-q", "--no-build-isolation", "--python", sys.executable, "--target", packages]
        subprocess.run([sys.executable, "-m", "uv", *install, "-r", listed], check=True)
        if PRUNE in dockerfile:
            subprocess.run([ROOT / PRUNE, packages], check=True)
        return {
            path.name: sum(file.lstat().st_size for file in [path, *path.rglob("*")] if file.is_file())
            for path in packages.iterdir()
        }


def megabytes(sizes: dict[str, int] | None) -> str:
    return "-" if sizes is None else f"{sum(sizes.values()) / MEGABYTE:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="COMMIT", help="also measure the requirements of this commit")
    before: str | None = parser.parse_args().before
    print("| image | before, MB | MB | largest |\n| --- | --- | --- | --- |")
    for image in images():
        sizes = installed(image, None) or {}
        earlier = megabytes(installed(image, before)) if before else "-"
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        named = ", ".join(f"{name} {sizes[name] / MEGABYTE:.0f}" for name in largest)
        print(f"| {Path(image).name} | {earlier} | {megabytes(sizes)} | {named} |", flush=True)


if __name__ == "__main__":
    main()
