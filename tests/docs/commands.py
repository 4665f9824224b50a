"""Reads the commands of a page as a reader would type them, and runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from prismline_localstack.settings import REPOSITORY

BLOCK = re.compile(r"^( *)```sh\n(?P<lines>.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: A step of a workflow, in a block of YAML.
STEP = re.compile(r"^ *- run: (.+)$", re.MULTILINE)
#: A command in a sentence.
INLINE = re.compile(r"`((?:\.venv/bin/\S+|prismline|make|aws|git|python3\.11|pip|docker) [^`]+)`")
#: Longest time, seconds, that commands may take. The removal of all stacks takes 15 on a quiet machine.
SHELL_SECONDS = 280.0
#: The end of a line whose command continues on the next line.
GOES_ON = re.compile(r"(?:\\|(?<=\|))\n *")


def commands(page: Path, heading: str | None = None) -> list[str]:
    """The commands of the page's shell blocks in order, one line each; with `heading`, only those of its section."""
    blocks = (block["lines"] for block in BLOCK.finditer(_text(page, heading)))
    return [line.strip() for block in blocks for line in _joined(block).splitlines() if line.strip()]


def all_commands(page: Path) -> set[str]:
    """All commands of the page, including those in workflows and in sentences."""
    prose = BLOCK.sub("", page.read_text())
    inline = {" ".join(command.split()) for command in INLINE.findall(prose)}
    return {*commands(page), *STEP.findall(prose), *inline}


def steps(page: Path, heading: str) -> list[str]:
    """The commands of the workflows in a section."""
    return STEP.findall(_text(page, heading))


def shell(*lines: str, **variables: str) -> str:
    """Run commands of a page in one shell, in the repository and with its tools. Return what they printed."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join(lines)],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": tools} | variables,
        capture_output=True,
        text=True,
        timeout=SHELL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{lines} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def _text(page: Path, heading: str | None) -> str:
    text = page.read_text()
    return text if heading is None else text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def _joined(block: str) -> str:
    return GOES_ON.sub(lambda found: "" if found[0].startswith("\\") else " ", block)
