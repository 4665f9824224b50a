"""`prismline gpu`, on the emulator's EC2, and on an auto-scaling group as on AWS."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner, Result

from prismline_cli.connection import Connection
from prismline_cli.whole import app
from prismline_localstack.gpu import start_gpu, stop_gpu
from prismline_runtime import Instances


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["gpu", *arguments])


@pytest.fixture
def environment(aws_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment without a GPU. No system runs in the home, so the commands use the AWS variables."""
    monkeypatch.setenv("PRISMLINE_HOME", str(tmp_path))
    monkeypatch.delenv("CAPTION_BASE_URL", raising=False)
    return aws_env["ENVIRONMENT"]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a fake model server that answers only `/v1/models`. Yields its base URL."""

    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/models" else 500)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        monkeypatch.setenv("CAPTION_BASE_URL", url)
        yield url
        server.shutdown()
        thread.join()


def states(environment: str) -> dict[str, str]:
    """The states of all instances with the name of the GPU."""
    ec2: Any = boto3.client("ec2")
    found = ec2.describe_instances(Filters=[{"Name": "tag:Name", "Values": [f"prismline-{environment}-gpu"]}])
    return {
        instance["InstanceId"]: instance["State"]["Name"]
        for reservation in found["Reservations"]
        for instance in reservation["Instances"]
    }


@pytest.mark.emulator
def test_up_starts_one_instance_which_the_services_find(environment: str) -> None:
    assert run("up").exit_code == 0
    (instance,) = states(environment)
    (found,) = Instances(boto3.client("ec2"), environment).running("gpu")
    assert found["InstanceId"] == instance
    again = run("up")
    assert again.stdout == f"GPU up: {instance}.\n"
    assert states(environment) == {instance: "running"}


@pytest.mark.emulator
def test_down_terminates_the_instance(environment: str) -> None:
    (instance,) = start_gpu(Connection(environment))
    assert run("down").stdout == f"GPU down: {instance} terminated.\n"
    assert states(environment) == {instance: "terminated"}
    assert run("down").stdout == "GPU down: no instance was running.\n"
    assert start_gpu(Connection(environment)) != [instance]


@pytest.mark.emulator
def test_a_stopped_instance_is_replaced_and_down_terminates_both(environment: str) -> None:
    (stopped,) = start_gpu(Connection(environment))
    ec2: Any = boto3.client("ec2")
    ec2.stop_instances(InstanceIds=[stopped])
    (running,) = start_gpu(Connection(environment))
    assert running != stopped
    assert sorted(stop_gpu(Connection(environment))) == sorted([stopped, running])


@pytest.mark.emulator
def test_the_gpu_of_another_environment_is_left_alone(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (theirs,) = start_gpu(Connection(environment))
    assert start_gpu(Connection(f"{environment}-2")) != [theirs]
    stop_gpu(Connection(f"{environment}-2"))
    assert states(environment) == {theirs: "running"}


@pytest.mark.emulator
def test_status_says_that_the_gpu_is_down(environment: str) -> None:
    assert run("status").stdout.startswith("GPU down: no instance; ")
    assert json.loads(run("status", "--json").stdout)["up"] is False
    (instance,) = start_gpu(Connection(environment))
    ec2: Any = boto3.client("ec2")
    ec2.stop_instances(InstanceIds=[instance])
    assert run("status").stdout.startswith(f"GPU down: {instance} is stopped; ")


@pytest.mark.emulator
def test_status_is_one_line_about_instance_and_model(environment: str, model: str) -> None:
    assert run("status").stdout == f"GPU down: no instance; {model} answers.\n"
    (instance,) = start_gpu(Connection(environment))
    assert run("status").stdout == f"GPU up: {instance} is running; {model} answers.\n"
    assert json.loads(run("status", "--json").stdout) == {
        "up": True,
        "instance_id": instance,
        "state": "running",
        "endpoint": model,
        "healthy": True,
    }


@pytest.mark.emulator
def test_status_says_when_the_model_does_not_answer(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTION_BASE_URL", "http://127.0.0.1:9/v1")
    (instance,) = start_gpu(Connection(environment))
    assert run("status").stdout == f"GPU up: {instance} is running; http://127.0.0.1:9/v1 does not answer.\n"


@pytest.fixture
def on_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the emulator for AWS."""
    monkeypatch.setattr("prismline_localstack.gpu.is_aws", lambda _: True)


@pytest.mark.emulator
@pytest.mark.usefixtures("on_aws")
def test_on_aws_up_and_down_change_the_size_of_the_group_which_may_have_more_instances(environment: str) -> None:
    name = f"prismline-{environment}-gpu"
    scaling: Any = boto3.client("autoscaling")
    scaling.create_auto_scaling_group(AutoScalingGroupName=name, MinSize=0, MaxSize=3, AvailabilityZones=["a"])

    def desired() -> int:
        (group,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return int(group["DesiredCapacity"])

    assert run("up").stdout == "GPU: the group starts an instance; `prismline gpu status` shows when it runs.\n"
    assert desired() == 1
    scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    run("up")
    assert desired() == 2, "those that run are kept"
    assert run("down").exit_code == 0
    assert desired() == 0
    assert states(environment) == {}, "the group alone starts and ends instances"


@pytest.mark.emulator
@pytest.mark.usefixtures("on_aws")
@pytest.mark.parametrize("command", ["up", "down"])
def test_on_aws_without_a_group_the_sentence_names_its_template(environment: str, command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert result.stderr.replace("\n", " ").startswith(f"{environment} has no group of GPU instances.")
    assert "services/worker/gpu.yaml" in result.stderr


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_without_a_system_the_exit_code_is_3_with_a_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISMLINE_HOME", str(tmp_path))
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    result = run(command)
    assert result.exit_code == 3
    assert "prismline up" in result.stderr
