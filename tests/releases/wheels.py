"""Wheels of a checkout, and virtual environments outside of it that contain them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from prismline_localstack.emulator import OWN_ENVIRONMENT, emulator_python
from prismline_localstack.settings import REPOSITORY
from tests.environments import without_a_system

#: Folders that the wheels are built from.
SOURCES = (
    "LICENSE",
    "Makefile",
    ".dockerignore",
    "contracts",
    "libs",
    "services",
    "cli",
    "deploy",
    "localstack",
    "tools",
    "platform",
    "requirements",
)
#: Makes the folder with a name, unless it exists, and returns it.
MadeOnce = Callable[[str, Callable[[Path], object]], Path]
GENERATED = shutil.ignore_patterns("build", "dist", "tests", "__pycache__", "*.egg-info", "*.so")


def copy_of_sources(folder: Path) -> Path:
    """A copy of the sources of the wheels. The build writes into the folders of packages, which other tests read."""
    folder.mkdir()
    for name in SOURCES:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=GENERATED)
        else:
            shutil.copy(path, folder / name)
    return folder


def build(checkout: Path, *packages: str) -> Path:
    """Build the wheels of a checkout, or of these packages, with the tools of this environment. Return their folder."""
    some = [f"PACKAGES={' '.join(packages)}"] if packages else []
    run(["make", "wheels", f"VENV={sys.prefix}", *some], checkout)
    return checkout / "dist"


def third_party_of(*requirements: str) -> set[str]:
    """The names of the third-party packages that packages of ours need, and those that these need."""
    found: dict[str, set[str]] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        if new := {"", *needed.extras} - found.setdefault(name, set()):
            found[name] |= new
            stated = map(Requirement, metadata.requires(name) or [])
            waiting += [
                each
                for each in stated
                if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in new)
            ]
    return {name for name in found if not name.startswith("prismline")}


def environment_without_ours(folder: Path, only: Collection[str] | None = None) -> Path:
    """A virtual environment with the third-party packages of this one, without our packages. Return its folder of
    commands.

    only: the names of the packages to link, and of no others. pip is always linked.

    An installation must not replace a third-party package, because they are links.
    """
    venv.create(folder, with_pip=False)
    third_party = folder / "third-party"
    third_party.mkdir()
    ours = Path(sysconfig.get_path("purelib"))
    wanted = None if only is None else {part for name in (*only, "pip") for part in _parts(name)}
    for path in ours.iterdir():
        if not _is_ours(path) and (wanted is None or path.name in wanted):
            (third_party / path.name).symlink_to(path)
    (folder / "bin" / "ruff").symlink_to(Path(sys.prefix) / "bin" / "ruff")  # `python -m ruff` runs this program
    (packages_of(folder) / "third-party.pth").write_text(f"{third_party}\n")
    return folder / "bin"


def _parts(name: str) -> set[str]:
    """The files and folders of an installed package, directly below the folder of packages."""
    return {path.parts[0] for path in metadata.files(name) or []} - {".."}


def environment_of(wheels: Path, names: Sequence[str], folder: Path, only: Collection[str] | None = None) -> Path:
    """A virtual environment with these packages of ours and their dependencies. Return its folder of commands.

    pip resolves our packages only from `wheels`. Third-party packages are those of this environment, or `only` some.
    """
    commands = environment_without_ours(folder, only)
    _install(wheels, commands / "python", *names)
    if "prismline-localstack" in names:
        _install(wheels, environment_of_the_emulator(folder), "prismline-emulator[server]")
    return commands


def environment_of_the_emulator(folder: Path) -> Path:
    """The emulator's own environment in the environment `folder`, with the third-party packages of that of this one.
    Return its interpreter.
    """
    venv.create(folder / OWN_ENVIRONMENT, with_pip=False)
    for path in packages_of(Path(emulator_python()).parents[1]).iterdir():
        if not _is_ours(path):
            (packages_of(folder / OWN_ENVIRONMENT) / path.name).symlink_to(path)
    return folder / OWN_ENVIRONMENT / "bin" / "python"


def _install(wheels: Path, python: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run([*pip, "install", "-q", "--no-index", "--find-links", str(wheels), *arguments], python.parent)


def packages_of(environment: Path) -> Path:
    """The folder of the installed packages of a virtual environment."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))


def _is_ours(path: Path) -> bool:
    return path.suffix == ".pth" or path.name.lower().startswith(("prismline", "__editable__"))


def run(command: Sequence[str], folder: Path, **variables: str) -> str:
    """Run a command outside the checkout, without the variables of another system. Return what it printed."""
    inherited = without_a_system()
    inherited.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, cwd=folder, env=inherited | variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout
