"""The code, the test and the commands of docs/how-to/add-a-workload.md work exactly as on the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.system import CHUNK_SERVICES, System

PAGE = (REPOSITORY / "docs/how-to/add-a-workload.md").read_text()
#: Environment in which processes import a checkout's packages instead of the installed ones.
SOURCES = [f"services/{service}/src" for service in ("splitter", "worker")]


def files() -> dict[str, str]:
    """The files that the reader of the page writes, by path."""
    return dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, flags=re.DOTALL))


def commands(name: str) -> list[str]:
    """The `prismline` commands of one of the page's shell blocks, without comments."""
    [block] = re.findall(rf"<!-- run: {name} -->\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    return [line.split("#")[0].strip() for line in block.splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the folders that the page adds files to, with these files; other folders are links to this checkout."""
    root = tmp_path / "checkout"
    # The copy includes compiled modules and keeps file times, so processes need not compile again.
    shutil.copytree(REPOSITORY / "services", root / "services", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "platform", "contracts", "libs", "cli", "deploy", "localstack"):
        (root / name).symlink_to(REPOSITORY / name)
    (root / "tests").mkdir()
    for name in ("__init__.py", "workload_kit.py"):
        shutil.copy(REPOSITORY / "tests" / name, root / "tests")
    for name, text in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(checkout: Path, *arguments: str) -> str:
    path = os.pathsep.join([*(str(checkout / source) for source in SOURCES), str(checkout)])
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": path, "MYPYPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_pages_code_is_as_clean_as_ours_and_its_test_passes(checkout: Path) -> None:
    written = [name for name in files() if name.endswith(".py")]
    assert len(written) == 3, "the splitter's file, the worker's, and their test"
    run(checkout, "ruff", "check", *written)
    run(checkout, "ruff", "format", "--check", *written)
    assert "2 passed" in run(
        checkout,
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=--import-mode=importlib",
        "tests/test_words.py",
    )


@pytest.mark.e2e
def test_the_pages_workload_runs_and_its_outputs_are_fetched(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    folder = tmp_path_factory.mktemp("words")
    with System.running(folder, monkeypatch, services=CHUNK_SERVICES, root=checkout) as system:
        submit, runs = commands("submit")
        shown = system.cli(*submit.split()[1:], "--json")
        view = json.loads(shown)
        run_id = view["run_id"]
        assert (view["status"], view["chunks_completed"], view["survey"]) == ("completed", 2, "poems")
        assert run_id in system.cli(*runs.split()[1:])
        [results] = commands("results")
        system.cli(*results.replace("ID", run_id).split()[1:])
        counted = {path.name: json.loads(path.read_text()) for path in (checkout / "counts/results" / run_id).iterdir()}
        assert counted == {
            "chunk-0000000.json": {"a": 1, "is": 1, "rose": 2, "the": 1},
            "chunk-0000002.json": {"a": 1, "is": 1, "rose": 1},
        }
        assert "The workload words has no picture" in system.cli("plot", run_id, expect=2, stream="stderr")
