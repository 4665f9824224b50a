"""`requirements/install.sh`, in a throw-away environment: uv installs, and pip does where uv cannot."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.releases.wheels import packages_of

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
#: An index that refuses every connection.
NO_INDEX = "http://127.0.0.1:9/simple"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip, and with the packages of this one, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("install") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    # Python 3.11 brings an old setuptools, which would hide the one of this environment.
    subprocess.run([folder / "bin" / "python", "-m", "pip", "uninstall", "-qy", "setuptools"], check=True)
    (packages_of(folder) / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_uv_installs_a_list_and_compiles_it(environment: Path, tmp_path: Path) -> None:
    """Processes that may not write bytecode would otherwise compile each module at each start."""
    install(environment, hashed_list(tmp_path, "by_uv"), PYTHONDONTWRITEBYTECODE="1")

    assert installer(environment, "by_uv") == "uv"
    assert list(packages_of(environment).glob("__pycache__/by_uv.*.pyc"))


def test_pip_installs_where_an_index_is_configured_for_pip_only(environment: Path, tmp_path: Path) -> None:
    """uv would ask the default index, which may not be allowed there."""
    install(environment, hashed_list(tmp_path, "by_variable"), PIP_INDEX_URL=NO_INDEX)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex-url = {NO_INDEX}\n")
    install(environment, hashed_list(tmp_path, "by_file"), PIP_CONFIG_FILE=str(settings))

    assert installer(environment, "by_variable") == "pip"
    assert installer(environment, "by_file") == "pip"


def test_uv_installs_where_its_index_is_configured_too(environment: Path, tmp_path: Path) -> None:
    install(environment, hashed_list(tmp_path, "by_both"), PIP_INDEX_URL=NO_INDEX, UV_DEFAULT_INDEX=NO_INDEX)

    assert installer(environment, "by_both") == "uv"


def test_pip_installs_where_uv_cannot_be_installed(environment: Path, tmp_path: Path) -> None:
    script = Path(shutil.copy(REQUIREMENTS / "install.sh", tmp_path))
    (tmp_path / "uv.txt").write_text(f"uv @ {tmp_path.as_uri()}/uv-9-py3-none-any.whl --hash=sha256:{'0' * 64}\n")

    install(environment, hashed_list(tmp_path, "without_uv"), script=script)

    assert installer(environment, "without_uv") == "pip"


def test_a_package_with_another_hash_is_installed_by_neither(environment: Path, tmp_path: Path) -> None:
    requirements = hashed_list(tmp_path, "forged")
    wheel(tmp_path, "forged", text="forged = True\n")

    with pytest.raises(subprocess.CalledProcessError):
        install(environment, requirements)

    assert not list(packages_of(environment).glob("forged*"))


def test_packages_of_the_repository_are_installed_without_an_index(environment: Path, tmp_path: Path) -> None:
    """A stranger's package of the same name in an index is not asked for."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "ours"\nversion = "1"\ndependencies = ["a-package-of-no-index"]\n'
        '[tool.setuptools]\npy-modules = ["ours"]\n'
    )
    (tmp_path / "ours.py").touch()

    install(environment, "--own", tmp_path, UV_DEFAULT_INDEX=NO_INDEX)

    assert installer(environment, "ours") == "uv"
    python = environment / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import ours; print(ours.__file__)"], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == str(tmp_path / "ours.py")


def test_it_installs_into_another_environment_which_needs_no_pip(environment: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)

    install(environment, "--into", other / "bin" / "python", hashed_list(tmp_path, "by_uv_elsewhere"))
    install(
        environment,
        "--into",
        other / "bin" / "python",
        hashed_list(tmp_path, "by_pip_elsewhere"),
        PIP_INDEX_URL=NO_INDEX,
    )

    assert installer(other, "by_uv_elsewhere") == "uv"
    assert installer(other, "by_pip_elsewhere") == "pip"
    assert not list(packages_of(environment).glob("*_elsewhere*"))


#: What the script needs besides an interpreter.
TOOLS = ("bash", "basename", "cat", "dirname", "env", "find", "grep", "head", "sed")


@pytest.fixture
def without_a_compiler(tmp_path: Path) -> tuple[Path, str]:
    """A checkout with gaussline's sources and the script, and a PATH on which there is no compiler."""
    for name, place in (("install.sh", "requirements"), ("uv.txt", "requirements")):
        (tmp_path / place).mkdir(exist_ok=True)
        shutil.copy(REQUIREMENTS / name, tmp_path / place)
    library = tmp_path / "libs" / "gaussline"
    library.mkdir(parents=True)
    (library / "pyproject.toml").write_text('[project]\nname = "prismline-gaussline"\nversion = "1"\n')
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or "")
    return tmp_path, str(tools)


def test_without_a_compiler_and_a_wheel_it_says_what_to_install(
    environment: Path, without_a_compiler: tuple[Path, str]
) -> None:
    checkout, path = without_a_compiler
    done = subprocess.run(
        [
            checkout / "requirements" / "install.sh",
            environment / "bin" / "python",
            "--own",
            checkout / "libs/gaussline",
        ],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "gaussline's kernel needs a C compiler and Python's headers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_compiler_the_wheel_of_gaussline_is_installed(
    environment: Path, without_a_compiler: tuple[Path, str]
) -> None:
    checkout, path = without_a_compiler
    (checkout / "dist").mkdir()
    wheel(checkout / "dist", "prismline_gaussline")

    install(
        environment,
        "--own",
        checkout / "libs" / "gaussline",
        script=checkout / "requirements" / "install.sh",
        PATH=path,
    )

    assert (packages_of(environment) / "prismline_gaussline-1.dist-info").is_dir()


def install(
    environment: Path, *arguments: str | Path, script: Path = REQUIREMENTS / "install.sh", **settings: str
) -> None:
    """Run the script, with `settings` of the indexes instead of those of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    subprocess.run(
        [script, environment / "bin" / "python", *arguments],
        env={**kept, "PIP_CONFIG_FILE": os.devnull, **settings},
        check=True,
    )


def hashed_list(folder: Path, name: str) -> Path:
    """A requirements file with a package of one module and its hash."""
    made = wheel(folder, name)
    requirements = folder / f"{name}.txt"
    requirements.write_text(f"{name} @ {made.as_uri()} --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n")
    return requirements


def wheel(folder: Path, name: str, text: str = "") -> Path:
    """A wheel with one module, in `folder`."""
    path = folder / f"{name}-1-py3-none-any.whl"
    files = {
        f"{name}.py": text,
        f"{name}-1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{name}-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        file: base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        for file, content in files.items()
    }
    record = "".join(f"{file},sha256={digest},{len(files[file])}\n" for file, digest in digests.items())
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**files, f"{name}-1.dist-info/RECORD": record}.items():
            archive.writestr(file, content)
    return path


def installer(environment: Path, name: str) -> str:
    """The program that installed the package `name`."""
    return (packages_of(environment) / f"{name}-1.dist-info" / "INSTALLER").read_text().strip()
