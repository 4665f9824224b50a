"""The workflows of continuous integration are valid, and each service has one that runs when its image would change."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prismline_localstack.functions.images import copied
from prismline_localstack.settings import REPOSITORY

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
    document = workflow(service)
    (job,) = document["jobs"].values()
    assert job == {"uses": "./.github/workflows/service.yml", "with": {"service": service}}
    dockerfile = REPOSITORY / "services" / service / "Dockerfile"
    folders = {str(Path(source).parent) for source in copied(dockerfile)}
    folders |= set(re.findall(r"^COPY (libs/\w+) /\w+/$", dockerfile.read_text(), re.MULTILINE))
    shared = {"services/service.mk", ".github/workflows/service.yml", f".github/workflows/{service}.yml"}
    events = document[True]  # YAML 1.1 reads the key `on` as True
    for event in ("push", "pull_request"):
        assert set(events[event]["paths"]) == {f"{folder}/**" for folder in folders} | shared


def test_every_service_runs_its_targets_in_a_sparse_checkout() -> None:
    steps = workflow("service")["jobs"]["service"]["steps"]
    (checkout,) = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    assert checkout["sparse-checkout"].split() == ["services/${{", "inputs.service", "}}", "contracts", "libs"]
    commands = " ".join(step.get("run", "") for step in steps)
    for target in ("install", "lint", "test", "image", "bill"):
        assert re.search(rf"\b{target}\b", commands), target
