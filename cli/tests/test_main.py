"""The `prismline` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
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
        while True:  # Python does not see a signal that arrives just before it begins to sleep
            time.sleep(0.1)

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

for name in ("signal", "typing"):  # they may have been imported for the `-c` of this program
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Interrupt())
from prismline_cli.main import main
sys.argv[1:] = ["runs"]
main()
"""
#: The same ctrl-C, while a library catches every exception.
SWALLOWED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "{module}":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(100_000): pass
            except BaseException:
                pass

sys.meta_path.insert(0, Interrupt())
from prismline_cli.main import main
sys.argv[1:] = ["runs", "--help"]
main()
"""
#: Somebody presses ctrl-C while the process of a command that has ended exits.
EXITING = """
import atexit, os, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from prismline_cli.main import main
sys.argv[1:] = ["runs", "--help"]
main()
"""
#: The script that the installation makes.
PRISMLINE = Path(sys.executable).with_name("prismline")


def test_on_sigterm_a_command_deletes_its_temporary_files() -> None:
    command = [sys.executable, "-c", COMMAND, "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        process.terminate()
        assert process.wait(20) == ExitCode.TERMINATED
    assert not folder.exists()


@pytest.mark.parametrize("module", ["signal", "typer", "prismline_cli.commands.runs", "httpx"])
def test_ctrl_c_during_the_imports_ends_the_command_without_a_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == ExitCode.INTERRUPTED
    assert done.stderr == "Interrupted.\n"


@pytest.mark.parametrize("module", ["typer", "prismline_cli.commands.runs", "httpx"])
def test_ctrl_c_ends_the_command_while_a_library_that_it_imports_catches_every_exception(module: str) -> None:
    command = [sys.executable, "-c", SWALLOWED.format(module=module)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "Interrupted.\n")


def test_ctrl_c_while_the_process_exits_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", EXITING], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "Interrupted.\n")


def test_the_command_prints_its_version() -> None:
    done = subprocess.run([PRISMLINE, "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, f"prismline {version('prismline-cli')}\n")


def test_the_completion_that_the_command_installs_completes_commands(tmp_path: Path) -> None:
    there = {**os.environ, "HOME": str(tmp_path)}
    script = f"{PRISMLINE} --install-completion; . {tmp_path}/.bashrc; complete -p prismline"

    installed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=there)

    assert "bash completion installed" in installed.stdout
    assert installed.stdout.splitlines()[-1].startswith("complete ")
    typed = there | {"_PRISMLINE_COMPLETE": "complete_bash", "COMP_WORDS": "prismline can", "COMP_CWORD": "1"}
    completed = subprocess.run([PRISMLINE], capture_output=True, text=True, check=True, env=typed)
    assert completed.stdout.split() == ["cancel"]


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
    assert not imported & {"aws_lambda_powertools", "prismline_contracts.events"}
