"""The wheels of the repository, installed outside of it, can run and deploy the system."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from tests.cubes import write_cube
from tests.releases import wheels

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_every_package_is_a_wheel(built: Path) -> None:
    names = {path.name.split("-")[0].replace("_", "-") for path in built.glob("*.whl")}
    projects = [path.read_text() for path in REPOSITORY.glob("*/pyproject.toml")]
    projects += [path.read_text() for path in REPOSITORY.glob("*/*/pyproject.toml")]
    assert names == {re.findall(r'^name = "(.+)"', project, re.MULTILINE)[0] for project in projects}


def test_two_builds_of_the_same_sources_are_identical(built: Path, tmp_path: Path) -> None:
    """The second build is in another folder, and its sources have other times."""
    checkout = wheels.copy_of_sources(tmp_path / "checkout")
    for path in checkout.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    again = wheels.build(checkout, "contracts", "libs/gaussline", "services/status", "localstack")
    assert len(list(again.glob("*.whl"))) == 4
    for path in again.iterdir():
        assert path.read_bytes() == (built / path.name).read_bytes(), path.name


def test_every_wheel_has_its_licence_and_its_changelog(built: Path) -> None:
    for path in built.glob("*.whl"):
        with zipfile.ZipFile(path) as archive:
            (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
            assert archive.read(licence) == (REPOSITORY / "LICENSE").read_bytes()
            (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            stated = email.message_from_bytes(archive.read(metadata))
        assert stated["License-Expression"] == "MIT"
        assert stated["Requires-Python"] == ">=3.11"
        assert f"# Changelog of {stated['Name']}" in str(stated.get_payload())


def test_nothing_is_imported_from_the_checkout(commands: Path, tmp_path: Path) -> None:
    modules = ["prismline_contracts", "prismline_ledger", "prismline_cli", "prismline_localstack", "prismline_worker"]
    program = f"import json, importlib; print(json.dumps([importlib.import_module(m).__file__ for m in {modules}]))"
    places = json.loads(wheels.run([str(commands / "python"), "-c", program], tmp_path))
    assert all(Path(place).is_relative_to(commands.parent) for place in places)
    program = "import prismline_gaussline as g; print(g.__file__, g.kernel_available())"
    place, kernel = wheels.run([str(commands / "python"), "-c", program], tmp_path).split()
    assert Path(place).is_relative_to(commands.parent)
    assert kernel == "True"


def test_the_deploy_tool_runs_no_system(built: Path, tmp_path: Path) -> None:
    """An environment with it and what it needs has the two commands, and no emulator, no harness and no service."""
    needed = wheels.third_party_of("prismline-deploy")
    folder = wheels.environment_of(built, ["prismline-deploy"], tmp_path / "venv", needed)
    services = [path.parent.name.replace("-", "_") for path in REPOSITORY.glob("services/*/pyproject.toml")]
    absent = ["ministack", "prismline_localstack", *(f"prismline_{name}" for name in services)]
    program = f"import importlib.util as u; print([name for name in {absent} if u.find_spec(name)])"
    assert wheels.run([str(folder / "python"), "-c", program], tmp_path).strip() == "[]"
    assert "--plan" in wheels.run([str(folder / "prismline"), "deploy", "--help"], tmp_path)
    commands = set(wheels.run([str(folder / "prismline"), "--help"], tmp_path).split())
    assert {"deploy", "rollback", "submit"} <= commands
    assert not {"up", "down", "demo-faults", "gpu"} & commands


def test_a_range_that_no_wheel_meets_is_not_installed(built: Path, tmp_path: Path) -> None:
    """pip resolves the ranges of dependencies: without contracts in the range it installs nothing."""
    older = tmp_path / "older"
    older.mkdir()
    for path in built.glob("*.whl"):
        if not path.name.startswith("prismline_contracts-"):
            (older / path.name).symlink_to(path)
    with pytest.raises(AssertionError, match=r"No matching distribution found for prismline-contracts"):
        wheels.environment_of(older, ["prismline-worker"], tmp_path / "venv")


def test_the_demo_runs(commands: Path, tmp_path: Path) -> None:
    document = json.loads(wheels.run([str(commands / "prismline"), "demo", "--json"], tmp_path))
    assert document["ok"]


def test_a_cube_is_decomposed_by_functions(commands: Path, home: Path) -> None:
    write_cube(home / "cube.fits", ny=2, nx=3)
    submit = [str(commands / "prismline"), "submit", "cube.fits", "--survey", "test", "--wait", "--json"]
    assert json.loads(wheels.run(submit, home))["status"] == "completed"


def test_a_service_is_deployed(commands: Path, home: Path) -> None:
    deploy = [str(commands / "prismline"), "deploy", "--env", "local", "--service", "worker", "--root", str(REPOSITORY)]
    assert "no changes" in wheels.run([*deploy, "--plan"], home)
    version = re.findall(r'^version = "(.+)"', (REPOSITORY / "services/worker/pyproject.toml").read_text(), re.M)[0]
    assert f"worker {version} is deployed: prismline/worker@sha256:" in wheels.run(deploy, home).replace("\n", " ")


def test_an_environment_is_planned(commands: Path, home: Path) -> None:
    """The emulator of the system is the account. The command is called in a checkout."""
    account = harness.load_state(home / ".prismline").env | {"PRISMLINE_HOME": str(home / ".prismline")}
    printed = wheels.run([str(commands / "prismline"), "deploy", "--env", "prod", "--plan"], REPOSITORY, **account)
    assert "prismline-prod-platform (new):" in printed


def test_the_harness_says_that_it_is_built_from_a_checkout(tmp_path: Path) -> None:
    checkout = wheels.copy_of_sources(tmp_path / "checkout")
    (checkout / "platform" / "template.yaml").unlink()
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "build")]
    done = subprocess.run(build, cwd=checkout / "localstack", capture_output=True, text=True, check=False)
    assert "is not a checkout: it has no platform/template.yaml" in done.stderr
