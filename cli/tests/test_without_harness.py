"""On a machine without the emulation harness the command works, and has no commands that start one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Runs the command as if the harness's distribution were not installed: without its entry points and package.
WITHOUT_HARNESS = """
import importlib.metadata, sys
importlib.metadata.entry_points = lambda **_: []
sys.modules["prismline_localstack"] = None
from prismline_cli.main import main
main()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_HARNESS, *arguments],
        env=environment | {"COLUMNS": "100"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_that_read_are_present_and_those_of_the_harness_are_absent(tmp_path: Path) -> None:
    shown = run(tmp_path, "--help").stdout
    assert {"submit", "runs", "deadletters"} <= set(shown.split())
    assert not {"up", "down", "demo-faults", "gpu"} & set(shown.split())


def test_without_an_address_and_a_key_it_says_so(tmp_path: Path) -> None:
    result = run(tmp_path, "runs")
    assert (result.returncode, result.stdout) == (3, "")
    assert "set PRISMLINE_API_URL and PRISMLINE_API_KEY" in " ".join(result.stderr.split())
