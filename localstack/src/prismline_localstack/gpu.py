"""The GPU instance for captions in the emulator: start it, stop it, and report its state.

The emulated EC2 and SSM know the instance, and the services ask only those. Its model is the endpoint in
`CAPTION_BASE_URL`. By default, that is the stand-in of the harness, which runs independently of the instance.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from prismline_cli.connection import Connection
from prismline_cli.output import fail
from prismline_contracts.resources import GPU, NO_INSTANCE, instance_id_parameter, normalize_instance_id
from prismline_deploy.endpoints import is_aws
from prismline_emulator.endpoints import answers
from prismline_runtime import clients, error_code

#: The id of an image that need not exist, because emulators start no instances.
IMAGE = "ami-00000000"
#: States of an instance that runs or is about to, and of those that can still be terminated.
RUNNING_STATES = ["pending", "running"]
LIVING_STATES = [*RUNNING_STATES, "stopping", "stopped"]


class GpuStatus(NamedTuple):
    """The state of the GPU."""

    instance_id: str | None
    #: The instance's state in EC2. None if there is no such instance.
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
        instance = f"{self.instance_id} is {self.state or 'gone'}" if self.instance_id else "no instance"
        endpoint = "answers" if self.healthy else "does not answer"
        model = f"{self.endpoint} {endpoint}" if self.endpoint else "its model answers at the instance's own address"
        return f"GPU {'up' if self.up else 'down'}: {instance}; {model}."


def start_gpu(connection: Connection) -> str:
    """Start a GPU instance in the emulator and write its id to SSM. Return the id. A running instance is kept.

    On AWS, the command ends with a sentence: instances cost money there, and the harness does not start any.
    """
    _only_emulated()
    running = _instances(connection, RUNNING_STATES)
    instance_id = running[0] if running else _run_instance(connection)
    clients.ec2().get_waiter("instance_running").wait(InstanceIds=[instance_id], WaiterConfig={"Delay": 1})
    _write_parameter(connection, instance_id)
    return instance_id


def stop_gpu(connection: Connection) -> list[str]:
    """Write to SSM that there is no GPU, and terminate the instances that `start_gpu` started. Return their ids.

    On AWS, the command ends with a sentence, as in `start_gpu`.
    """
    _only_emulated()
    _write_parameter(connection, NO_INSTANCE)
    instances = _instances(connection, LIVING_STATES)
    if instances:
        clients.ec2().terminate_instances(InstanceIds=instances)
    return instances


def gpu_status(connection: Connection) -> GpuStatus:
    """The state of the GPU, as services see it."""
    instance_id = _read_parameter(connection)
    endpoint = os.environ.get("CAPTION_BASE_URL") or None
    return GpuStatus(
        instance_id=instance_id,
        state=_state(instance_id) if instance_id else None,
        endpoint=endpoint,
        healthy=endpoint is not None and answers(endpoint, f"{urlsplit(endpoint).path}/models"),
    )


def _only_emulated() -> None:
    if is_aws(clients.ec2().meta.endpoint_url):
        fail(
            "This command starts and stops instances in an emulator only. On AWS, start the GPU instance yourself, and "
            f"write its id to the SSM parameter {instance_id_parameter('<environment>', GPU)}."
        )


def _name(connection: Connection) -> str:
    return f"prismline-{connection.environment}-gpu"


def _parameter(connection: Connection) -> str:
    return instance_id_parameter(connection.environment, GPU)


def _write_parameter(connection: Connection, value: str) -> None:
    clients.ssm().put_parameter(Name=_parameter(connection), Value=value, Type="String", Overwrite=True)


def _read_parameter(connection: Connection) -> str | None:
    """The id of the instance. None if there is none."""
    try:
        return normalize_instance_id(clients.ssm().get_parameter(Name=_parameter(connection))["Parameter"]["Value"])
    except ClientError as error:
        if error_code(error) == "ParameterNotFound":
            return None
        raise


def _run_instance(connection: Connection) -> str:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": _name(connection)}]}]
    answer = clients.ec2().run_instances(ImageId=IMAGE, MinCount=1, MaxCount=1, TagSpecifications=tags)
    instance_id: str = answer["Instances"][0]["InstanceId"]
    return instance_id


def _instances(connection: Connection, states: list[str]) -> list[str]:
    """Ids of the instances that `start_gpu` started and that are in one of `states`."""
    filters = [
        {"Name": "tag:Name", "Values": [_name(connection)]},
        {"Name": "instance-state-name", "Values": states},
    ]
    return [instance["InstanceId"] for instance in _described(Filters=filters)]


def _state(instance_id: str) -> str | None:
    try:
        return next((instance["State"]["Name"] for instance in _described(InstanceIds=[instance_id])), None)
    except ClientError as error:
        if error_code(error).startswith("InvalidInstanceID"):
            return None
        raise


def _described(**arguments: Any) -> list[dict[str, Any]]:
    answer = clients.ec2().describe_instances(**arguments)
    return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
