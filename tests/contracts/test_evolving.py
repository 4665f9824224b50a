"""The steps of docs/how-to/change-a-contract.md in a copy: a field, a version, its end, a release."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from prismline_contracts_tool.registry import read_registry
from tests.contracts.__main__ import steps
from tests.contracts.versions import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/how-to/change-a-contract.md").read_text()


def next_minor() -> str:
    """The minor version after the last release."""
    major, minor, _ = (ROOT / "contracts/released/VERSION").read_text().strip().split(".")
    return f"{major}.{int(minor) + 1}.0"


#: The version that the steps release; the page has an example version.
NEXT = next_minor()
RELEASE = ".venv/bin/prismline-contracts release 1.2.0"
#: What this test runs for a command of the page: the command itself, or the first step of the make target. The other
#: steps of a target are tests.
RUNS = {
    "make contracts": ["check"],
    "make schemas": ["schemas"],
    RELEASE: ["release", NEXT],
    ".venv/bin/prismline-contracts can-i-deploy worker 1.1.0 --to prod": [
        "can-i-deploy",
        "worker",
        "1.1.0",
        "--to",
        "prod",
    ],
}
COMMAND = Path(sys.executable).with_name("prismline-contracts")


@dataclass
class Checkout:
    """A copy of a checkout's folder `contracts`, whose code the commands run."""

    root: Path

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page."""
        return self._command(*RUNS[command])

    def make_schemas(self) -> None:
        """`make schemas`."""
        done = self.run("make schemas")
        assert done.returncode == 0, done.stderr

    def pages(self) -> Path:
        """The folder of the generated pages, written anew."""
        folder = self.root / "pages"
        shutil.rmtree(folder, ignore_errors=True)
        done = self._command("pages", str(folder))
        assert done.returncode == 0, done.stderr
        return folder

    def begin_version(self) -> None:
        """Give the package its next version, and begin its section in the changelog."""
        project, changelog = self.root / "contracts/pyproject.toml", self.root / "contracts/CHANGELOG.md"
        project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{NEXT}"', project.read_text()))
        changelog.write_text(f"# Changelog\n\n## {NEXT}\n\nA walk.\n")

    def edit(self, module: str, before: str, after: str) -> None:
        """Edit a model."""
        path = self.root / "contracts/src/prismline_contracts" / module
        code = path.read_text()
        assert code.count(before) == 1
        path.write_text(code.replace(before, after))

    def entry(self, name: str) -> Path:
        """The folder of a contract."""
        return self.root / "contracts/registry" / name

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root / "contracts/src")},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    ignored = shutil.ignore_patterns("tests", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "contracts", tmp_path / "contracts", ignore=ignored)
    return Checkout(tmp_path)


FIELD = '    TYPE: ClassVar[str] = "prismline.chunk.failed.v1"\n\n    survey: Survey | None = None\n'


def test_adding_a_field(checkout: Checkout) -> None:
    checkout.begin_version()
    checkout.edit("events.py", FIELD, FIELD + "    #: Who is to blame.\n    culprit: Name\n")
    checkout.make_schemas()
    done = checkout.run("make contracts")
    assert done.returncode == 1
    assert "chunk.failed.v1 $.culprit: the reader needs it and the writer does not write it" in done.stderr
    checkout.edit("events.py", "    culprit: Name\n", "    culprit: Name | None = None\n")
    checkout.make_schemas()
    done = checkout.run("make contracts")
    assert done.returncode == 1
    assert "chunk.failed.v1 $.culprit: the reader ignores it, and `[ignorable]`" in done.stderr
    with (checkout.entry("chunk.failed.v1") / "contract.toml").open("a") as entry:
        entry.write('\n[ignorable]\nculprit = "It blames nobody."\n')
    assert checkout.run("make contracts").returncode == 0
    assert "culprit" in json.loads((checkout.entry("chunk.failed.v1") / "schema.json").read_text())["properties"]
    assert "Who is to blame." in (checkout.pages() / "catalogue/chunk.failed.v1.html").read_text()


V2 = '''class ChunkFailedV2(MessageData):
    """A chunk is FAILED. `reason` says why, and `code` names the kind of error."""

    TYPE: ClassVar[str] = "prismline.chunk.failed.v2"

    chunk_id: ChunkId
    reason: str
    code: Name


'''


def test_adding_a_major_version_and_retiring_the_one_before(checkout: Checkout) -> None:
    checkout.begin_version()
    checkout.edit("events.py", "class ExportRequested(MessageData):\n", V2 + "class ExportRequested(MessageData):\n")
    checkout.edit(
        "events.py",
        "    ChunkFailed,\n    ExportRequested,\n",
        "    ChunkFailed,\n    ChunkFailedV2,\n    ExportRequested,\n",
    )
    v1, v2 = checkout.entry("chunk.failed.v1"), checkout.entry("chunk.failed.v2")
    v2.mkdir()
    (v2 / "contract.toml").write_text(
        (v1 / "contract.toml").read_text().replace('"1.0.0" = "The first release."', '"next" = "New."')
    )
    example = json.loads((v1 / "example.json").read_text())
    data = {"run_id": "r", "chunk_id": example["data"]["chunk_id"], "reason": "It is empty.", "code": "empty"}
    (v2 / "example.json").write_text(json.dumps(example | {"type": "prismline.chunk.failed.v2", "data": data}))
    checkout.make_schemas()
    assert checkout.run("make contracts").returncode == 0
    pages = checkout.pages()
    for name in ("chunk.failed.v1", "chunk.failed.v2"):
        assert (pages / f"catalogue/{name}.html").exists()
    channels = json.loads((pages / "asyncapi.json").read_text())["channels"]
    assert {"chunk.failed.v1", "chunk.failed.v2"} <= channels["bus"]["messages"].keys()
    assert checkout.run(RELEASE).returncode == 0
    assert read_registry(checkout.root / "contracts/registry")["chunk.failed.v2"].history == {NEXT: "New."}

    checkout.edit("events.py", "    ChunkFailed,\n    ChunkFailedV2,\n", "    ChunkFailedV2,\n")
    done = checkout.run("make contracts")
    assert done.returncode == 1
    assert "chunk.failed.v1 $: the contract is gone. This breaks people" in done.stderr
    shutil.rmtree(v1)
    (checkout.root / "contracts/released/chunk.failed.v1.json").unlink()
    assert checkout.run("make contracts").returncode == 0
    assert not (checkout.pages() / "catalogue/chunk.failed.v1.html").exists()


def test_asking_about_a_deployment(checkout: Checkout) -> None:
    ask = ".venv/bin/prismline-contracts can-i-deploy worker 1.1.0 --to prod"
    assert checkout.run(ask).returncode == 2
    (record,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (checkout.root / "contracts/deployed").mkdir()
    (checkout.root / "contracts/deployed/prod.json").write_text(record)
    done = checkout.run(ask)
    assert done.returncode == 0, done.stderr
    assert "worker 1.1.0 works with what is in prod: splitter 1.0.0, status 1.2.0." in done.stdout


def test_a_command_runs_what_its_target_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"$(BIN)/prismline-contracts {' '.join(RUNS['make schemas'])}\n" in makefile
    assert "$(BIN)/python -m tests.contracts\n" in makefile
    assert steps()[0].commands == [[str(COMMAND), *RUNS["make contracts"]]]
    assert all("can-i-deploy" in command for command in steps()[-1].commands)
