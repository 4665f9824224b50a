"""The `prismline` command as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prismline_cli.output import ExitCode

#: Adds a command that makes a temporary folder, prints its name and waits.
COMMAND = """
import tempfile, time
from prismline_cli.main import app, main

@app.command()
def wait():
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        time.sleep(60)

main()
"""


def test_on_sigterm_a_command_deletes_its_temporary_files() -> None:
    command = [sys.executable, "-c", COMMAND, "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        process.terminate()
        assert process.wait(20) == ExitCode.TERMINATED
    assert not folder.exists()
