"""docker-compose.yml agrees with what it repeats: the services' processes, and the names in the stacks."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from prismline_emulator.endpoints import HEALTH_PATH, LOOPBACK, answers, free_port
from prismline_localstack.emulator import emulator_python
from prismline_localstack.registry import ServiceProcess, service_processes
from prismline_localstack.settings import client_environment
from prismline_localstack.stacks import create_stacks
from prismline_localstack.state import make_client
from tests.compose.stack import REPOSITORY
from tests.system import wait_for

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
#: A third-party server has its own image and its own command.
PROCESSES = [process for process in service_processes(REPOSITORY, workers=1) if process.server is None]
#: Containers without a health check: jobs that end, and a process that retries after every error.
UNWATCHED = {"deploy", "localstack-token", "cli", "metrics"}


def arguments_in_container(process: ServiceProcess) -> list[str]:
    """The arguments of a container's entry point: the command of the compose file or of the image."""
    if "command" in SERVICES[process.name]:
        return list(SERVICES[process.name]["command"])
    dockerfile = (process.folder / "Dockerfile").read_text()
    return list(json.loads(re.findall(r"^CMD (.*)$", dockerfile, re.MULTILINE)[-1]))


def meaning(arguments: list[str]) -> argparse.Namespace:
    """The arguments in a form that ignores their order and the address to listen at."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queue", action="append", default=[])
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--more-queues")
    parser.add_argument("--host")
    parser.add_argument("target")
    parsed = parser.parse_args(arguments)
    parsed.host = None
    return parsed


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_a_container_runs_what_the_service_declares(process: ServiceProcess) -> None:
    declared = process.command[process.command.index("-m") + 2 :]
    in_container = arguments_in_container(process)
    if "-m" in in_container:  # the command is a whole command line
        in_container = in_container[in_container.index("-m") + 2 :]
    assert meaning(in_container) == meaning(declared)


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_limited_watched_and_not_exposed(name: str) -> None:
    service = SERVICES[name]
    assert {"cpus", "memory", "pids"} == set(service["deploy"]["resources"]["limits"])
    assert ("healthcheck" in service) == (name not in UNWATCHED)
    assert "network_mode" not in service
    assert "privileged" not in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert not re.search(r":latest$", service["image"])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_an_image_is_built_on_the_base_that_the_user_names(name: str) -> None:
    build = SERVICES[name]["build"]
    assert "ARG PYTHON_IMAGE=" in (REPOSITORY / build["dockerfile"]).read_text()
    assert build["args"]["PYTHON_IMAGE"] is None, "compose passes the variable of the environment for an empty value"


@pytest.mark.emulator
def test_containers_are_told_the_names_that_the_stacks_give(emulator_env: dict[str, str]) -> None:
    cloudformation, s3 = make_client("cloudformation", emulator_env), make_client("s3", emulator_env)
    outputs = create_stacks(cloudformation, s3, REPOSITORY, "local")
    environment = SERVICES["worker"]["environment"]
    names = sorted(set(outputs) & set(environment))
    assert names == ["BUCKET", "JOBS_TABLE", "RUNS_TABLE", "STATE_MACHINE_ARN", "WORKFLOW_STATE_TABLE"]
    assert {name: environment[name] for name in names} == {name: outputs[name] for name in names}


def substituted(value: str, variables: dict[str, str]) -> str:
    """A value of the compose file, with its variables as compose substitutes them."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), value)


@contextmanager
def light_emulator(data: Path, port: int, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of the container `ministack`, at a port of this machine and with its files in `data`."""
    service = SERVICES["ministack"]
    environment = {name: substituted(value, variables) for name, value in service["environment"].items()}
    assert environment["BIND_HOST"] == "0.0.0.0"
    environment |= {"BIND_HOST": LOOPBACK, "GATEWAY_PORT": str(port)}
    environment = {name: value.replace("/data/", f"{data}/") for name, value in environment.items()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    _, *arguments = service["command"]
    with subprocess.Popen([emulator_python(), *arguments], env=inherited | environment) as process:
        try:
            wait_for(lambda: answers(f"http://{LOOPBACK}:{port}", HEALTH_PATH), "the emulator to answer")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def status_of(port: int, **headers: str) -> int:
    """The status of the answer to a health check with these headers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    connection.request("GET", HEALTH_PATH, headers=headers)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.emulator
def test_the_light_emulator_answers_containers_and_the_console_and_nobody_else(tmp_path: Path) -> None:
    port = free_port()
    with light_emulator(tmp_path, port, PRISMLINE_API_PORT="8999"):
        for host in ("aws:4566", "localhost:4566", f"{LOOPBACK}:4599"):
            assert status_of(port, Host=host) == 200
        assert status_of(port, Host="evil.example:4566") == 403
        assert status_of(port, Origin=f"http://{LOOPBACK}:8999") == 200
        assert status_of(port, Origin=f"http://{LOOPBACK}:8998") == 403


@pytest.mark.emulator
def test_the_light_emulator_keeps_its_state_and_checks_the_secret_of_the_stack(tmp_path: Path) -> None:
    port = free_port()
    environment = client_environment(f"http://{LOOPBACK}:{port}", "secret of the stack")
    with light_emulator(tmp_path, port, PRISMLINE_EMULATOR_SECRET="secret of the stack"):
        make_client("sqs", environment).create_queue(QueueName="kept")
    with light_emulator(tmp_path, port, PRISMLINE_EMULATOR_SECRET="secret of the stack"):
        (url,) = make_client("sqs", environment).list_queues()["QueueUrls"]
        assert url.endswith("/kept")
        with pytest.raises(ClientError, match="not signed with the secret access key"):
            make_client("sqs", environment | {"AWS_SECRET_ACCESS_KEY": "test"}).list_queues()


@pytest.mark.parametrize("name", ["ministack", "worker", "deploy", "metrics"])
def test_the_emulator_and_its_clients_get_one_secret(name: str) -> None:
    environment = SERVICES[name]["environment"]
    assert substituted(environment["AWS_SECRET_ACCESS_KEY"], {}) == "test"
    assert substituted(environment["AWS_SECRET_ACCESS_KEY"], {"PRISMLINE_EMULATOR_SECRET": "mine"}) == "mine"
