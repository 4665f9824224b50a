"""A package that changed since its last release has a later version with an entry in its changelog."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from prismline_localstack.settings import REPOSITORY

SCRIPT = REPOSITORY / "releases.py"


class Checkout:
    """A checkout with one package, whose version 1.0.0 is recorded as released."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.package = folder / "libs" / "tally"
        (self.package / "src" / "tally").mkdir(parents=True)
        self.version("1.0.0")
        self.module("count = 1\n")
        self.changelog("## 1.0.0\n\nCounts.\n")
        (folder / "releases.toml").write_text("")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "A package")
        assert self.run("record") == (0, "")

    def version(self, version: str) -> None:
        (self.package / "pyproject.toml").write_text(f'[project]\nname = "tally"\nversion = "{version}"\n')

    def module(self, source: str) -> None:
        (self.package / "src" / "tally" / "__init__.py").write_text(source)

    def changelog(self, text: str) -> None:
        (self.package / "CHANGELOG.md").write_text(f"# Changelog\n\n{text}")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run releases.py. Return its exit code and its complaints."""
        command = [sys.executable, str(SCRIPT), *arguments, "--root", str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_every_package_of_this_checkout_may_be_released() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "check"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_what_is_as_it_was_released_needs_nothing(checkout: Checkout) -> None:
    assert checkout.run("check") == (0, "")
    (checkout.package / "README.md").write_text("How to count.\n")
    (checkout.package / "tests").mkdir()
    (checkout.package / "tests" / "test_tally.py").write_text("def test(): pass\n")
    assert checkout.run("check") == (0, ""), "documentation and tests are not part of a release"


@pytest.mark.parametrize("name", ["src/tally/__init__.py", "template.yaml", "statemachine/run.asl.json", "Dockerfile"])
def test_a_changed_source_needs_a_later_version_and_an_entry(checkout: Checkout, name: str) -> None:
    path = checkout.package / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("# changed\n")
    code, output = checkout.run("check", "libs/tally")
    assert code == 1
    assert output.startswith("libs/tally changed since its release 1.0.0. Give it a later version")
    checkout.version("0.9.0")
    assert "changed since its release 1.0.0" in checkout.run("check")[1], "an earlier version is not enough"
    checkout.version("1.1.0")
    assert "libs/tally is 1.1.0, but CHANGELOG.md has no entry for it." in checkout.run("check")[1]
    checkout.changelog("## 1.1.0\n\n## 1.0.0\n\nCounts.\n")
    assert checkout.run("check")[0] == 1, "a heading alone says nothing"
    checkout.changelog("## 1.1.0\n\nCounts better.\n\n## 1.0.0\n\nCounts.\n")
    assert checkout.run("check") == (0, "")


def test_version_10_is_later_than_version_9(checkout: Checkout) -> None:
    checkout.module("count = 2\n")
    checkout.version("1.10.0")
    checkout.changelog("## 1.10.0\n\nTen.\n")
    assert checkout.run("record")[0] == 0
    checkout.module("count = 3\n")
    checkout.version("1.9.0")
    checkout.changelog("## 1.9.0\n\nNine.\n")
    assert "changed since its release 1.10.0" in checkout.run("check")[1]


def test_a_release_is_recorded_with_its_commit(checkout: Checkout) -> None:
    record = (checkout.root / "releases.toml").read_text()
    assert re.search(r'\["libs/tally"\]\nversion = "1.0.0"\ncommit = "(.*)"', record)[1] == checkout.git(
        "rev-parse", "HEAD"
    )
    checkout.module("count = 2\n")
    assert checkout.run("record")[0] == 1, "a package without a new version is not recorded"
    assert (checkout.root / "releases.toml").read_text() == record


def test_the_recorded_commits_hold_what_is_recorded(tmp_path: Path) -> None:
    import releases  # noqa: PLC0415  the script is beside the packages

    for name, release in releases.read_record(REPOSITORY).items():
        git = ["git", "-C", str(REPOSITORY), "archive", "-o", str(tmp_path / "package.tar"), release.commit, name]
        if subprocess.run(git, capture_output=True, check=False).returncode:
            pytest.skip("this checkout has no history")
        shutil.unpack_archive(tmp_path / "package.tar", tmp_path, filter="data")
        assert releases.release_of(tmp_path / name) == release


def test_the_harness_brings_every_service() -> None:
    needed = [Requirement(text) for text in metadata.requires("prismline-localstack") or []]
    for path in REPOSITORY.glob("services/*/pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        (found,) = [each for each in needed if each.name == project["name"]]
        assert project["version"] in found.specifier
