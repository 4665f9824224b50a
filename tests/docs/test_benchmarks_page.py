"""The page of benchmarks has a row for each script, and each script can be started."""

from __future__ import annotations

import re
import subprocess
import sys

from prismline_localstack.settings import REPOSITORY

FOLDER = REPOSITORY / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
#: Tools that measure no part of the system: the overview names them below its table.
TOOLS = {"size", "starts"}


def test_every_script_has_a_page_and_a_row() -> None:
    overview = (FOLDER / "README.md").read_text()
    rows = set(re.findall(r"^\| \[`(\w+)\.py`\]\(\1\.md\) \|", overview, re.MULTILINE))
    assert rows == set(SCRIPTS) - TOOLS
    assert {path.stem for path in FOLDER.glob("*.md")} - {"README"} == rows
    assert all(f"`{name}.py`" in overview for name in TOOLS)


def test_every_script_finds_what_it_imports() -> None:
    program = f"import {', '.join(SCRIPTS)}"
    done = subprocess.run([sys.executable, "-c", program], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
