"""A team works in a checkout of only its service, contracts/ and libs/, with harness and deploy tool from wheels.

The commands are those of docs/how-to/release.md, but for a service whose tests are quick.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.contracts.versions import verify_as
from tests.docs.commands import commands as commands_of
from tests.fake_docker import write_fake_docker
from tests.releases import wheels

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="a sparse checkout needs the history"),
]

SERVICE = "exporter"
#: Arguments that select quick tests, and one that needs the emulator and the fixtures of the harness.
SOME_TESTS = '-q -k "zip_archive or given_up"'
TARGETS = ("lint", "test", "image", "plan", "deploy", "rollback")


def written(heading: str, first: str) -> list[str]:
    """The commands of a section of the page, from the first one with this beginning, for the service of these tests."""
    found = commands_of(REPOSITORY / "docs/how-to/release.md", heading)
    start = next(n for n, command in enumerate(found) if command.startswith(first))
    return [command.replace("services/worker", f"services/{SERVICE}") for command in found[start:]]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    """A sparse checkout of the committed state, beside the folder of the wheels."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "dist").symlink_to(built)
    checkout = written("One service", "git clone")[:-2]
    wheels.run(["bash", "-e", "-c", "\n".join(checkout)], folder, REPOSITORY=str(REPOSITORY))
    return folder / "prismline"


@pytest.fixture(autouse=True)
def as_committed(sparse: Path) -> Iterator[None]:
    """Undo the changes of a test in the checkout."""
    yield
    wheels.run(["git", "checkout", "-q", "."], sparse)


@pytest.fixture(scope="module")
def tools(sparse: Path, made_once: wheels.MadeOnce) -> Path:
    """The folder of commands of an environment after `make install`. It already had the third-party packages."""

    def install(folder: Path) -> None:
        wheels.environment_without_ours(folder)
        wheels.environment_of_the_emulator(folder)
        command = written("One service", "git clone")[-2]
        wheels.run(["bash", "-e", "-c", command], sparse, VENV=str(folder), PIP_NO_INDEX="1")

    return made_once("tools", install) / "bin"


@pytest.fixture(scope="module")
def deployer(sparse: Path, made_once: wheels.MadeOnce) -> Path:
    """The same after `make install-deploy`. It had the third-party packages of the deploy tool, and no other."""

    def install(folder: Path) -> None:
        wheels.environment_without_ours(folder, wheels.third_party_of("prismline-deploy[bill]"))
        command = written("One service", "git clone")[-1]
        wheels.run(["bash", "-e", "-c", command], sparse, VENV=str(folder), PIP_NO_INDEX="1")

    return made_once("deployer", install) / "bin"


def make(checkout: Path, tools: Path, *arguments: str, **variables: str) -> str:
    """Run `make` in the service's folder, with the installed tools."""
    command = ["make", "-C", f"services/{SERVICE}", f"VENV={tools.parent}", *arguments]
    return wheels.run(command, checkout, **variables)


def test_only_the_service_and_what_it_stands_on_is_there(sparse: Path) -> None:
    folders = {path.name for path in sparse.iterdir() if path.is_dir() and path.name != ".git"}
    assert folders == {"contracts", "libs", "services"}
    assert [path.name for path in (sparse / "services").iterdir() if path.is_dir()] == [SERVICE]


def test_lint_and_tests_pass(sparse: Path, tools: Path) -> None:
    known = REPOSITORY / ".mypy_cache"
    if known.exists():  # mypy's cache of the same files, so that it need not analyse boto3's types again
        shutil.copytree(known, sparse / known.name)
    make(sparse, tools, "lint")
    printed = make(sparse, tools, "test", f"TESTS={SOME_TESTS}")
    assert re.search(r"\d+ passed", printed)
    assert "failed" not in printed


def test_the_tests_are_of_the_code_in_the_checkout(sparse: Path, tools: Path) -> None:
    """They do not import the service's wheel, which is installed with the harness."""
    package = sparse / f"services/{SERVICE}/src/prismline_{SERVICE}/__init__.py"
    package.write_text(f'{package.read_text()}\nraise RuntimeError("the checkout is imported")\n')
    with pytest.raises(AssertionError, match="the checkout is imported"):
        make(sparse, tools, "test", f"TESTS={SOME_TESTS}")


def test_the_bill_of_materials_is_written(sparse: Path, tools: Path, tmp_path: Path) -> None:
    write_fake_docker(tmp_path)
    make(sparse, tools, "bill", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "CycloneDX" in (sparse / f"services/{SERVICE}/dist/{SERVICE}.cdx.json").read_text()


def test_a_release_is_checked_and_recorded(sparse: Path) -> None:
    check, record = written("A new version", "python3.11 releases.py")
    for command in (check, record):
        wheels.run(["bash", "-c", command.replace("python3.11", sys.executable)], sparse)
    recorded = tomllib.loads((sparse / "releases.toml").read_text())[f"services/{SERVICE}"]
    project = tomllib.loads((sparse / f"services/{SERVICE}/pyproject.toml").read_text())
    assert recorded["version"] == project["project"]["version"]
    assert recorded["commit"] == wheels.run(["git", "rev-parse", "HEAD"], sparse).strip()


def test_the_service_is_planned_deployed_and_rolled_back(sparse: Path, tools: Path, home: Path) -> None:
    where = {"PRISMLINE_HOME": str(home / ".prismline")}
    project = sparse / f"services/{SERVICE}/pyproject.toml"
    before = re.findall(r'^version = "(.+)"', project.read_text(), re.MULTILINE)[0]
    project.write_text(project.read_text().replace(f'version = "{before}"', 'version = "9.0.0"'))
    package = sparse / f"services/{SERVICE}/src/prismline_{SERVICE}/__init__.py"
    package.write_text(f"{package.read_text()}\n# Release 9.0.0.\n")
    with pytest.raises(AssertionError, match=f"Nothing was verified for {SERVICE} 9.0.0"):
        make(sparse, tools, "deploy", "ENV=local", **where)
    verify_as(sparse, SERVICE, "9.0.0")
    assert "Modify" in make(sparse, tools, "plan", "ENV=local", **where)
    assert f"{SERVICE} 9.0.0 is deployed" in make(sparse, tools, "deploy", "ENV=local", **where)
    assert f"{SERVICE} {before} is deployed" in make(sparse, tools, "rollback", "ENV=local", **where)


def test_the_deploy_tool_alone_releases_the_service(
    sparse: Path, deployer: Path, aws_env: dict[str, str], tmp_path: Path
) -> None:
    """The emulator is the account. What the service's stack needs is deployed from a whole checkout before."""
    write_fake_docker(tmp_path)
    environment = aws_env["ENVIRONMENT"]
    account = aws_env | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "ENV": environment}
    needed = ["--service", "platform", "--service", "dlq-consumer"]
    deploy = [str(deployer / "prismline"), "deploy", "--env", environment, "--root", str(REPOSITORY), *needed]
    wheels.run(deploy, tmp_path, **account)
    project = sparse / f"services/{SERVICE}/pyproject.toml"
    before = re.findall(r'^version = "(.+)"', project.read_text(), re.MULTILINE)[0]
    assert f"{SERVICE} {before} is deployed" in make(sparse, deployer, "plan", "deploy", **account)
    project.write_text(project.read_text().replace(f'version = "{before}"', 'version = "9.0.0"'))
    verify_as(sparse, SERVICE, "9.0.0")
    assert f"{SERVICE} 9.0.0 is deployed" in make(sparse, deployer, "deploy", **account)
    assert f"{SERVICE} {before} is deployed" in make(sparse, deployer, "rollback", **account)
    make(sparse, deployer, "bill", **account)


@pytest.mark.parametrize("service", sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml")))
def test_the_tests_of_a_service_need_no_other_service(service: str) -> None:
    """A sparse checkout has none. Command and harness are wheels; the harness has the other services' stacks."""
    services = {path.parent.name.replace("-", "_") for path in REPOSITORY.glob("services/*/pyproject.toml")}
    others = {f"prismline_{name}" for name in services - {service.replace("-", "_")}} | {"tests"}
    for path in (REPOSITORY / "services" / service / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert {module.partition(".")[0] for module in modules} & others == set(), path


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
