"""The example of an author's package, installed from wheels outside of the checkout, without the rest of Prismline."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.releases import wheels

EXAMPLE = REPOSITORY / "libs/prismline/examples/seeing"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package: a build writes into its folder."""
    return Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("author") / "seeing"))


@pytest.fixture(scope="module")
def python(built: Path, package: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with the package, and with nothing that it does not need but pytest."""
    needed = wheels.third_party_of("prismline", "pytest", "pytest-timeout") | {"setuptools"}
    folder = tmp_path_factory.mktemp("environment") / "venv"
    commands = wheels.environment_of(built, ["prismline"], folder, needed)
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python"), "--disable-pip-version-check"]
    offline = ["install", "-q", "--no-index", "--find-links", str(built), "--no-build-isolation"]
    wheels.run([*pip, *offline, str(package)], folder)
    return str(commands / "python")


def test_a_deployment_learns_what_the_package_registers(python: str, tmp_path: Path) -> None:
    description = json.loads(wheels.run([python, "-m", "prismline.describe"], tmp_path))
    assert description["name"] == "count-sources"
    assert description["item"]["required"] == ["name", "pixels"]
    assert list(description["parameters"]["properties"]) == ["threshold"]
    assert (description["limits"]["timeout"], description["limits"]["attempts"]) == (10, 2)


def test_the_list_of_the_example_can_be_run(python: str, package: Path) -> None:
    command = [python, "-m", "prismline.check", "count-sources", "items.jsonl", "--param", "threshold=4"]
    printed = wheels.run(command, package)
    assert "3 items, 1 failed, 0 rows rejected" in printed
    assert printed.endswith("Nothing was found.\n")


def test_the_tests_of_the_example_pass(python: str, package: Path) -> None:
    assert "3 passed" in wheels.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], package)


def test_nothing_else_of_prismline_is_installed(python: str, tmp_path: Path) -> None:
    program = "from importlib import metadata; print(*sorted(d.name for d in metadata.distributions()))"
    names = wheels.run([python, "-c", program], tmp_path).split()
    assert [name for name in names if name.startswith("prismline")] == ["prismline"]


def test_a_package_that_does_not_import_fails_the_deployment(python: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_library_that_is_not_installed\n")
    command = [python, "-m", "prismline.describe", "count-sources", "broken:work"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["name"] == "count-sources"
    assert done.stderr == (
        "broken:work cannot be described: ModuleNotFoundError: No module named 'a_library_that_is_not_installed'\n"
    )
