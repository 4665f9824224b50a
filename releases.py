"""Compares each package with its last release: a package that changed needs a new version and a changelog entry.

    python releases.py check            # all packages of the checkout; or those that you name: check services/worker
    python releases.py record           # after a release: record the present versions and digests
    python releases.py tag prismline-worker-1.2.0     # what a tag releases: its distribution and, if it is one, service
    python releases.py notes prismline-worker-1.2.0   # what its changelog says of this version

`releases.toml` records for each package its version and a digest of its sources. This script needs only Python, so
that it also runs in a sparse checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent
RECORD = "releases.toml"
#: What the names of our packages begin with.
OURS = "prismline"
#: The files that a package is built from, without third-party packages and other packages of this repository.
BUILT_FROM = (
    "src/**/*",
    "statemachine/*",
    "pyproject.toml",
    "setup.py",
    "Dockerfile",
    "requirements.txt",
    "template.yaml",
)
#: Files that tools generate among the sources.
GENERATED = ("__pycache__", ".egg-info")
HEADER = """\
# The last release of each package: its version, its commit, and the digest of what it was built from.
# `releases.py record` writes this file. `make check` fails for a package that has changed since then and has neither a
# new version nor an entry for it in its changelog.
"""


@dataclass(frozen=True)
class Release:
    """A package at one moment."""

    version: str
    sha256: str
    #: The commit of the release; empty if the package is not released.
    commit: str = field(default="", compare=False)


def packages(root: Path) -> list[str]:
    """The folders of the packages in a checkout, which may be sparse."""
    paths = [path for pattern in ("*/pyproject.toml", "*/*/pyproject.toml") for path in root.glob(pattern)]
    return sorted(str(path.parent.relative_to(root)) for path in paths)


def release_of(folder: Path) -> Release:
    """The present version and digest of a package."""
    version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    whole = hashlib.sha256()
    for path in sorted(set(_sources(folder))):
        whole.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return Release(version, whole.hexdigest())


def _sources(folder: Path) -> Iterator[Path]:
    for path in (path for pattern in BUILT_FROM for path in folder.glob(pattern)):
        generated = path.suffix in {".so", ".pyc"} or any(part.endswith(GENERATED) for part in path.parts)
        if path.is_file() and not generated:
            yield path


def changelog_entry(folder: Path, version: str) -> str:
    """The section of a version in the changelog of a package; empty if there is none."""
    changelog = folder / "CHANGELOG.md"
    text = changelog.read_text() if changelog.exists() else ""
    found = re.search(rf"^## {re.escape(version)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def complaint(folder: Path, released: Release | None) -> str | None:
    """What a package lacks to become a release: the end of a sentence. None if it lacks nothing."""
    now = release_of(folder)
    if released is not None:
        if now == released:
            return None
        if now.sha256 == released.sha256:
            return f"is {now.version} and nothing else changed since {released.version}"
        if _ordered(now.version) <= _ordered(released.version):
            return (
                f"changed since its release {released.version}. Give it a later version in pyproject.toml, "
                f"and say in CHANGELOG.md what changes"
            )
    if not changelog_entry(folder, now.version):
        return f"is {now.version}, but CHANGELOG.md has no entry for it. Write what changes below `## {now.version}`"
    return None


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def read_record(root: Path) -> dict[str, Release]:
    """The last releases, by the folders of the packages."""
    return {name: Release(**table) for name, table in tomllib.loads((root / RECORD).read_text()).items()}


def write_record(root: Path, releases: dict[str, Release]) -> None:
    """Write the last releases."""
    tables = (
        f'["{name}"]\nversion = "{release.version}"\ncommit = "{release.commit}"\nsha256 = "{release.sha256}"\n'
        for name, release in sorted(releases.items())
    )
    (root / RECORD).write_text("\n".join([HEADER, *tables]))


def _head(root: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def check(root: Path, names: Iterable[str]) -> list[str]:
    """A sentence for each package that is not its last release and cannot be released as it is."""
    record = read_record(root)
    found = {name: complaint(root / name, record.get(name)) for name in names}
    return [f"{name} {what}." for name, what in found.items() if what]


def tagged(root: Path, tag: str) -> str:
    """The folder of the package that a tag releases. Raises ValueError unless the tag is the name and the version of a
    package of the checkout, and the changelog has an entry for the version.
    """
    tags = {}
    for name in packages(root):
        project = tomllib.loads((root / name / "pyproject.toml").read_text())["project"]
        tags[f"{project['name']}-{project['version']}"] = name
    if tag not in tags:
        raise ValueError(
            f"No package has the name and version {tag}. Those of this commit are: {', '.join(sorted(tags))}."
        )
    if not changelog_entry(root / tags[tag], tag.rpartition("-")[2]):
        raise ValueError(f"{tags[tag]}/CHANGELOG.md has no entry for {tag.rpartition('-')[2]}.")
    return tags[tag]


def _printed(command: str, root: Path, words: Sequence[str]) -> str:
    """What the commands print that change nothing. Raises ValueError with the reason if they cannot."""
    (tag,) = words
    folder = tagged(root, tag)
    distribution, _, version = tag.rpartition("-")
    if command == "notes":
        return f"{changelog_entry(root / folder, version)}\n"
    service = Path(folder).name if Path(folder).parent.name == "services" else ""
    return f"distribution={distribution}\nservice={service}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns 1 if a package lacks a version or an entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "record", "tag", "notes"))
    parser.add_argument(
        "packages",
        nargs="*",
        help="folders; default: all packages of the checkout. For tag and notes: the tag",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args(arguments)
    if options.command in {"tag", "notes"}:
        try:
            sys.stdout.write(_printed(options.command, options.root, options.packages))
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        return 0
    names = options.packages or packages(options.root)
    complaints = check(options.root, names)
    if complaints:
        sys.stderr.write("\n".join(complaints) + "\n")
        return 1
    if options.command == "record":
        commit = _head(options.root)
        now = {name: replace(release_of(options.root / name), commit=commit) for name in names}
        earlier = read_record(options.root)
        write_record(options.root, earlier | {name: each for name, each in now.items() if each != earlier.get(name)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
