"""A package of a stranger that has the name of one of ours, and a higher version, is never installed in its place."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY

#: Pages with commands that install our packages.
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("*/README.md")])


def wheel(folder: Path, name: str, version: str, *needed: str) -> None:
    """Make a wheel of a package with one empty module."""
    folder.mkdir(parents=True, exist_ok=True)
    package = name.replace("-", "_")
    stated = [f"Name: {name}", f"Version: {version}", "Provides-Extra: bill", *(f"Requires-Dist: {n}" for n in needed)]
    files = {
        f"{package}.py": "",
        f"{package}-{version}.dist-info/METADATA": "\n".join(["Metadata-Version: 2.1", *stated, ""]),
        f"{package}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{package}-{version}.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """An index with two packages of others, and a stranger's package with our name."""
    simple = tmp_path / "simple"
    wheel(simple / "third", "third", "1.0")
    wheel(simple / "fourth", "fourth", "1.0")
    wheel(simple / "prismline-contracts", "prismline-contracts", "99.0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ours(index: str, tmp_path: Path) -> Path:
    """The wheels of the deploy tool and of the contracts that it needs, with the lock of the packages of others."""
    folder = tmp_path / "dist"
    wheel(folder, "prismline-contracts", "1.2.0", "third>=1")
    wheel(folder, "prismline-deploy", "1.0.0", "prismline-contracts>=1.2", 'fourth>=1; extra == "bill"')
    locked = [(name, next((tmp_path / "simple" / name).glob("*.whl"))) for name in ("third", "fourth")]
    (folder / "deploy.txt").write_text(
        "".join(f"{name}==1.0 --hash=sha256:{sha256(path.read_bytes()).hexdigest()}\n" for name, path in locked)
    )
    return folder


def installed(environment: Path) -> dict[str, str]:
    """The installed packages and their versions."""
    program = "from importlib.metadata import distributions as d; print(*(f'{x.name}={x.version}' for x in d()))"
    printed = subprocess.run(
        [environment / "bin" / "python", "-c", program], capture_output=True, text=True, check=True
    ).stdout
    return dict(each.split("=") for each in printed.split())


def install_deploy(index: str, ours: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    """Run `make install-deploy` of a service with an index and a folder of wheels."""
    venv.create(environment, with_pip=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    settings = kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_NO_CACHE_DIR": "1"}
    command = ["make", "-C", str(REPOSITORY / "services/exporter"), "install-deploy"]
    variables = [f"VENV={environment}", f"WHEELS={ours}"]
    return subprocess.run([*command, *variables], env=settings, capture_output=True, text=True, check=False)


def test_ours_is_installed_although_the_index_has_a_higher_version(index: str, ours: Path, tmp_path: Path) -> None:
    done = install_deploy(index, ours, tmp_path / "venv")
    assert done.returncode == 0, done.stderr
    found = installed(tmp_path / "venv")
    assert found["prismline-contracts"] == "1.2.0"
    assert (found["prismline-deploy"], found["third"], found["fourth"]) == ("1.0.0", "1.0", "1.0")


def test_a_missing_wheel_of_ours_is_not_taken_from_the_index(index: str, ours: Path, tmp_path: Path) -> None:
    (ours / "prismline_contracts-1.2.0-py3-none-any.whl").unlink()
    done = install_deploy(index, ours, tmp_path / "venv")
    assert done.returncode != 0
    assert "No matching distribution found for prismline-contracts" in done.stderr


def test_a_file_of_an_index_that_the_lock_does_not_name_is_refused(index: str, ours: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "simple" / "third", "third", "1.0", "prismline-contracts")
    done = install_deploy(index, ours, tmp_path / "venv")
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_the_commands_of_a_page_install_ours_without_an_index(page: Path) -> None:
    text = re.sub(r"\s+", " ", page.read_text())
    for command in re.findall(r"pip install [^`]*?prismline[\w-]*", text):
        if "--find-links" in command:
            assert "--no-index" in command, command


def test_an_image_installs_ours_without_an_index() -> None:
    """Dockerfiles copy our sources; only the kernel is installed, with locked build tools."""
    dockerfile = (REPOSITORY / "services/worker/Dockerfile").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"pip install ([^&\n]*) /gaussline\n", dockerfile)
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(command.split())
    built_with = tomllib.loads((REPOSITORY / "libs/gaussline/pyproject.toml").read_text())["build-system"]["requires"]
    locked = (REPOSITORY / "libs/gaussline/build.txt").read_text()
    assert re.findall(r"^(\S+==\S+) ", locked, re.MULTILINE) == built_with
