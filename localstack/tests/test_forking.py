"""A forked process is like one that was started alone: its own environment, log, folder, exit code and end."""

import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline_localstack.forking import Forked, Forker
from prismline_localstack.processes import ProcessId
from prismline_localstack.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

SECONDS = 30.0


@pytest.fixture
def forker(tmp_path: Path) -> Iterator[Forker]:
    started = Forker(dict(os.environ), tmp_path / "forker.log")
    yield started
    started.stop()


def start(forker: Forker, folder: Path, body: str, **environment: str) -> Forked:
    """Run the runtime with a handler whose module is `body`, in `folder`, with the log `folder/log`."""
    folder.mkdir(exist_ok=True)
    (folder / "probe.py").write_text(textwrap.dedent(body))
    child = forker.spawn(
        [sys.executable, "-m", "prismline_runtime", "--queue", "chunks", "probe:handler"],
        environment={"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(folder), **environment},
        log=folder / "log",
        folder=folder,
    )
    assert isinstance(child, Forked)
    return child


def test_it_has_its_own_environment_folder_log_and_exit_code(forker: Forker, tmp_path: Path) -> None:
    body = """
        import os, sys
        print(os.getcwd(), dict(os.environ).get("NAME"), os.environ.get("HOME"), sys.argv[1:3])
        print("to the log", file=sys.stderr)
        sys.exit(len(os.environ["NAME"]))
    """

    first, second = (start(forker, tmp_path / name, body, NAME=name) for name in ("one", "three"))

    assert (first.wait(SECONDS), second.wait(SECONDS)) == (3, 5)
    for name in ("one", "three"):
        folder = tmp_path / name
        assert (folder / "log").read_text() == f"{folder} {name} None ['--queue', 'chunks']\nto the log\n"


def test_it_is_killed_alone(forker: Forker, tmp_path: Path) -> None:
    first, second = (start(forker, tmp_path / name, "import time; time.sleep(600)") for name in ("one", "two"))

    first.kill()

    assert first.wait(SECONDS) == -signal.SIGKILL
    assert second.poll() is None
    second.kill()
    assert second.wait(SECONDS) == -signal.SIGKILL


def test_an_inherited_file_keeps_its_number(forker: Forker, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    (tmp_path / "probe.py").write_text(f"import os, sys\nos.write({writer}, b'here')\nsys.exit()\n")

    child = forker.spawn(
        [sys.executable, "-m", "prismline_runtime", "--queue", "chunks", "probe:handler"],
        environment={"PYTHONPATH": str(tmp_path)},
        log=tmp_path / "log",
        folder=tmp_path,
        pass_fds=[writer],
    )

    assert child.wait(SECONDS) == 0
    assert os.read(reader, 10) == b"here"


def test_all_end_with_the_process_that_forks_and_start_without_it(forker: Forker, tmp_path: Path) -> None:
    child = start(forker, tmp_path, "import time; time.sleep(600)")
    parent = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1])
    process = ProcessId.of(child.pid)

    os.kill(parent, signal.SIGKILL)

    assert wait_until(lambda: not process.alive, SECONDS)
    assert wait_until(lambda: child.poll() == -signal.SIGKILL, SECONDS)
    (tmp_path / "probe.py").write_text("import sys\nsys.exit(4)\n")
    again = forker.spawn(
        [sys.executable, "-m", "prismline_runtime", "--queue", "chunks", "probe:handler"],
        environment=dict(os.environ) | {"PYTHONPATH": str(tmp_path)},
        log=tmp_path / "log",
        folder=tmp_path,
    )
    assert again.wait(SECONDS) == 4


def test_other_programs_are_started_as_usual(forker: Forker, tmp_path: Path) -> None:
    child = forker.spawn(["/bin/true"], environment={}, log=tmp_path / "log", folder=tmp_path)

    assert not isinstance(child, Forked)
    assert child.wait(SECONDS) == 0
