"""The digest of an image covers what it is built from and nothing else. Its labels say what it was built from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from prismline_deploy.dockerfiles import APP, context, copies, dockerfile_of, image_digest
from prismline_deploy.errors import DeployError
from prismline_deploy.labels import labels_of, revision_of
from prismline_localstack.functions.images import FolderImages
from prismline_localstack.settings import REPOSITORY

SERVICES = sorted(path.parent.name for path in REPOSITORY.glob("services/*/pyproject.toml"))
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build", "node_modules")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what images are built from, with tests."""
    root = tmp_path / "checkout"
    for folder in ("contracts", "libs", "services"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=GENERATED)
    shutil.copy(REPOSITORY / ".dockerignore", root)
    return root


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", "-C", str(root), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def clone(root: Path) -> str:
    """Make a clone with one commit of a folder. Return the commit."""
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "All files")
    return git(root, "rev-parse", "HEAD")


def edit(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.read_text() if path.exists() else ''}\n# edited\n")


@pytest.mark.parametrize(
    "path",
    [
        "services/api/tests/test_cells.py",
        "services/api/README.md",
        "services/api/template.yaml",
        "services/worker/src/prismline_worker/handler.py",
        "services/worker/requirements.txt",
        "libs/gaussline/src/prismline_gaussline/__init__.py",
        "libs/runtime/tests/test_new.py",
        "contracts/schemas/new.json",
        "platform/template.yaml",
        "services/api/src/prismline_api/__pycache__/app.cpython-311.pyc",
    ],
)
def test_a_change_elsewhere_keeps_the_digest(checkout: Path, path: str) -> None:
    before = image_digest(checkout, "api")
    edit(checkout / path)
    assert image_digest(checkout, "api") == before


@pytest.mark.parametrize(
    "path",
    [
        "services/api/src/prismline_api/console/static/icon.svg",
        "services/api/src/prismline_api/app.py",
        "services/api/requirements.txt",
        "services/api/Dockerfile",
        "libs/ledger/src/prismline_ledger/base.py",
        "contracts/src/prismline_contracts/base.py",
    ],
)
def test_a_change_of_what_the_image_holds_gives_another_digest(checkout: Path, path: str) -> None:
    before, other = image_digest(checkout, "api"), image_digest(checkout, "dlq-consumer")
    assert (checkout / path).exists()
    edit(checkout / path)
    assert image_digest(checkout, "api") != before
    assert (image_digest(checkout, "dlq-consumer") == other) == path.startswith("services/")


def test_another_base_image_gives_another_digest(checkout: Path) -> None:
    before = image_digest(checkout, "api")
    dockerfile = dockerfile_of(checkout, "api")
    digest = dockerfile.read_text().partition("@sha256:")[2][:64]
    assert len(digest.strip()) == 64
    dockerfile.write_text(dockerfile.read_text().replace(digest, "0" * 64))
    assert image_digest(checkout, "api") != before


def test_what_is_newly_ignored_gives_another_digest(checkout: Path) -> None:
    before = image_digest(checkout, "api")
    with (checkout / ".dockerignore").open("a") as ignored:
        ignored.write("**/icon.svg\n")
    assert image_digest(checkout, "api") != before


def test_a_program_and_a_file_of_the_same_content_differ(checkout: Path) -> None:
    before = image_digest(checkout, "status")
    path = checkout / "contracts/src/prismline_contracts/base.py"
    os.utime(path, (1, 1))
    assert image_digest(checkout, "status") == before, "times make no difference"
    path.chmod(0o755)
    assert image_digest(checkout, "status") != before


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_no_tests_and_nothing_generated(service: str) -> None:
    names = {path.relative_to(REPOSITORY).as_posix() for path in context(REPOSITORY, service)}
    assert f"services/{service}/requirements.txt" in names
    assert f"services/{service}/src/prismline_{service.replace('-', '_')}/__init__.py" in names
    assert not [name for name in names if "/tests/" in name or name.endswith((".so", ".pyc"))]


def test_the_image_of_the_emulator_has_the_same_digest_and_files(checkout: Path, tmp_path: Path) -> None:
    images = FolderImages(tmp_path / "images")
    uri = images.build(checkout, "api")
    assert uri == f"prismline/api@sha256:{image_digest(checkout, 'api')}"
    held = {path.relative_to(images.find(uri) / "app") for path in images.find(uri).rglob("*") if path.is_file()}
    app = [source for copy in copies(dockerfile_of(checkout, "api")) if copy.target == APP for source in copy.sources]
    copied = {
        path.relative_to(checkout / source)
        for path in context(checkout, "api")
        for source in app
        if path.is_relative_to(checkout / source)
    }
    assert held == copied
    assert Path("prismline_api/console/static/icon.svg") in held


@pytest.mark.parametrize(
    "instruction",
    [
        "ADD https://example.org/x.tar /app/",
        'COPY ["a b", "/app/"]',
        "COPY libs/*/src /app/",
        "COPY <<EOF /app/x.py",
        "RUN --mount=type=bind,source=libs,target=/libs true",
    ],
)
def test_an_instruction_whose_files_would_be_missed_is_refused(checkout: Path, instruction: str) -> None:
    dockerfile = dockerfile_of(checkout, "api")
    dockerfile.write_text(f"{dockerfile.read_text()}{instruction}\n")
    with pytest.raises(DeployError, match="The files of this instruction would not count"):
        image_digest(checkout, "api")


def test_a_folder_that_is_not_there_is_refused(checkout: Path) -> None:
    shutil.rmtree(checkout / "libs/http")
    with pytest.raises(DeployError, match=r"copies libs/http/src, which .* does not have"):
        image_digest(checkout, "api")


def test_the_label_names_the_commit(checkout: Path) -> None:
    commit = clone(checkout)
    assert f"org.opencontainers.image.revision={commit}" in labels_of(checkout, "api")


@pytest.mark.parametrize(
    "path",
    ["services/api/src/prismline_api/app.py", "libs/web/src/prismline_web/new.py", "services/api/Dockerfile"],
)
def test_a_label_says_that_the_image_is_not_the_commit(checkout: Path, path: str) -> None:
    commit = clone(checkout)
    edit(checkout / path)
    assert revision_of(checkout, "api") == f"{commit}-dirty"
    assert revision_of(checkout, "status") == commit, "the file is not in this image"
    git(checkout, "add", ".")
    assert revision_of(checkout, "api") == f"{commit}-dirty", "a file that is staged is not committed"


def test_a_deleted_file_makes_the_label_dirty(checkout: Path) -> None:
    commit = clone(checkout)
    (checkout / "services/api/src/prismline_api/app.py").unlink()
    assert revision_of(checkout, "api") == f"{commit}-dirty"


def test_a_file_that_git_ignores_and_the_image_holds_makes_the_label_dirty(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("*.local\n")
    commit = clone(checkout)
    edit(checkout / "services/api/src/prismline_api/settings.local")
    assert revision_of(checkout, "api") == f"{commit}-dirty"


def test_files_that_the_image_does_not_hold_do_not_matter(checkout: Path) -> None:
    commit = clone(checkout)
    edit(checkout / "services/api/tests/test_cells.py")
    edit(checkout / "libs/gaussline/tests/test_new.py")
    assert revision_of(checkout, "api") == revision_of(checkout, "worker") == commit


def test_the_commit_of_another_repository_around_the_checkout_is_not_taken(checkout: Path) -> None:
    clone(checkout.parent)
    assert revision_of(checkout, "api") is None


def test_outside_of_a_clone_there_is_no_revision(checkout: Path) -> None:
    assert [label.partition("=")[0] for label in labels_of(checkout, "api")] == ["org.opencontainers.image.version"]
