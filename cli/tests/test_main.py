"""The `prismline` command as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from prismline_cli.commands import COMMANDS, register
from prismline_cli.output import ExitCode

#: Adds a command that makes a temporary folder, prints its name and waits.
COMMAND = """
import tempfile, time
from prismline_cli import command_line
from prismline_cli.main import main
from prismline_cli.whole import app

@app.command()
def wait():
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        time.sleep(60)

command_line.application = lambda _: app
main()
"""
#: Somebody presses ctrl-C while the command imports the module {module}.
INTERRUPTED = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from prismline_cli.main import main
sys.argv[1:] = ["runs"]
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


@pytest.mark.parametrize("module", ["typer", "prismline_cli.commands.runs", "boto3"])
def test_ctrl_c_during_the_imports_ends_the_command_without_a_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == ExitCode.INTERRUPTED
    assert done.stderr == "Interrupted.\n"


@pytest.mark.parametrize("command", [word for words in COMMANDS.values() for word in words])
def test_each_command_is_found_in_its_own_module(command: str) -> None:
    app = typer.Typer()

    register(app, command)

    (added,) = [words for words in COMMANDS.values() if command in words]
    assert set(added) == set(typer.main.get_group(app).commands)


def test_a_command_does_not_import_the_other_groups() -> None:
    """The import of all groups takes longer than a short command."""
    program = "import sys; from prismline_cli.command_line import application; application('runs'); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert "prismline_cli.commands.runs" in imported
    assert not imported & {"prismline_cli.commands.jobs", "prismline_cli.printed", "prismline_localstack"}
    assert "aws_lambda_powertools" not in imported
