"""The workflows of continuous integration are valid, and test each service when its image would change."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prismline_deploy.dockerfiles import copied
from prismline_localstack.settings import REPOSITORY
from tests.releases.changed import affected, built_from

WORKFLOWS = REPOSITORY / ".github" / "workflows"
SERVICES = sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml"))


def workflow(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    return document


def judged(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Validate files with the schema of workflows. Return its output."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, paths)]
    return subprocess.run(check, capture_output=True, text=True, check=False)


def test_every_workflow_is_valid_by_its_schema(tmp_path: Path) -> None:
    done = judged(*WORKFLOWS.glob("*.yml"))
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text((WORKFLOWS / "repository.yml").read_text().replace("runs-on", "runs_on"))
    assert judged(broken).returncode == 1


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_tested_when_what_its_image_holds_changes(service: str) -> None:
    dockerfile = REPOSITORY / "services" / service / "Dockerfile"
    folders = {str(Path(source).parent) for source in copied(dockerfile)}
    folders |= set(re.findall(r"^COPY (libs/\w+) /\w+/$", dockerfile.read_text(), re.MULTILINE))
    assert built_from(REPOSITORY, service) == folders
    for folder in folders:
        assert service in affected(REPOSITORY, [f"{folder}/src/x.py"])
    assert affected(REPOSITORY, [f"services/{service}/README.md", "docs/api.md"]) == [service]


def test_what_all_services_share_tests_all_of_them() -> None:
    assert affected(REPOSITORY, ["services/service.mk"]) == SERVICES
    assert affected(REPOSITORY, ["cli/pyproject.toml", "services/README.md"]) == []


def test_the_workflow_finds_what_a_branch_changed(tmp_path: Path) -> None:
    """It compares with the commit at which the branch left the main branch, not with what others pushed later."""

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    def commit(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", path)

    def found(since: str) -> Any:
        command = [sys.executable, "-m", "tests.releases.changed", "--root", str(tmp_path), "--since", since]
        return json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout)

    git("init", "-q", "-b", "main")
    for service in ("one", "two"):
        commit(f"services/{service}/pyproject.toml", "")
        commit(f"services/{service}/Dockerfile", f"COPY contracts/src services/{service}/src /app/\n")
    git("checkout", "-q", "-b", "branch")
    commit("services/one/src/x.py", "")
    git("checkout", "-q", "main")
    commit("contracts/src/x.py", "")
    git("checkout", "-q", "branch")
    assert found("main") == ["one"]
    assert found("0" * 40) == ["one", "two"], "git does not know the commit"


def test_every_service_runs_its_targets_in_a_sparse_checkout() -> None:
    job = workflow("services")["jobs"]["service"]
    assert job["strategy"]["matrix"]["service"] == "${{ fromJSON(needs.changed.outputs.services) }}"
    (checkout,) = [step["with"] for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["sparse-checkout"].split() == ["services/${{", "matrix.service", "}}", "contracts", "libs"]
    commands = " ".join(step.get("run", "") for step in job["steps"])
    for target in ("install", "lint", "test", "image", "bill"):
        assert re.search(rf"\b{target}\b", commands), target
