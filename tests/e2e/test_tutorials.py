"""Every command of a tutorial works, in the order of the page, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.environments import without_a_system

REPOSITORY = Path(__file__).parents[2]
TUTORIALS = sorted((REPOSITORY / "docs/tutorials").glob("*.md"))
#: A block of commands, with the exit code of the last one if it is not 0.
BLOCK = re.compile(r"^<!-- run(?:: (?P<code>\d+))? -->\n```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
#: Longest time in seconds that a tutorial may take.
PATIENCE = 240

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(PATIENCE + 30)]


def script(page: str) -> str:
    """The page's commands as one script. It stops at the first command whose exit code is not the page's."""
    lines = ["set -u"]
    for block in BLOCK.finditer(page):
        expected, commands = int(block["code"] or 0), block["commands"]
        lines += ["set -e", commands] if expected == 0 else ["set +e", commands, f"[ $? = {expected} ] || exit 97"]
    return "\n".join(lines)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_works(page: Path, tmp_path: Path) -> None:
    kept = without_a_system()
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "PATH": path, "PRISMLINE_HOME": str(tmp_path / "home"), "COLUMNS": "120"}
    shell = subprocess.Popen(
        ["bash", "-x", "-c", script(page.read_text())],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):  # what the page started in the background
            os.killpg(shell.pid, signal.SIGKILL)
        subprocess.run(["prismline", "down"], cwd=tmp_path, env=environment, check=False)
    print(printed)
    assert shell.returncode == 0, printed[-3000:]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_only_the_activation_is_left_out(page: Path) -> None:
    """If another block were not run, nobody would notice that its commands have stopped working."""
    blocks = re.findall(r"(?:^<!-- run.*-->\n)?^```sh\n.*?^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    left_out = [block for block in blocks if not block.startswith("<!-- run")]
    assert left_out == ["```sh\n. .venv/bin/activate\n```"]
