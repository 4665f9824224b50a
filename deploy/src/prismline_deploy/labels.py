"""The labels of an image that its Dockerfile does not contain: `python -m prismline_deploy.labels worker`.

The command prints the options of `docker build` that set them.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from prismline_deploy.dockerfiles import context, copies, dockerfile_of, ignored_by
from prismline_deploy.errors import DeployError

PREFIX = "org.opencontainers.image"
#: What the revision of an image ends with if its files are not those of the commit.
DIRTY = "-dirty"


def version_of(root: Path, service: str) -> str:
    """The version of a service. Raises DeployError if there is no such service."""
    project = root / "services" / service / "pyproject.toml"
    if not project.exists():
        raise DeployError(f"There is no {project}.")
    version: str = tomllib.loads(project.read_text())["project"]["version"]
    return version


def labels_of(root: Path, service: str) -> list[str]:
    """The version and, in a clone, the revision."""
    labels = [f"{PREFIX}.version={version_of(root, service)}"]
    if revision := revision_of(root, service):
        labels.append(f"{PREFIX}.revision={revision}")
    return labels


def revision_of(root: Path, service: str) -> str | None:
    """The commit that the image of a service is built from. None outside a clone of this repository.

    It ends with `-dirty` if a file that the image is built from is not as in the commit. Other files make no
    difference. A checkout inside the clone of another repository has no revision: that repository's commit would say
    nothing about our files.
    """
    root = root.resolve()
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top.rstrip("\n")).resolve() != root:
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:  # the clone has no commit yet
        return None
    return commit.strip() + (DIRTY if _dirty(root, service) else "")


def _dirty(root: Path, service: str) -> bool:
    dockerfile = dockerfile_of(root, service)
    ignored = ignored_by(root, dockerfile)
    name = dockerfile.relative_to(root).as_posix()
    places = [name, *(source for copy in copies(dockerfile) for source in copy.sources)]
    changed = _names(root, "diff", "--name-only", "--no-renames", "-z", "HEAD", "--", *places)
    if any(path == name or not ignored(path) for path in changed):
        return True
    tracked = _names(root, "ls-files", "-z", "--", *places)
    return any(path.relative_to(root).as_posix() not in tracked for path in context(root, service))


def _names(root: Path, *arguments: str) -> set[str]:
    return set((_git(root, *arguments) or "").split("\0")) - {""}


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints. None if it is not installed or fails."""
    if (git := shutil.which("git")) is None:
        return None
    asked = subprocess.run([git, "-C", str(root), *arguments], text=True, capture_output=True, check=False)
    return asked.stdout if asked.returncode == 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Prints the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout")
    options = parser.parse_args(arguments)
    try:
        labels = labels_of(options.root, options.service)
    except DeployError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(" ".join(f"--label {shlex.quote(label)}" for label in labels) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
