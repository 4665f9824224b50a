"""The image of each function runs as its template says: by awslambdaric, as its own user, with nothing to write on."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismline_localstack.deployment.order import parse, stacks_of
from prismline_localstack.functions.environment import ExecutionEnvironment
from prismline_localstack.functions.urls import request_event, response_of
from prismline_localstack.settings import REPOSITORY
from tests.compose.stack import docker, missing_engine

pytestmark = pytest.mark.compose

#: How handlers fail at an event without records, when they have made their clients.
NO_RECORDS = {"UnexpectedBatchTypeError", "IndexError"}
VARIABLES = {
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "RUNS_TABLE": "runs",
    "JOBS_TABLE": "jobs",
    "WORKFLOW_STATE_TABLE": "states",
    "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:run",
    "BUCKET": "bucket",
    "PRISMLINE_VALKEY_URL": "none",
}
#: What Lambda sets.
OF_LAMBDA = ("AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME", "_HANDLER")


def functions() -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
    """Service, logical id and command of each function of the templates, and whether it has a URL."""
    for service, path in stacks_of(REPOSITORY).items():
        resources = parse(path.read_text())["Resources"]
        urls = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::Lambda::Url"]
        served = {url["TargetFunctionArn"]["Fn::GetAtt"][0] for url in urls}
        for name, resource in resources.items():
            if resource["Type"] == "AWS::Lambda::Function":
                config = resource["Properties"]["ImageConfig"]
                yield service, name, (*config["EntryPoint"], *config["Command"]), name in served


FUNCTIONS = list(functions())


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if reason := missing_engine():
        pytest.skip(f"No container engine: {reason}.")


@pytest.mark.parametrize(
    ("service", "command", "served"),
    [(service, command, served) for service, _, command, served in FUNCTIONS],
    ids=[f"{service}-{name}" for service, name, *_ in FUNCTIONS],
)
def test_an_image_answers_an_invocation(service: str, command: tuple[str, ...], served: bool, tmp_path: Path) -> None:
    image, container = f"prismline-test-{service}", f"prismline-test-{secrets.token_hex(4)}"
    docker("build", "--quiet", "--file", f"services/{service}/Dockerfile", "--tag", image, ".")
    entry, *arguments = command
    variables = [argument for name in (*VARIABLES, *OF_LAMBDA) for argument in ("--env", name)]
    # The network of the host, because the Runtime API listens at its loopback address only, as Lambda's does.
    limits = ["--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp"]
    run = ["docker", "run", "--name", container, *limits, *variables, "--entrypoint", entry, image, *arguments]
    environment = ExecutionEnvironment(service, "arn", run, dict(os.environ) | VARIABLES, tmp_path / "log", tmp_path)
    try:
        event = request_event("GET", "/nothing", {"host": "h"}, b"", "127.0.0.1") if served else {"Records": []}
        outcome = environment.invoke(json.dumps(event).encode(), 60.0)
        said = f"{outcome.error}: {outcome.message}\n{(tmp_path / 'log').read_text()}"
        if served:
            assert response_of(outcome).status in {401, 404, 405}, said
        else:
            assert outcome.error in NO_RECORDS, said
        assert docker("exec", container, "id", "-u").strip() == "10001"
    finally:
        docker("rm", "--force", container)
        environment.stop()
