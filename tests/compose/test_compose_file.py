"""docker-compose.yml agrees with what it repeats: the services' processes, and the names in the stacks."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

import pytest
import yaml

from prismline_localstack.deploy import deploy
from prismline_localstack.registry import ServiceProcess, service_processes
from prismline_localstack.state import make_client
from tests.compose.stack import REPOSITORY

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


@pytest.mark.emulator
def test_containers_are_told_the_names_that_the_stacks_give(emulator_env: dict[str, str]) -> None:
    cloudformation, s3 = make_client("cloudformation", emulator_env), make_client("s3", emulator_env)
    outputs = deploy(cloudformation, s3, REPOSITORY, "local")
    told = SERVICES["worker"]["environment"]
    names = sorted(set(outputs) & set(told))
    assert names == ["BUCKET", "JOBS_TABLE", "RUNS_TABLE", "STATE_MACHINE_ARN", "WORKFLOW_STATE_TABLE"]
    assert {name: told[name] for name in names} == {name: outputs[name] for name in names}
