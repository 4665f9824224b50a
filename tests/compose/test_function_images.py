"""The image of each function runs like in Lambda: by awslambdaric, as its own user, on a read-only file system."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from prismline_localstack.functions.environment import ExecutionEnvironment
from prismline_localstack.functions.offline import NO_RECORDS, VARIABLES, declared_functions
from prismline_localstack.functions.urls import request_event, response_of
from prismline_localstack.settings import REPOSITORY
from tests.compose.stack import docker, missing_engine

pytestmark = pytest.mark.compose

#: The variables that Lambda sets.
OF_LAMBDA = ("AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME", "_HANDLER")


FUNCTIONS = list(declared_functions(REPOSITORY))


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if reason := missing_engine():
        pytest.skip(f"No container engine: {reason}.")


@pytest.mark.parametrize(
    ("service", "command", "served"),
    [(each.service, each.entry_point + each.command, each.has_url) for each in FUNCTIONS],
    ids=[f"{each.service}-{each.logical_id}" for each in FUNCTIONS],
)
def test_an_image_answers_an_invocation(service: str, command: tuple[str, ...], served: bool, tmp_path: Path) -> None:
    image, container = f"prismline-test-{service}", f"prismline-test-{secrets.token_hex(4)}"
    docker(
        "build",
        "--quiet",
        "--build-arg",
        "PYTHON_IMAGE",
        "--file",
        f"services/{service}/Dockerfile",
        "--tag",
        image,
        ".",
    )
    entry, *arguments = command
    variables = [argument for name in (*VARIABLES, *OF_LAMBDA) for argument in ("--env", name)]
    # The network of the host, because the Runtime API listens only on the loopback address, like Lambda's.
    limits = ["--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp"]
    run = ["docker", "run", "--name", container, *limits, *variables, "--entrypoint", entry, image, *arguments]
    environment = ExecutionEnvironment(service, "arn", run, dict(os.environ) | VARIABLES, tmp_path / "log", tmp_path)
    try:
        event = request_event("GET", "/nothing", {"host": "h"}, b"", "127.0.0.1") if served else {"Records": []}
        outcome = environment.invoke(json.dumps(event).encode(), 60.0)
        output = f"{outcome.error}: {outcome.message}\n{(tmp_path / 'log').read_text()}"
        if served:
            assert response_of(outcome).status in {401, 404, 405}, output
        else:
            assert outcome.error in NO_RECORDS, output
        assert docker("exec", container, "id", "-u").strip() == "10001"
    finally:
        docker("rm", "--force", container)
        environment.stop()
