"""A team works in a checkout of its service, contracts/ and libs/ alone, with the harness from its wheel."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.releases import wheels

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="a sparse checkout needs the history"),
]

SERVICE = "exporter"
#: The quick ones, and one that needs the emulator and the fixtures of the harness.
SOME_TESTS = '-q -k "zip_archive or given_up"'
TARGETS = ("lint", "test", "image", "plan", "deploy", "rollback")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparse checkout of what is committed."""
    folder = tmp_path_factory.mktemp("sparse") / "checkout"
    wheels.run(["git", "clone", "-q", "--no-checkout", "--shared", str(REPOSITORY), str(folder)], folder.parent)
    wheels.run(["git", "sparse-checkout", "set", f"services/{SERVICE}", "contracts", "libs"], folder)
    wheels.run(["git", "checkout", "-q"], folder)
    return folder


def make(checkout: Path, commands: Path, *arguments: str, **variables: str) -> str:
    """Run `make` in the service's folder, with the tools of the environment that holds the harness's wheel."""
    command = ["make", "-C", f"services/{SERVICE}", f"VENV={commands.parent}", *arguments]
    return wheels.run(command, checkout, **variables)


def test_only_the_service_and_what_it_stands_on_is_there(sparse: Path) -> None:
    folders = {path.name for path in sparse.iterdir() if path.is_dir() and path.name != ".git"}
    assert folders == {"contracts", "libs", "services"}
    assert [path.name for path in (sparse / "services").iterdir() if path.is_dir()] == [SERVICE]


def test_lint_and_tests_pass(sparse: Path, commands: Path) -> None:
    known = REPOSITORY / ".mypy_cache"
    if known.exists():  # what mypy knows of the same files, by their content: it need not read boto3's types again
        shutil.copytree(known, sparse / known.name)
    make(sparse, commands, "lint")
    printed = make(sparse, commands, "test", f"TESTS={SOME_TESTS}")
    assert re.search(r"\d+ passed", printed)
    assert "failed" not in printed


def test_the_tests_are_of_the_code_in_the_checkout(sparse: Path, commands: Path) -> None:
    """Not of the service's wheel, which the harness brings along."""
    package = sparse / f"services/{SERVICE}/src/prismline_{SERVICE}/__init__.py"
    good = package.read_text()
    package.write_text(f'{good}\nraise RuntimeError("the checkout is imported")\n')
    try:
        with pytest.raises(AssertionError, match="the checkout is imported"):
            make(sparse, commands, "test", f"TESTS={SOME_TESTS}")
    finally:
        package.write_text(good)


def test_the_service_is_planned_deployed_and_rolled_back(sparse: Path, commands: Path, home: Path) -> None:
    where = {"PRISMLINE_HOME": str(home / ".prismline")}
    project = sparse / f"services/{SERVICE}/pyproject.toml"
    before = re.findall(r'^version = "(.+)"', project.read_text(), re.MULTILINE)[0]
    project.write_text(project.read_text().replace(f'version = "{before}"', 'version = "9.0.0"'))
    package = sparse / f"services/{SERVICE}/src/prismline_{SERVICE}/__init__.py"
    package.write_text(f"{package.read_text()}\n# Release 9.0.0.\n")
    assert "Modify" in make(sparse, commands, "plan", "ENV=local", **where)
    assert f"{SERVICE} 9.0.0 is deployed" in make(sparse, commands, "deploy", "ENV=local", **where)
    assert f"{SERVICE} {before} is deployed" in make(sparse, commands, "rollback", "ENV=local", **where)


def test_every_service_has_every_target(tmp_path: Path) -> None:
    for folder in (path.parent for path in REPOSITORY.glob("services/*/pyproject.toml")):
        printed = wheels.run(["make", "-n", "-C", str(folder), *TARGETS, "ENV=prod"], tmp_path)
        for command in (
            "-m ruff check",
            "-m pytest",
            "docker build",
            "--plan",
            f"rollback --env prod --service {folder.name}",
        ):
            assert command in printed, f"{folder.name}: {command}"
