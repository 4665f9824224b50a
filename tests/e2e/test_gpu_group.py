"""The group of GPU instances: windows that wait start one, and a model without requests stops all."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from PIL import Image

from prismline_contracts.resources import GPU
from prismline_deploy.change_sets import Stacks
from prismline_localstack import harness
from prismline_localstack.settings import REPOSITORY
from prismline_runtime import Instances
from tests.system import CHUNK_SERVICES, System, wait_for

pytestmark = pytest.mark.e2e

TEMPLATE = (REPOSITORY / "services" / "worker" / "gpu.yaml").read_text()
WINDOWS = 4
#: The AWS command line, as far as the report of an instance uses it.
AWS = """
    #!{python}
    import sys
    import boto3
    values = [dict(part.split("=", 1) for part in each.split(",", 2)) for each in sys.argv[6:]]
    assert sys.argv[1:6] == ["cloudwatch", "put-metric-data", "--namespace", "Prismline/Gpu", "--metric-data"], sys.argv
    dimension = "[{{Name=Environment,Value={environment}}}]"
    assert all(value["Dimensions"] == dimension for value in values), values
    dimensions = [{{"Name": "Environment", "Value": "{environment}"}}]
    boto3.client("cloudwatch").put_metric_data(
        Namespace=sys.argv[4],
        MetricData=[
            {{"MetricName": value["MetricName"], "Value": float(value["Value"]), "Dimensions": dimensions}}
            for value in values
        ],
    )
"""


def report() -> str:
    """The program in the user data of an instance that reports on its model."""
    (text,) = re.findall(r"<<'REPORT'\n(.*?\n) *REPORT\n", TEMPLATE, re.DOTALL)
    return textwrap.dedent(text).replace("${!", "${")


class Group:
    """Plays EC2 Auto Scaling, whose groups start no instances in the emulator, and whose alarms execute no policies."""

    def __init__(self, environment: str) -> None:
        self.name = f"prismline-{environment}-gpu"
        self.environment = environment
        self.scaling: Any = boto3.client("autoscaling")
        self.ec2: Any = boto3.client("ec2")
        self.cooling: set[str] = set()

    def described(self) -> dict[str, Any]:
        (group,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])["AutoScalingGroups"]
        return dict(group)

    def alarm(self, name: str) -> str:
        """The state of an alarm."""
        (alarm,) = boto3.client("cloudwatch").describe_alarms(AlarmNames=[f"{self.name}-{name}"])["MetricAlarms"]
        return alarm["StateValue"]

    def instances(self) -> list[str]:
        """The instances that services find."""
        return [each["InstanceId"] for each in Instances(self.ec2, self.environment).running(GPU)]

    def play(self) -> list[str]:
        """Execute the policies of alarms, each once, and start or end instances. Return those that run."""
        alarms = boto3.client("cloudwatch").describe_alarms(AlarmNamePrefix=self.name)["MetricAlarms"]
        for policy in self.scaling.describe_policies(AutoScalingGroupName=self.name)["ScalingPolicies"]:
            raised = [each for each in alarms if policy["PolicyARN"] in each["AlarmActions"]]
            if not any(each["StateValue"] == "ALARM" for each in raised):
                self.cooling.discard(policy["PolicyARN"])
            elif policy["PolicyARN"] not in self.cooling:
                self.cooling.add(policy["PolicyARN"])
                self._adjust(policy)
        self._reconcile()
        return self.instances()

    def _adjust(self, policy: dict[str, Any]) -> None:
        group, change = self.described(), policy["ScalingAdjustment"]
        wanted = change if policy["AdjustmentType"] == "ExactCapacity" else group["DesiredCapacity"] + change
        self.scaling.set_desired_capacity(
            AutoScalingGroupName=self.name, DesiredCapacity=max(group["MinSize"], min(group["MaxSize"], wanted))
        )

    def _reconcile(self) -> None:
        group, running = self.described(), self.instances()
        if excess := running[group["DesiredCapacity"] :]:
            self.ec2.terminate_instances(InstanceIds=excess)
        if missing := group["DesiredCapacity"] - len(running):
            tags = [{"Key": each["Key"], "Value": each["Value"]} for each in group["Tags"] if each["PropagateAtLaunch"]]
            if missing > 0:
                self.ec2.run_instances(
                    ImageId="ami-1",
                    MinCount=missing,
                    MaxCount=missing,
                    TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
                )


@contextmanager
def reporting(folder: Path, environment: str, url: str) -> Iterator[None]:
    """Run the report of an instance, whose model is at `url`."""
    shim = folder / "aws"
    shim.write_text(textwrap.dedent(AWS).lstrip().format(python=sys.executable, environment=environment))
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    program = folder / "prismline-report"
    program.write_text(report())
    given = {"ENVIRONMENT": environment, "MODEL_URL": url, "REPORT_SECONDS": "1"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(["bash", str(program)], env={**os.environ, **given, "PATH": path})
    try:
        yield
        assert process.poll() is None, "the report goes on"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.timeout(600)
def test_windows_that_wait_start_an_instance_and_a_model_without_requests_stops_it(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for frame in range(2 * WINDOWS):
        Image.new("RGB", (8, 8), (20 * frame, 0, 0)).save(frames / f"{frame}.png")
    with (
        pytest.MonkeyPatch.context() as patch,
        System.running(
            tmp_path_factory.mktemp("gpu"), patch, services=[*CHUNK_SERVICES, "standins"], DEFERRAL_SECONDS="1"
        ) as system,
    ):
        environment = system.connection.environment
        given = {"Environment": environment, "Emulator": "true", "AlarmPeriod": "10", "IdleMinutes": "5"}
        network = {"VpcId": "vpc-1", "SubnetIds": "subnet-1", "WorkerSecurityGroupId": "sg-1"}
        Stacks(boto3.client("cloudformation")).put(f"prismline-{environment}-gpu", given | network, TEMPLATE)
        group, model = Group(environment), harness.load_state().url("gpu")
        assert group.play() == [], "nothing waits"

        group.scaling.set_desired_capacity(AutoScalingGroupName=group.name, DesiredCapacity=1)
        assert len(group.play()) == 1
        with reporting(tmp_path, environment, "http://127.0.0.1:9"):
            wait_for(lambda: group.alarm("mute") == "ALARM", "the report of a model that does not answer")
            assert len(group.play()) == 1, "it may still load the model"
        with reporting(tmp_path, environment, model):
            wait_for(lambda: group.alarm("idle") == "ALARM", "the report of a model without requests")
        assert group.play() == []

        run_id = system.cli("caption", str(frames), "--session", "s", "--user", "u", "--window", "2").strip()
        (instance,) = wait_for(group.play, "the backlog to start an instance")
        view = system.wait(run_id)
        assert (view.status, view.completed) == ("completed", WINDOWS)
        wait_for(lambda: group.alarm("backlog") == "OK", "the backlog to be over")
        assert group.play() == [instance]

        with reporting(tmp_path, environment, model):
            wait_for(lambda: group.alarm("idle") == "OK", "the report of the captions that were made")
            assert group.play() == [instance], "it has just had requests"
