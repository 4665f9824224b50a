"""The demonstration that keeps serving the console."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from prismline_localstack import harness
from tests.cubes import write_cube
from tests.environments import without_a_system

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_kept_demonstration_serves_its_run_until_it_is_interrupted(tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "cube.fits", ny=6, nx=8)
    demo = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("prismline")),
            *("demo", "--keep", "--cube", str(cube), "--to", str(tmp_path / "output")),
        ],
        env=without_a_system() | {"PRISMLINE_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,  # noqa: PLW1509  it takes no lock
    )
    try:
        assert demo.stdout is not None
        output = ""
        for line in demo.stdout:
            output += line
            if "Ctrl-C" in line:
                break
        address = re.search(r"http://127\.0\.0\.1:\d+/console/runs/[0-9a-f-]+", output)
        assert address, output
        page = httpx.get(address[0])
        assert page.status_code == 200
        assert "<title>" in page.text
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=120) == 0
        assert not harness.is_up(tmp_path / "home")
    finally:
        demo.kill()
        harness.down(tmp_path / "home")


def hear_interrupts() -> None:
    """Handle SIGINT again: a shell makes background processes ignore it, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
