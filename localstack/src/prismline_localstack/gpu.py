"""The GPU instances for captions: start one, stop all, and report their state.

On AWS they belong to the auto-scaling group of `services/worker/gpu.yaml`. In an emulator, whose groups start no
instances, one is started without a group; its model is the endpoint in `CAPTION_BASE_URL`, by default the stand-in of
the harness, which runs independently of the instance.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.resources import GPU, resource_tags
from prismline_deploy.endpoints import is_aws
from prismline_emulator.endpoints import answers
from prismline_runtime import clients

#: The template of the group, in a checkout.
GPU_TEMPLATE = "services/worker/gpu.yaml"
#: The id of an image that need not exist, because emulators start no instances.
IMAGE = "ami-00000000"
#: States of an instance that runs or is about to, and of those that can still be terminated.
RUNNING_STATES = ["running", "pending"]
LIVING_STATES = [*RUNNING_STATES, "stopping", "stopped"]


class GpuStatus(NamedTuple):
    """The state of the GPU."""

    #: An instance, and its state in EC2; of several, one that runs. None: there is none.
    instance_id: str | None
    state: str | None
    #: The endpoint of its model, if `CAPTION_BASE_URL` gives one.
    endpoint: str | None
    #: Whether the endpoint answers.
    healthy: bool

    @property
    def up(self) -> bool:
        """Whether services would use the GPU."""
        return self.state == "running"

    def __str__(self) -> str:
        """The state in one line."""
        instance = f"{self.instance_id} is {self.state}" if self.instance_id else "no instance"
        endpoint = "answers" if self.healthy else "does not answer"
        model = f"{self.endpoint} {endpoint}" if self.endpoint else "its model answers at the instance's own address"
        return f"GPU {'up' if self.up else 'down'}: {instance}; {model}."


def start_gpu(connection: Connection) -> list[str]:
    """Start a GPU instance, unless there is one. Return the ids of the instances.

    On AWS, the group starts it in minutes, and the list is empty until then. Without a group the command ends with a
    sentence.
    """
    if is_aws(clients.ec2().meta.endpoint_url):
        if _desired(connection) == 0:
            _set_desired(connection, 1)
        return _instances(connection, RUNNING_STATES)
    running = _instances(connection, RUNNING_STATES) or [_run_instance(connection)]
    clients.ec2().get_waiter("instance_running").wait(InstanceIds=running, WaiterConfig={"Delay": 1})
    return running


def stop_gpu(connection: Connection) -> list[str]:
    """Terminate all GPU instances. Return their ids. On AWS, the group starts one again when windows wait."""
    instances = _instances(connection, LIVING_STATES)
    if is_aws(clients.ec2().meta.endpoint_url):
        _desired(connection)
        _set_desired(connection, 0)
    elif instances:
        clients.ec2().terminate_instances(InstanceIds=instances)
    return instances


def gpu_status(connection: Connection) -> GpuStatus:
    """The state of the GPU, as services see it."""
    found = sorted(_described(connection, LIVING_STATES), key=lambda each: LIVING_STATES.index(each["State"]["Name"]))
    endpoint = os.environ.get("CAPTION_BASE_URL") or None
    return GpuStatus(
        instance_id=found[0]["InstanceId"] if found else None,
        state=found[0]["State"]["Name"] if found else None,
        endpoint=endpoint,
        healthy=endpoint is not None and answers(endpoint, f"{urlsplit(endpoint).path}/models"),
    )


def _name(connection: Connection) -> str:
    return f"prismline-{connection.environment}-gpu"


def _desired(connection: Connection) -> int:
    """The number of instances that the group wants. Ends the command if there is no group."""
    groups = _autoscaling().describe_auto_scaling_groups(AutoScalingGroupNames=[_name(connection)])["AutoScalingGroups"]
    if not groups:
        fail(f"{connection.environment} has no group of GPU instances. An administrator deploys {GPU_TEMPLATE}.")
    desired: int = groups[0]["DesiredCapacity"]
    return desired


def _set_desired(connection: Connection, instances: int) -> None:
    _autoscaling().set_desired_capacity(
        AutoScalingGroupName=_name(connection), DesiredCapacity=instances, HonorCooldown=False
    )


def _autoscaling() -> Any:
    return boto3.client("autoscaling", config=clients.CONFIG)


def _run_instance(connection: Connection) -> str:
    tags = {"Name": _name(connection)} | resource_tags(connection.environment, GPU)
    answer = clients.ec2().run_instances(
        ImageId=IMAGE,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    instance_id: str = answer["Instances"][0]["InstanceId"]
    return instance_id


def _instances(connection: Connection, states: list[str]) -> list[str]:
    return [instance["InstanceId"] for instance in _described(connection, states)]


def _described(connection: Connection, states: list[str]) -> list[dict[str, Any]]:
    """The instances in one of `states`."""
    tags = resource_tags(connection.environment, GPU)
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    answer = clients.ec2().describe_instances(Filters=[*filters, {"Name": "instance-state-name", "Values": states}])
    return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
