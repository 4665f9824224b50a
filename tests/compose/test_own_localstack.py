"""A LocalStack of the user: `localstack/init` deploys to it, and a release that needs an account is refused."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from prismline_emulator.endpoints import LOOPBACK, answers, free_port
from prismline_localstack.settings import client_environment
from prismline_localstack.stacks import create_stacks
from prismline_localstack.state import make_client
from tests.compose.stack import LOCALSTACK_IMAGE, REPOSITORY, Stack, available, base_image, docker
from tests.system import wait_for

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]


@pytest.fixture
def localstack(engine: None) -> Iterator[str]:
    """The endpoint of a LocalStack that was started with the mounts that the init script names."""
    if not available(LOCALSTACK_IMAGE):
        pytest.skip(f"{LOCALSTACK_IMAGE} is not present and cannot be pulled.")
    port = free_port()
    folders = {
        "localstack/init/ready.d": "/etc/localstack/init/ready.d",
        "platform": "/prismline/platform",
        "services": "/prismline/services",
    }
    mounts = [part for here, there in folders.items() for part in ("-v", f"{REPOSITORY / here}:{there}:ro")]
    container = docker("run", "-d", "--rm", "-p", f"{LOOPBACK}:{port}:4566", *mounts, LOCALSTACK_IMAGE).strip()
    yield f"http://{LOOPBACK}:{port}"
    docker("rm", "-f", container)


def test_the_init_script_deploys_what_the_harness_would(localstack: str) -> None:
    wait_for(lambda: answers(localstack, "/_localstack/health"), "LocalStack to answer")

    def scripts() -> list[str]:
        with urllib.request.urlopen(f"{localstack}/_localstack/init/ready") as answer:
            document = json.load(answer)
        return [script["state"] for script in document["scripts"]] if document["completed"] else []

    assert wait_for(scripts, "the init script to end", patience=300) == ["SUCCESSFUL"]
    env = client_environment(localstack)
    cloudformation, s3 = make_client("cloudformation", env), make_client("s3", env)

    def updated() -> dict[str, datetime]:
        """When each stack was last updated."""
        return {stack["StackName"]: stack["LastUpdatedTime"] for stack in cloudformation.describe_stacks()["Stacks"]}

    stacks = updated()
    assert len(stacks) == 1 + len(list(REPOSITORY.glob("services/*/template.yaml")))
    create_stacks(cloudformation, s3, REPOSITORY, "local")
    assert updated() == stacks, "the harness finds nothing to change"


def test_a_later_localstack_without_a_token_is_refused_with_a_sentence(engine: None, tmp_path: Path) -> None:
    later = "prismline/later-localstack:2026.3.0"
    docker("tag", base_image(), later)
    stack = Stack.prepare(tmp_path, "localstack")
    stack.environment["LOCALSTACK_IMAGE"] = later
    try:
        done = stack.compose("up", "-d", "--wait", expect=None)
        assert done.returncode != 0
        assert 'service "localstack-token" didn\'t complete successfully' in done.stderr
        output = stack.compose("logs", "localstack-token").stdout
        assert f"LOCALSTACK_IMAGE is {later}" in output
        assert "export LOCALSTACK_AUTH_TOKEN" in output
    finally:
        stack.compose("down", "--volumes", expect=None)
        docker("rmi", later)
