"""A team builds the image of its service in a sparse checkout, by the commands of docs/how-to/release.md."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismline_deploy.labels import labels_of, version_of
from prismline_localstack.settings import REPOSITORY
from tests.compose.stack import docker, missing_engine, run
from tests.docs.commands import commands

pytestmark = [
    pytest.mark.compose,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="a sparse checkout needs the history"),
]

PAGE = REPOSITORY / "docs/how-to/release.md"


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if reason := missing_engine():
        pytest.skip(f"No container engine: {reason}.")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the committed worker, contracts and libraries."""
    page = commands(PAGE, "One service")
    clone = next(n for n, command in enumerate(page) if command.startswith("git clone"))
    script = "\n".join([f"cd {tmp_path}", *page[clone : page.index("git checkout") + 1]])
    run("bash", "-e", "-c", script, REPOSITORY=str(REPOSITORY))
    return tmp_path / "prismline"


@pytest.fixture
def image() -> Iterator[str]:
    """The name of an image, which is removed afterwards."""
    name = f"prismline-test-{secrets.token_hex(4)}"
    yield name
    run("docker", "rmi", "--force", name, expect=None)


def test_a_service_builds_its_image(checkout: Path, image: str) -> None:
    (build,) = [command for command in commands(PAGE, "One service") if command.endswith(" image bill")]
    run("bash", "-e", "-c", f"cd {checkout} && {build} VENV={sys.prefix} IMAGE={image}")
    (described,) = json.loads(docker("image", "inspect", image))
    config: dict[str, Any] = described["Config"]
    expected = dict(label.split("=", 1) for label in labels_of(checkout, "worker"))
    assert expected.keys() == {"org.opencontainers.image.version", "org.opencontainers.image.revision"}
    assert config["Labels"].items() >= expected.items()
    assert config["Labels"]["org.opencontainers.image.title"] == "prismline-worker"
    assert config["User"] == "10001:10001"
    # The image contains the worker with the kernel.
    imports = "import prismline_worker.handler, prismline_gaussline as g; assert g.kernel_available()"
    docker("run", "--rm", "--read-only", "--tmpfs", "/tmp", "--entrypoint", "python", image, "-c", imports)
    bill = json.loads((checkout / "services/worker/dist/worker.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == version_of(checkout, "worker")
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    assert parts["libc6"]["purl"].startswith("pkg:deb/debian/libc6@")
    assert "purl" not in parts["prismline-gaussline"]
