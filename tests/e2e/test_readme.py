"""The commands of README.md print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cubes import write_cube
from tests.environments import without_a_system

REPOSITORY = Path(__file__).parents[2]
SESSION = re.findall(r"^```console\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
#: Each command with the lines that it prints.
STEPS = [tuple(step.split("\n", 1)) for text in SESSION for step in text.removeprefix("$ ").split("\n$ ")]
#: The beginning of the id of the run on the page.
PRINTED = re.findall(r"Submitted run ((\w{4})[\w-]+)\.", "".join(SESSION))[0][1]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def shape(text: str) -> list[str]:
    """The lines of `text` without what differs between two runs: ids and numbers."""
    lines = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text).splitlines()
    return [re.sub(r"[0-9.]+", "N", line.strip()) for line in lines if line.strip() not in ("", "...")]


def test_the_first_step_installs_the_command() -> None:
    assert STEPS[0][0] == "make install && . .venv/bin/activate"


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    kept = without_a_system()
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "PATH": path, "PRISMLINE_HOME": str(tmp_path / "home"), "COLUMNS": "120"}
    write_cube(tmp_path / "cube.fits")
    run = PRINTED
    try:
        for command, shown in STEPS[1:]:
            done = subprocess.run(
                ["bash", "-c", command.replace(PRINTED, run)],
                cwd=tmp_path,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            assert [line for line in shape(shown) if line not in shape(done.stdout)] == [], done.stdout
            if submitted := re.search(r"Submitted run (\S+)\.", done.stdout):
                run = submitted[1]
    finally:
        subprocess.run(["prismline", "down"], cwd=tmp_path, env=environment, capture_output=True, check=False)
