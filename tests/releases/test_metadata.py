"""What each package says of itself: licence, Pythons, description, and that its name is ours."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.docs.commands import commands

PACKAGES = sorted(path.parent for pattern in ("*", "*/*") for path in REPOSITORY.glob(f"{pattern}/pyproject.toml"))
#: The Pythons on which continuous integration runs the quick tests.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_a_package_states_its_licence_and_its_pythons(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert (folder / "LICENSE").read_text() == (REPOSITORY / "LICENSE").read_text()
    stated = re.findall(r"Programming Language :: Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert tuple(stated) == PYTHONS
    assert project["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="git lists the names")
def test_the_names_to_reserve_are_those_of_all_packages() -> None:
    projects = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in PACKAGES]
    (command,) = commands(REPOSITORY / "docs/how-to/release.md", "Names")
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(each["name"] for each in projects)
